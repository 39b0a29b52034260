// The takes: one card for each, all on the same scale of seconds and pitches.

import * as api from "./api.js";
import { Attention } from "./attention.js";
import { clock, noteOf } from "./notes.js";
import { player } from "./player.js";
import { Roll, pitchRange } from "./roll.js";
import { described } from "./settings.js";
import { dropTake, keepTake, keptTakes } from "./shelf.js";

const RUNNING = new Set(["queued", "loading", "composing"]);

export class Takes {
  constructor(list, { sound, onMotif, onMore, onError, onChange }) {
    this.list = list;
    this.sound = sound;
    this.onMotif = onMotif;
    this.onMore = onMore;
    this.onError = onError;
    this.onChange = onChange;
    this.cards = new Map();
    this.early = []; // heard before the answer that tells the take's id
    this.made = 0;
    this.removed = []; // what undo brings back, the last one first
  }

  /** A card for a take that was just asked for, or for one that was kept. */
  add(id, asked, kept) {
    const card = new Card(this, id, ++this.made, asked, kept);
    this.cards.set(id, card);
    this.list.append(card.element);
    this.rescale();
    const early = this.early.filter((message) => message.id === id);
    this.early = this.early.filter((message) => message.id !== id);
    for (const message of early) card.hear(message);
    this.onChange();
    return card;
  }

  /** What the server says of a take. */
  hear(message) {
    const card = this.cards.get(message.id);
    if (card) card.hear(message);
    else this.early = [...this.early, message].slice(-200);
    this.onChange();
  }

  get running() { return [...this.cards.values()].filter((card) => RUNNING.has(card.state)).length; }
  get size() { return this.cards.size; }

  remove(card) {
    player.forget(card.source);
    if (card.kept.midi) {
      this.removed.unshift(card.kept);
      dropTake(card.kept.key);
    }
    this.cards.delete(card.id);
    card.element.remove();
    this.rescale();
    this.onChange();
  }

  /** Bring back the take that was removed last. */
  undo() {
    const kept = this.removed.shift();
    if (kept) return this.#restore(kept);
  }

  /** Bring back what the browser kept from the last time. */
  async restoreAll() {
    for (const kept of keptTakes()) await this.#restore(kept);
  }

  async #restore(kept) {
    try {
      const { id } = await api.restoreTake(kept);
      keepTake(kept);
      this.add(id, kept.asked, kept);
    } catch (error) {
      this.onError(`${kept.title}: ${error.message}`);
    }
  }

  /** Takes that differ only in their seeds stand together, the best first, once all are there. */
  compare() {
    const groups = new Map();
    for (const card of this.cards.values()) groups.set(card.wanted, [...(groups.get(card.wanted) ?? []), card]);
    for (const alike of groups.values()) {
      const ranked = alike.filter(({ rank }) => rank).sort((a, b) => a.rank[0] - b.rank[0] || a.rank[1] - b.rank[1]);
      for (const card of alike) card.$(".closest").hidden = ranked.length < 2 || card !== ranked[0];
      if (ranked.length && !alike.some(({ running }) => running)) this.#arrange([...ranked, ...alike.filter(({ rank }) => !rank)]);
    }
  }

  /** Put cards one behind the other, where the first of them is; focus and scrolling stay. */
  #arrange(cards) {
    const elements = cards.map(({ element }) => element);
    const now = [...this.list.children], first = now.findIndex((element) => elements.includes(element));
    if (elements.every((element, i) => now[first + i] === element)) return;
    const focused = document.activeElement, places = cards.map(({ roll }) => roll.box.scrollLeft);
    const others = now.filter((element) => !elements.includes(element));
    this.list.replaceChildren(...others.slice(0, first), ...elements, ...others.slice(first));
    cards.forEach(({ roll }, i) => { roll.box.scrollLeft = places[i]; });
    if (this.list.contains(focused)) focused.focus({ preventScroll: true });
  }

  rescale() {
    const cards = [...this.cards.values()];
    const range = pitchRange(cards.flatMap((card) => [...card.roll.notes.values()]));
    const total = Math.max(8, ...cards.map((card) => card.total));
    for (const card of cards) card.roll.show({ ...range, total });
  }
}

