// What is played on the keyboard, as notes: a recording from its first note on. Times in seconds.

export class Recorder {
  #zero = null; // the time of the first note
  #held = new Map();
  #ended = [];

  down(pitch, velocity) {
    const now = performance.now() / 1000;
    this.#zero ??= now;
    this.#held.set(pitch, { start: now - this.#zero, pitch, velocity, track: 0 });
  }

  up(pitch) {
    const note = this.#held.get(pitch);
    if (!note) return;
    this.#held.delete(pitch);
    this.#ended.push({ ...note, end: Math.max(this.seconds, note.start + 0.02) });
  }

  /** How long it lasts by now. */
  get seconds() { return this.#zero === null ? 0 : performance.now() / 1000 - this.#zero; }
  get sounding() { return this.#held.size > 0; }

  /** The notes so far; what still sounds ends now. */
  get notes() {
    const held = [...this.#held.values()].map((note) => ({ ...note, end: Math.max(this.seconds, note.start + 0.02) }));
    return [...this.#ended, ...held];
  }

  /** The notes as the server takes them. */
  get rows() { return this.notes.map(({ start, end, pitch, velocity }) => [start, end, pitch, velocity]); }
}
