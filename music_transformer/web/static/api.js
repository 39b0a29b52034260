// What the page asks of the server. An error of the server is an Error with its one line.

let base = "";

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer; is it still running?");
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  const told = await response.json().catch(() => ({}));
  throw new Error(told.error ?? `The server answers ${response.status}.`);
}

function send(path, body) {
  return request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}

/** Make the server know this page; what it offers comes back. */
export async function openPage() {
  const offered = await request("/api/pages", { method: "POST" });
  base = `/api/pages/${offered.page}`;
  return offered;
}

/** Hear of the takes; `onLost` when the server is gone for good. */
export function listen(onMessage, onLost) {
  const channel = new EventSource(`${base}/events`);
  channel.onmessage = (event) => onMessage(JSON.parse(event.data));
  // A page that the browser keeps for its back button is closed all the same.
  window.addEventListener("pagehide", () => channel.close());
  window.addEventListener("pageshow", (event) => event.persisted && window.location.reload());
  channel.onerror = () => {
    // While it is CONNECTING the browser tries again by itself.
    if (channel.readyState === EventSource.CLOSED) onLost();
  };
}

const sendMidi = (path, body) =>
  request(`${base}/${path}`, { method: "POST", headers: { "Content-Type": "audio/midi" }, body });

export const uploadFile = (file) => sendMidi(`primers?title=${encodeURIComponent(file.name)}`, file);
/** A take that the browser kept, given back to the server. */
export const restoreTake = ({ title, primerSeconds, midi }) =>
  sendMidi(`kept?title=${encodeURIComponent(title)}&primer_seconds=${primerSeconds}`,
    Uint8Array.from(atob(midi), (letter) => letter.charCodeAt(0)));
/** The MIDI file of a take as text. */
export async function midiOf(id) {
  const response = await fetch(fileOf("takes", id, "mid"));
  if (!response.ok) throw new Error("the take cannot be read");
  return btoa(String.fromCharCode(...new Uint8Array(await response.arrayBuffer())));
}
export const uploadNotes = (notes) => send(`${base}/primers`, { title: "played", notes });
export const takeAsPrimer = (take) => send(`${base}/primers`, { take });
export const chooseMotif = (name) => request(`${base}/motifs/${name}`, { method: "POST" });
export const prepareModel = (name) =>
  request(`${base}/models/${encodeURIComponent(name)}`, { method: "POST" });
export const addTakes = async (settings) => (await send(`${base}/takes`, settings)).takes;
export const stopTake = (id) => request(`${base}/takes/${id}/stop`, { method: "POST" });
export const removeTake = (id) => request(`${base}/takes/${id}`, { method: "DELETE" });
export const attention = (id, note) =>
  request(`${base}/takes/${id}/attention?start=${note.start}&pitch=${note.pitch}&track=${note.track}`);
export const fileOf = (kind, id, suffix) => `${base}/${kind}/${id}.${suffix}`;