class Card {
  constructor(takes, id, number, asked, kept) {
    this.takes = takes;
    this.id = id;
    this.number = number;
    this.asked = asked; // the settings
    this.kept = kept; // as in shelf.js; without midi until it is finished
    this.wanted = JSON.stringify({ ...asked, seed: null });
    this.restored = Boolean(kept.midi);
    this.state = "queued";
    this.primerSeconds = 0;
    this.seconds = 0;
    const fragment = document.getElementById("take-template").content.cloneNode(true);
    this.element = fragment.firstElementChild;
    this.$ = (selector) => this.element.querySelector(selector);
    this.$("h3").textContent = `Take ${number}`;
    this.$(".about").textContent = described(asked);
    this.$(".remove").setAttribute("aria-label", `Remove take ${number}`);
    this.$(".play-button").setAttribute("aria-label", `Play take ${number}`);
    this.$(".stop").setAttribute("aria-label", `Stop take ${number}`);
    this.$(".progress").setAttribute("aria-valuemax", asked.seconds);
    this.$(".midi").href = api.fileOf("takes", id, "mid");
    this.$(".wav").href = api.fileOf("takes", id, "wav");
    this.$(".wav").hidden = !takes.sound;
    const explained = !this.restored && asked.task === "continue"; // by the events, which the server has
    this.roll = new Roll(this.$(".roll"), {
      label: `Take ${number}; left and right arrows move from note to note`,
      onNote: explained ? (note) => this.attention.select(note) : null,
      onSeek: (seconds) => {
        if (!this.$(".play-button").disabled) player.seek(this.source, Math.min(seconds, this.length));
      },
    });
    this.attention = new Attention(this);
    const card = this;
    this.source = {
      get start() { return card.seam; },
      url: takes.sound ? api.fileOf("takes", id, "wav") : null,
      notes: () => [...this.roll.notes.values()],
      seconds: () => this.length,
      show: (position, playing = true) => this.#position(position, playing),
      busy: (busy) => this.$(".play-button").toggleAttribute("data-busy", busy),
    };
    this.$(".play-button").onclick = () => player.toggle(this.source);
    this.$(".seam").onclick = () => player.play(this.source, this.seam);
    this.$(".stop").onclick = () => this.stop();
    this.$(".remove").onclick = () => this.remove();
    this.$(".again").onclick = () => takes.onMotif(id);
    this.$(".more").onclick = () => takes.onMore(this);
    this.$(".more").hidden = this.restored && asked.task === "accompany";
    this.$(".ask").hidden = !explained;
    this.$(".star").setAttribute("aria-label", `Star take ${number}`);
    this.$(".star").setAttribute("aria-pressed", Boolean(kept.starred));
    this.$(".star").onclick = () => this.#star();
    this.$(".midi").ondragstart = ({ dataTransfer }) =>
      dataTransfer.setData("DownloadURL", `audio/midi:${kept.title}.mid:${this.$(".midi").href}`);
    this.#showState({});
  }

  /** Where the composed part begins, and the playing: 0 if there is nothing before it. */
  get seam() { return this.primerSeconds < this.length ? this.primerSeconds : 0; }
  get length() { return this.primerSeconds + this.seconds; }
  get total() { return this.primerSeconds + Math.max(this.seconds, this.asked.seconds); }

  hear(message) {
    if (message.type === "notes") {
      const opening = !this.roll.notes.size;
      this.roll.add(message.notes.map(noteOf));
      if (message.seconds !== undefined) this.seconds = message.seconds;
      const { low, high } = this.roll;
      if (opening || message.notes.some(([, , pitch]) => pitch < low || pitch > high)) this.takes.rescale();
    } else {
      this.state = message.state;
      this.primerSeconds = message.primer_seconds;
      this.seconds = message.seconds;
      this.bars = message.bars;
      this.rank = message.rank ?? this.kept.rank;
      const { task, to } = this.asked, primerEnd = message.primer_seconds;
      this.roll.show(task === "accompany" ? { primerEnd: 0, melody: 0 } : { primerEnd, resumes: task === "fill" ? to : Infinity });
      this.takes.rescale();
    }
    this.#showState(message);
    this.takes.compare();
  }

