// Question and answer: who plays a phrase and pauses is answered, in the phrase's own pace and key as
// far as the model keeps them, while the answer is still being composed. Also a metronome.

import { player } from "./player.js";
import { Recorder } from "./recorder.js";
import { audioContext, strike } from "./synth.js";

const PAUSE_MS = 700; // so much silence ends a phrase
const TICK_MS = 25;
const AHEAD_SECONDS = 0.12;

export class Live {
  #phrase = null;
  #timer = null; // of the pause
  #answer = null; // {card, stop()}
  #asked = 0;

  /**
   * @param {{prepare: () => Promise, answer: (rows, seconds) => Promise<Card>}} model reads its weights;
   *   has a take made of a phrase
   * @param {(text) => void} say
   */
  constructor(model, say) {
    this.model = model;
    this.say = say;
    this.on = false;
  }

  async toggle() {
    this.on = !this.on;
    this.#phrase = null;
    clearTimeout(this.#timer);
    if (!this.on) this.#silence();
    this.say(this.on ? "Live: reading the model…" : "");
    const failed = this.on && (await this.model.prepare().then(() => null, (error) => error.message));
    if (this.on) this.say(failed ?? "Live: play a phrase and pause; the answer comes by itself.");
  }

  down(pitch, velocity) {
    if (!this.on) return;
    this.#silence();
    clearTimeout(this.#timer);
    this.#phrase ??= new Recorder();
    this.#phrase.down(pitch, velocity);
  }

  up(pitch) {
    if (!this.#phrase) return;
    this.#phrase.up(pitch);
    clearTimeout(this.#timer);
    if (!this.#phrase.sounding) this.#timer = setTimeout(() => this.#ask(), PAUSE_MS);
  }

  async #ask() {
    const phrase = this.#phrase, paused = performance.now();
    const asked = ++this.#asked;
    this.#phrase = null;
    this.say("Listening is over; the answer…");
    try {
      const card = await this.model.answer(phrase.rows, phrase.seconds);
      if (asked !== this.#asked || !this.on || this.#phrase) card.stop(); // played on meanwhile
      else this.#answer = play(card, () => this.say(`Answered ${((performance.now() - paused) / 1000).toFixed(1)} s after the pause.`));
    } catch (error) {
      this.say(error.message);
    }
  }

  /** Whoever plays on interrupts the answer. */
  #silence() {
    this.#answer?.stop();
    this.#answer = null;
  }
}

/** Play the composed notes of a take as they come, the first at once. */
function play(card, onFirst) {
  const audio = audioContext();
  const sounding = new Map(); // key of a note -> how to release it
  let zero = null;
  const tick = () => {
    const composed = [...card.roll.notes].filter(([, { start }]) => start >= card.primerSeconds - 1e-4);
    if (zero === null) {
      if (!card.primerSeconds || !composed.length) return;
      zero = audio.currentTime + 0.03 - Math.min(...composed.map(([, { start }]) => start));
      onFirst();
    }
    const now = audio.currentTime - zero + AHEAD_SECONDS;
    for (const [key, note] of composed) {
      if (note.start > now) continue;
      if (!sounding.has(key)) sounding.set(key, strike(note.pitch, note.velocity, zero + note.start));
      // A note that ends where composing has come to may still be growing.
      if (note.end <= now && (note.end < card.length - 1e-3 || !card.running)) {
        sounding.get(key)?.(zero + note.end);
        sounding.set(key, null);
      }
    }
    if (card.running || now <= card.length + 1) return;
    if (!player.loop) return clearInterval(timer);
    zero += now - card.seam; // once more from the seam
    sounding.clear();
  };
  const timer = setInterval(tick, TICK_MS);
  return {
    stop() {
      clearInterval(timer);
      for (const release of sounding.values()) release?.();
      if (card.running) card.stop();
    },
  };
}

export class Metronome {
  #timer = null;

  get on() { return this.#timer !== null; }

  /** Start or stop; `beats` gives the beats a minute, asked at every beat. */
  toggle(beats) {
    if (this.on) {
      clearInterval(this.#timer);
      this.#timer = null;
      return;
    }
    const audio = audioContext();
    let next = audio.currentTime + 0.05, beat = 0;
    this.#timer = setInterval(() => {
      while (next < audio.currentTime + AHEAD_SECONDS) {
        strike(beat++ % 4 ? 96 : 103, 60, next)(next + 0.03);
        next += 60 / Math.min(240, Math.max(30, beats() || 100));
      }
    }, TICK_MS);
  }
}
