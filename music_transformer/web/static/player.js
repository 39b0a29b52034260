// One player for the whole page: starting a source stops the other, and a take that is started while
// another plays goes on at the same second, so that two can be compared.
//
// A source is {url, start, notes(), seconds(), show(position | null), busy(bool)}; it begins at second
// `start` unless it was moved. url is null where the server makes no sound, and then the page's own
// synthesizer plays the notes.

import { audioContext, strike } from "./synth.js";

const LOOK_AHEAD_SECONDS = 0.6;

class Player {
  #source = null;
  #voice = null; // {position(), stop()}
  #kept = new WeakMap(); // where a source was paused
  #calls = 0;

  loop = false; // at the end, from the start again

  get source() { return this.#source; }

  /** Play, or pause what plays. */
  toggle(source) {
    if (this.#source === source) this.pause();
    else this.play(source, this.#source ? this.#voice?.position() : this.#kept.get(source));
  }

  async play(source, from = source.start) {
    this.pause();
    if (!(from >= 0) || from >= source.seconds() - 0.05) from = source.start;
    this.#source = source;
    source.show(from);
    const call = ++this.#calls;
    let voice = null;
    if (source.url) {
      source.busy(true);
      voice = await playFile(source.url, from).catch(() => null);
      source.busy(false);
      if (this.#calls !== call || this.#source !== source) { voice?.stop(); return; }
    }
    this.#voice = voice ?? playNotes(source.notes(), from);
    this.#follow(source);
  }

  pause() {
    if (!this.#source) return;
    const source = this.#source;
    const position = this.#voice?.position() ?? 0;
    this.#voice?.stop();
    this.#source = this.#voice = null;
    this.#kept.set(source, position);
    source.show(position, false);
  }

  /** Move to a second of a source, whether it plays or not. */
  seek(source, seconds) {
    if (this.#source === source) this.play(source, seconds);
    else { this.#kept.set(source, seconds); source.show(seconds, false); }
  }

  /** A source is gone. */
  forget(source) {
    if (this.#source === source) this.pause();
  }

  #follow(source) {
    const step = () => {
      if (this.#source !== source || !this.#voice) return;
      const position = this.#voice.position();
      if (position >= source.seconds()) {
        this.#voice.fade();
        this.#source = this.#voice = null;
        this.#kept.delete(source);
        source.show(null, false);
        if (this.loop) this.play(source);
        return;
      }
      source.show(position);
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }
}

export const player = new Player();

/** Play a file of the server; it is refused where there is no sound font. */
async function playFile(url, from) {
  const audio = new Audio(url);
  audio.preload = "auto";
  await new Promise((resolve, reject) => {
    audio.oncanplay = resolve;
    audio.onerror = () => reject(new Error("no sound"));
  });
  audio.oncanplay = null;
  audio.currentTime = from;
  await audio.play();
  return {
    position: () => audio.currentTime,
    stop: () => { audio.pause(); audio.removeAttribute("src"); audio.load(); },
    fade: () => {}, // the last notes ring on
  };
}

/** Play notes with the page's own synthesizer, a little ahead of time. */
function playNotes(notes, from) {
  const audio = audioContext();
  const zero = audio.currentTime + 0.06 - from;
  const queue = notes.filter((note) => note.end > from).sort((a, b) => a.start - b.start);
  const sounding = new Set();
  const schedule = () => {
    const until = audio.currentTime - zero + LOOK_AHEAD_SECONDS;
    while (queue.length && queue[0].start < until) {
      const note = queue.shift();
      if (note.start < from) continue;
      const release = strike(note.pitch, note.velocity, zero + note.start);
      release(zero + note.end);
      sounding.add(release);
    }
  };
  schedule();
  const timer = setInterval(schedule, 150);
  return {
    position: () => Math.max(from, audio.currentTime - zero),
    stop: () => { clearInterval(timer); for (const release of sounding) release(); },
    fade: () => clearInterval(timer),
  };
}