  get running() { return RUNNING.has(this.state); }

  stop() {
    api.stopTake(this.id).catch((error) => this.#line(error.message));
  }

  #star() {
    this.kept.starred = !this.kept.starred;
    this.$(".star").setAttribute("aria-pressed", this.kept.starred);
    if (this.kept.midi) keepTake(this.kept);
  }

  /** Put a finished take where a reload finds it. */
  async #keep() {
    this.keeping = true;
    Object.assign(this.kept, { primerSeconds: this.primerSeconds, rank: this.rank });
    const midi = await api.midiOf(this.id).catch(() => null);
    if (midi === null) return;
    this.kept.midi = midi;
    if (!keepTake(this.kept)) this.#line("the browser does not keep this take: download it");
    this.$(".remove").hidden = false;
  }

  remove() {
    api.removeTake(this.id).catch(() => {});
    this.takes.remove(this);
  }

  #showState({ ahead, error, warnings, elapsed_seconds: elapsed, events }) {
    const composing = this.state === "composing";
    const finished = (this.state === "done" || this.state === "stopped") && this.roll.notes.size > 0;
    if (ahead !== undefined) this.ahead = ahead;
    this.element.dataset.state = this.state;
    if (finished && !this.keeping) this.#keep();
    // What could be lost without a way back cannot be removed: stop it first.
    this.$(".remove").hidden = RUNNING.has(this.state) || (finished && !this.kept.midi);
    this.roll.show({ bars: this.bars ?? [] });
    this.$(".stop").hidden = !RUNNING.has(this.state);
    this.$(".results").hidden = !finished;
    this.$(".play-button").disabled = !finished;
    this.$(".seam").hidden = !finished || !this.seam;
    this.$(".progress").setAttribute("aria-valuenow", Math.round(this.seconds));
    this.$(".progress").style.visibility = RUNNING.has(this.state) ? "" : "hidden";
    this.$(".progress div").style.width = `${Math.min(100, (100 * this.seconds) / this.asked.seconds)}%`;
    this.roll.show({ edge: composing ? this.length : null });
    if (composing) this.roll.reveal(this.length);
    if (elapsed > 0 && events > 0) {
      this.$(".state").title = `${events} events, ${Math.round(events / elapsed)} a second`;
    }
    this.$(".state").textContent = {
      queued: this.ahead ? `Waiting; ${this.ahead} before it` : "Waiting",
      loading: "Reading the model…",
      composing: `Composing… ${Math.floor(this.seconds)} of ${this.asked.seconds} s`,
      done: finished ? "Done" : "",
      stopped: finished ? `Stopped after ${clock(this.seconds)}` : "Stopped before it began",
      failed: "",
    }[this.state];
    if (finished && !player.source) this.#position(null, false);
    if (error) this.#line(`It could not be composed: ${error}`);
    else if (warnings?.length) this.#line(`${warnings.join("; ")}.`);
  }

  #position(position, playing) {
    this.roll.show({ playhead: position });
    if (playing && position !== null) this.roll.reveal(position);
    this.$(".time").textContent = `${clock(position ?? this.seam)} / ${clock(this.length, Math.round)}`;
    const button = this.$(".play-button");
    button.toggleAttribute("data-playing", playing);
    button.setAttribute("aria-label", `${playing ? "Pause" : "Play"} take ${this.number}`);
    this.element.toggleAttribute("data-playing", playing);
  }

  #line(text) {
    const line = this.$(".line");
    line.textContent = text;
    line.classList.toggle("error", this.state === "failed");
    line.hidden = false;
  }
}
