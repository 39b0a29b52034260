// Notes as the page keeps them: {start, end, pitch, velocity, track}, times in seconds.

const NAMES = ["C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B"];
const BLACK = new Set([1, 3, 6, 8, 10]);

export const pitchName = (pitch) => NAMES[pitch % 12] + (Math.floor(pitch / 12) - 1);
export const isBlack = (pitch) => BLACK.has(pitch % 12);
export const keyOf = (note) => `${note.start}/${note.pitch}/${note.track}`;

/** A row of the server as a note. */
export const noteOf = ([start, end, pitch, velocity, track]) => ({ start, end, pitch, velocity, track });

/** 75.3 as 1:15; of a place the second that has begun, of a length the nearest. */
export function clock(seconds, round = Math.floor) {
  const whole = Math.max(0, round(seconds + 1e-6));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}
