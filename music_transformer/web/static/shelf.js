// Finished takes as the browser keeps them, until they are removed: {key, asked, title, primerSeconds,
// rank, starred, midi}, the last a MIDI file in base64. A reload, or a new server, finds them.

const NAME = "music-transformer takes";

export function keptTakes() {
  try {
    return JSON.parse(localStorage.getItem(NAME)) ?? [];
  } catch {
    return []; // storage is switched off, or is not ours
  }
}

/** Keep a take, or its newer state; false where the browser refuses. */
export function keepTake(take) {
  const takes = keptTakes();
  const at = takes.findIndex(({ key }) => key === take.key);
  takes.splice(at < 0 ? takes.length : at, 1, take);
  return store(takes);
}

export const dropTake = (key) => store(keptTakes().filter((take) => take.key !== key));

function store(takes) {
  try {
    localStorage.setItem(NAME, JSON.stringify(takes));
    return true;
  } catch {
    return false;
  }
}
