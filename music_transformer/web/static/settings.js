// The form beside the motif: what to do, with which model, and what a musician asks for.

import { $ } from "./page.js";

const HINTS = {
  performance: "Piano, with timing and dynamics.",
  chorale: "Four voices on a grid of sixteenths.",
  accompaniment: "A piano that plays to the melody.",
};
const SLIDERS = { seconds: 0, temperature: 2, top_p: 2, closeness: 1 }; // with their decimals
const TEXTS = ["key", "low", "high", "loudness"], NUMBERS = ["pace", "voices"];
const TONICS = ["C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B"];
const GO = {
  continue: (motif) => (motif.id ? "Continue the motif" : "Compose from nothing"),
  accompany: () => "Accompany the motif",
  fill: ({ cut }) => (cut ? `Fill ${cut[0]} s to ${cut[1]} s` : "Choose from and to"),
};
const field = (name) => $(name.replace("_", "-"));
const pretty = (text) => text.replace("#", "♯").replace(/b\b/, "♭");

export class Settings {
  #models = [];
  #moods = {};

  /** @param {Motif} motif */
  constructor(motif) {
    this.motif = motif;
    for (const name of Object.keys(SLIDERS)) field(name).oninput = () => this.show();
    for (const name of ["temperature", "top-p"]) $(name).addEventListener("input", () => { $("mood").value = "own"; });
    $("mood").onchange = () => this.#setMood();
    $("model").onchange = () => this.#adopt();
    $("task").onchange = () => this.#adoptTask();
    $("dice").onclick = () => { $("seed").value = Math.floor(Math.random() * 1e6); };
    for (const mode of ["major", "minor"]) {
      for (const tonic of TONICS) $("key").add(new Option(pretty(`${tonic} ${mode}`), `${tonic} ${mode}`));
    }
  }

  /** Take in what the server has. */
  offer({ models, sliders, marks, moods }) {
    this.#models = models;
    this.#moods = moods;
    for (const [name, [min, max, step]] of Object.entries(sliders)) Object.assign(field(name), { min, max, step });
    $("seconds").value = 30;
    for (const mark of marks) $("loudness").add(new Option(mark, mark));
    const can = (task) => models.some(({ tasks }) => tasks.includes(task));
    for (const option of $("task").options) option.hidden = option.disabled = !can(option.value);
    $("task").value = [...$("task").options].find(({ disabled }) => !disabled)?.value ?? "continue";
    this.#adoptTask();
  }

  /** What is asked for, as the server takes it. */
  get asked() {
    const { motif } = this, cut = motif.cut, task = $("task").value;
    const length = {
      continue: () => Number($("seconds").value),
      accompany: () => Math.ceil(motif.seconds), // as long as its melody
      fill: () => Math.ceil(motif.seconds - (cut?.[0] ?? 0)),
    };
    const asked = {
      task,
      model: $("model").value,
      primer: motif.id,
      from: cut?.[0] ?? null,
      to: cut?.[1] ?? null,
      seconds: length[task](),
      temperature: Number($("temperature").value),
      top_p: Number($("top-p").value),
      closeness: Number($("closeness").value),
      mood: $("mood").value, // for the page itself
    };
    if (!this.#wishes) return asked;
    for (const name of TEXTS) if ($(name).value) asked[name] = $(name).value.trim();
    for (const name of NUMBERS) if ($(name).value) asked[name] = Number($(name).value);
    return asked;
  }

  /** The wish to stay in the key of what was played, for a model that takes wishes. */
  get inKey() { return this.#wishes ? { key: "motif" } : {}; }
  get #wishes() { return this.#model?.kind === "performance"; }

  /** The model that answers in live. */
  get continuing() {
    const able = this.#models.filter(({ tasks }) => tasks.includes("continue"));
    return (able.includes(this.#model) ? this.#model : able[0])?.name;
  }

  get seed() { return Math.max(0, Math.floor(Number($("seed").value)) || 0); }
  set seed(seed) { $("seed").value = seed; }
  get count() { return Number($("count").value); }

  /** Make the form fit the motif and itself. */
  show() {
    const task = $("task").value, model = this.#model;
    for (const [name, decimals] of Object.entries(SLIDERS)) {
      const unit = name === "seconds" ? " s" : "";
      $(`${field(name).id}-value`).textContent = Number(field(name).value).toFixed(decimals) + unit;
    }
    $("length").hidden = task !== "continue";
    $("wishes").hidden = !this.#wishes;
    $("model-hint").textContent = task === "fill" ? "What begins between from and to is composed anew." : HINTS[model?.kind] ?? "";
    const { motif } = this, ready = { continue: true, accompany: motif.id, fill: motif.cut }[task];
    $("go").textContent = GO[task](motif);
    $("go").disabled = !model || motif.recording !== null || !ready;
  }

  get #model() { return this.#models.find(({ name }) => name === $("model").value); }

  /** Of continuations four are compared; whatever else is asked for is the best of several already. */
  #adoptTask() {
    $("count").value = $("task").value === "continue" ? 4 : 1;
    this.#offerModels();
  }

  /** Only the models that can do what is chosen. */
  #offerModels() {
    const able = this.#models.filter(({ tasks }) => tasks.includes($("task").value));
    const before = $("model").value;
    $("model").replaceChildren(...able.map(({ name }) => new Option(name, name)));
    if (able.some(({ name }) => name === before)) $("model").value = before;
    if ($("model").value !== before) this.#adopt();
    this.show();
  }

  /** A model comes with the settings that suit it; from there on they are the user's. */
  #adopt() {
    $("mood").value = "usual";
    this.#setMood();
    if (this.#model) slideTo($("closeness"), this.#model.closeness);
    this.show();
  }

  /** A mood is a temperature and a top-p. */
  #setMood() {
    const model = this.#model;
    const pair = this.#moods[$("mood").value] ?? (model && [model.temperature, model.top_p]);
    if (pair && $("mood").value !== "own") ["temperature", "top-p"].forEach((name, i) => slideTo($(name), pair[i]));
    this.show();
  }
}

/** What was asked for, in a line. */
export function described(asked) {
  const wishes = [
    asked.key && (asked.key === "motif" ? "in the motif's key" : pretty(asked.key)),
    (asked.low || asked.high) && `${asked.low ?? "…"} to ${asked.high ?? "…"}`,
    asked.pace && `pace × ${asked.pace}`,
    asked.loudness && `loudness ${asked.loudness}`,
    asked.voices && `${asked.voices} ${asked.voices === 1 ? "voice" : "voices"}`,
  ];
  return [
    `${{ accompany: "accompanied by ", fill: "filled by " }[asked.task] ?? ""}${asked.model}`,
    `seed ${asked.seed}`,
    { usual: "", calm: "calm", bold: "bold" }[asked.mood] ?? `temperature ${asked.temperature} · top-p ${asked.top_p}`,
    ...wishes,
  ].filter(Boolean).join(" · ");
}

function slideTo(slider, value) {
  slider.min = Math.min(slider.min, value);
  slider.max = Math.max(slider.max, value);
  slider.value = value;
}
