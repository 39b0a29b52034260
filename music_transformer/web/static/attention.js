// What the model listened to when it wrote a note of a take: arcs in the roll, a sentence under it.

import * as api from "./api.js";
import { keyOf, pitchName } from "./notes.js";

const HEAD_COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#7b4fc9", "#b03a5b"];
const MOST_ARCS = 60;
const LINGER_MS = 150; // so long on a note before the model is asked: arrow keys pass over many
const SAME_SECONDS = 0.002;

const headColor = (head) => HEAD_COLORS[head % HEAD_COLORS.length];
const named = ({ pitch, start }) => `${pitchName(pitch)} at ${start.toFixed(1)} s`;

export class Attention {
  #answer = null; // the server's, about the selected note

  /** @param {Card} card the take that is asked about */
  constructor(card) {
    this.card = card;
    this.roll = card.roll;
    this.$ = card.$;
    this.$(".ask").onclick = () => this.#askOnClick(!this.roll.asking);
    this.$(".hide").onclick = () => this.#unselect();
    this.$(".layer").onchange = () => this.#draw();
    card.element.addEventListener("keydown", (event) => { if (event.key === "Escape") this.#unselect(); });
  }

  async select(note) {
    const key = keyOf(note);
    this.roll.show({ selected: key, arcs: [] });
    this.#answer = null;
    this.$(".attention").hidden = false;
    this.$(".attention .bar").hidden = true;
    this.#read(`${named(note)}: asking the model…`);
    await new Promise((resolve) => setTimeout(resolve, LINGER_MS));
    if (this.roll.selected !== key) return;
    let answer;
    try {
      answer = await api.attention(this.card.id, note);
    } catch (error) {
      if (this.roll.selected === key) this.#read(error.message);
      return;
    }
    if (this.roll.selected !== key) return; // another was clicked meanwhile
    this.#answer = answer;
    this.#controls(answer);
    this.$(".attention .bar").hidden = false;
    this.#draw();
  }

  #unselect() {
    this.roll.show({ selected: null, arcs: [] });
    this.$(".attention").hidden = true;
    this.#askOnClick(false);
  }

  /** Whether a click on a note asks what the model listened to, instead of moving the playhead. */
  #askOnClick(on) {
    this.roll.asking = on;
    this.$(".ask").setAttribute("aria-pressed", on);
  }

  #controls({ layers, heads }) {
    const layer = this.$(".layer");
    if (layer.options.length !== layers + 1) {
      layer.replaceChildren(new Option("all", "all"));
      for (let i = 0; i < layers; i++) layer.add(new Option(String(i + 1), String(i)));
    }
    const box = this.$(".heads");
    if (box.children.length === heads) return;
    box.replaceChildren();
    for (let head = 0; head < heads; head++) {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.setAttribute("aria-label", `Head ${head + 1}`);
      button.style.setProperty("--head", headColor(head));
      button.append(document.createElement("i"), String(head + 1));
      button.onclick = () => {
        button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
        this.#draw();
      };
      box.append(button);
    }
  }

  #draw() {
    if (!this.#answer) return;
    const { layers, notes, weights } = this.#answer;
    const layer = this.$(".layer").value;
    const on = [...this.$(".heads").children].map((button) => button.getAttribute("aria-pressed") === "true");
    const heads = on.filter(Boolean).length || 1;
    const share = layer === "all" ? 1 / layers : 1;
    const arcs = new Map(), sums = new Map();
    for (const [which, head, row, weight] of weights) {
      if ((layer !== "all" && which !== Number(layer)) || !on[head]) continue;
      const key = `${head}/${row}`;
      arcs.set(key, { head, row, weight: (arcs.get(key)?.weight ?? 0) + weight * share });
      sums.set(row, (sums.get(row) ?? 0) + (weight * share) / heads);
    }
    const strongest = [...arcs.values()].sort((a, b) => b.weight - a.weight).slice(0, MOST_ARCS);
    this.roll.show({
      arcs: strongest.map(({ head, row, weight }) => ({ note: this.#note(notes[row]), weight, color: headColor(head) })),
    });
    const note = this.roll.notes.get(this.roll.selected);
    const most = [...sums].sort((a, b) => b[1] - a[1]).slice(0, 3)
      .map(([row, weight]) => `${named(this.#note(notes[row]))} (${Math.round(100 * weight)} %)`);
    const given = note.start < this.card.primerSeconds - 1e-4;
    const listens = given ? "to expect it, the model listens" : "to write it, the model listened";
    this.#read(`${named(note)}: ${most.length ? `${listens} most to ${most.join(", ")}.` : "nothing before it stands out."}`);
  }

  #note([start, pitch, track]) {
    const same = (note) => note.pitch === pitch && note.track === track && Math.abs(note.start - start) < SAME_SECONDS;
    return [...this.roll.notes.values()].find(same) ?? { start, end: start, pitch, track };
  }

  #read(text) { this.$(".reading").textContent = text; }
}
