// A piano roll on a canvas: seconds to the right, pitch upwards, louder is darker (in the dark:
// brighter). The canvas is as wide as what is seen of it and stays in place while its container
// scrolls, so a long piece costs no more than a short one.

import { isBlack, keyOf, pitchName } from "./notes.js";

const MIN_PIXELS_PER_SECOND = 11;
const MOST_PIXELS = 50_000; // of a whole roll: a motif of hours is drawn smaller
const STEPS = [1, 5, 10, 60, 600, 3600, 36_000]; // seconds between labels
const AXIS = 18;
const GUTTER = 32; // the names of the pitches, where no note is drawn
const LONG_PRESS_MS = 500;

export class Roll {
  /**
   * @param {HTMLElement} box the container that scrolls
   * @param {{label: string, onNote?: (note) => void, onSeek?: (seconds) => void}} options
   */
  constructor(box, { label, onNote = null, onSeek = null }) {
    this.box = box;
    this.notes = new Map();
    this.primerEnd = Infinity; // notes from here on are composed
    this.resumes = Infinity; // and from here on they are given again
    this.melody = null; // the track that is given from beginning to end
    this.bars = []; // seconds at which bars begin
    this.total = 8;
    this.low = 48;
    this.high = 84;
    this.cut = null; // [from, to]: what is outside is dimmed
    this.playhead = null;
    this.edge = null; // where composing has come to
    this.selected = null; // the key of a note
    this.arcs = []; // {note, color, weight}: from the selected note back
    this.past = null; // second from which on the model still remembers
    this.asking = false; // a click on a note is about the note, not about the second
    this.span = document.createElement("div");
    this.span.className = "roll-span";
    this.canvas = document.createElement("canvas");
    this.span.append(this.canvas);
    box.append(this.span);
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-roledescription", "piano roll");
    box.setAttribute("aria-label", label);
    this.onNote = onNote;
    this.onSeek = onSeek;
    box.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("click", (event) => this.#click(event));
    this.canvas.addEventListener("pointerdown", (event) => this.#press(event));
    for (const end of ["pointerup", "pointercancel", "pointerleave"]) {
      this.canvas.addEventListener(end, () => clearTimeout(this.pressing));
    }
    this.canvas.addEventListener("pointermove", (event) => {
      const note = this.#noteAt(event);
      this.canvas.style.cursor = note && this.asking ? "help" : this.onSeek ? "text" : "default";
      this.canvas.title = note ? `${pitchName(note.pitch)}, ${note.start.toFixed(2)} s` : "";
    });
    box.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.draw()).observe(box);
    dark.addEventListener("change", () => this.draw());
  }

  /** Take notes in; one that is there already is replaced. */
  add(notes) {
    for (const note of notes) this.notes.set(keyOf(note), note);
    this.box.dataset.notes = this.notes.size;
    this.draw();
  }

  clear() {
    this.notes.clear();
    this.box.dataset.notes = 0;
    this.arcs = [];
    this.selected = this.playhead = this.edge = this.cut = this.past = null;
    this.draw();
  }

  /** Change what is shown, and draw. */
  show(changes) {
    Object.assign(this, changes);
    this.draw();
  }

  /** Scroll so that a second can be seen. */
  reveal(seconds) {
    const x = GUTTER + seconds * this.scale;
    const { scrollLeft, clientWidth } = this.box;
    if (x < scrollLeft || x > scrollLeft + clientWidth * 0.92) {
      this.box.scrollLeft = x - clientWidth * 0.25;
    }
  }

  /** Draw at the next frame. */
  draw() {
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.#paint(); });
  }

  get scale() {
    const least = Math.min(MIN_PIXELS_PER_SECOND, MOST_PIXELS / this.total);
    return Math.max((this.box.clientWidth - GUTTER) / this.total, least);
  }

  #paint() {
    const width = this.box.clientWidth, height = this.box.clientHeight;
    if (!width || !height) return;
    const ratio = window.devicePixelRatio || 1;
    this.span.style.width = `${Math.max(width, Math.ceil(GUTTER + this.total * this.scale))}px`;
    this.canvas.style.width = `${width}px`;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const pen = this.canvas.getContext("2d");
    const ink = palette();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    // From here on second 0 is at x = 0, and the gutter lies before what is seen.
    const left = this.box.scrollLeft;
    pen.translate(GUTTER - left, 0);
    const seen = [left - GUTTER, left - GUTTER + width];
    this.#paper(pen, ink, seen, height);
    this.#notes(pen, ink, seen, height);
    this.#arcs(pen, ink, height);
    this.#marks(pen, ink, seen, height);
  }

  #paper(pen, ink, [left, right], height) {
    const row = this.#row(height);
    pen.font = `11px ${ink.sans}`;
    pen.textBaseline = "alphabetic";
    for (let pitch = this.low; pitch <= this.high; pitch++) {
      const y = this.#y(pitch, height);
      if (isBlack(pitch)) { pen.fillStyle = ink.row; pen.fillRect(left, y, right - left, row); }
    }
    const every = STEPS.find((step) => step * this.scale > 59) ?? STEPS.at(-1);
    // Bar lines where the metre is known, else seconds.
    const [lines, color] = this.bars.length ? [this.bars, ink.line] : [ticks(left, right, this.scale, every), ink.beat];
    pen.fillStyle = color;
    for (const second of lines) {
      const x = Math.round(second * this.scale);
      if (x >= left && x <= right) pen.fillRect(x, 0, 1, height - AXIS);
    }
    for (let pitch = Math.ceil(this.low / 12) * 12; pitch <= this.high; pitch += 12) {
      pen.fillStyle = ink.line;
      pen.fillRect(left, Math.round(this.#y(pitch, height) + row), right - left, 1);
    }
    pen.fillStyle = ink.soft;
    for (const second of ticks(left, right, this.scale, every)) {
      if (second > 0 && second * this.scale + 30 < right) pen.fillText(`${second} s`, second * this.scale + 3, height - 5);
    }
  }

  #notes(pen, ink, [left, right], height) {
    const row = this.#row(height);
    const thick = Math.max(row - (row > 5 ? 1 : 0), 2.5);
    for (const note of this.notes.values()) {
      const x = note.start * this.scale, end = note.end * this.scale;
      if (end < left || x > right) continue;
      const made = note.start >= this.primerEnd - 1e-4 && note.start < this.resumes - 1e-4;
      const given = !made || note.track === this.melody;
      const shades = given ? ink.given : ink.made;
      pen.globalAlpha = this.cut && (note.start < this.cut[0] - 1e-6 || note.start >= this.cut[1]) ? 0.22 : 1;
      pen.fillStyle = shades[Math.min(note.velocity >> 3, 15)];
      const y = this.#y(note.pitch, height) + (row - thick) / 2;
      bar(pen, x, y, Math.max(end - x - 0.7, 1.6), thick);
      const sounds = this.playhead !== null && note.start <= this.playhead && this.playhead < note.end;
      if (sounds || keyOf(note) === this.selected) {
        pen.strokeStyle = ink.ink;
        pen.lineWidth = 1.5;
        pen.strokeRect(x - 0.75, y - 0.75, Math.max(end - x, 2) + 1, thick + 1.5);
      }
    }
    pen.globalAlpha = 1;
  }

  #arcs(pen, ink, height) {
    const target = this.notes.get(this.selected);
    if (!target) return;
    const half = this.#row(height) / 2;
    const x1 = target.start * this.scale, y1 = this.#y(target.pitch, height) + half;
    for (const { note, color, weight } of this.arcs) {
      const x0 = note.start * this.scale, y0 = this.#y(note.pitch, height) + half;
      pen.strokeStyle = color;
      pen.globalAlpha = Math.min(0.9, 0.25 + 2.2 * weight);
      pen.lineWidth = 0.5 + 5 * Math.sqrt(weight);
      pen.beginPath();
      pen.moveTo(x0, y0);
      const lift = Math.min(height * 0.42, 10 + (x1 - x0) * 0.16);
      pen.bezierCurveTo(x0 + (x1 - x0) * 0.2, Math.max(2, y0 - lift), x0 + (x1 - x0) * 0.8, Math.max(2, y1 - lift), x1, y1);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  #marks(pen, ink, [left], height) {
    for (const second of [this.primerEnd, this.resumes]) {
      if (!Number.isFinite(second) || second <= 0) continue;
      pen.strokeStyle = ink.soft;
      pen.lineWidth = 1;
      pen.setLineDash([4, 3]);
      line(pen, second * this.scale, 0, height - AXIS);
      pen.setLineDash([]);
    }
    for (const second of this.cut ?? []) {
      pen.fillStyle = ink.focus;
      pen.fillRect(second * this.scale - 1, 0, 2, height - AXIS);
    }
    if (this.edge !== null) {
      pen.fillStyle = ink.accent;
      pen.fillRect(this.edge * this.scale, 0, 1.5, height - AXIS);
    }
    if (this.playhead !== null) {
      pen.fillStyle = ink.ink;
      pen.fillRect(this.playhead * this.scale - 0.75, 0, 1.5, height);
    }
    const row = this.#row(height);
    pen.fillStyle = ink.sheet;
    pen.fillRect(left, 0, GUTTER - 4, height);
    pen.fillStyle = ink.soft;
    const octaves = row * 12 < 15 ? 24 : 12; // names need their height
    for (let pitch = Math.ceil(this.low / octaves) * octaves; pitch <= this.high; pitch += octaves) {
      const y = this.#y(pitch, height) + row - 2;
      if (y > 9) pen.fillText(pitchName(pitch), left + 5, y);
    }
  }

  #row(height) { return (height - AXIS) / (this.high - this.low + 1); }
  #y(pitch, height) { return (this.high - pitch) * this.#row(height); }

  #secondAt(event) {
    const { left } = this.canvas.getBoundingClientRect();
    return (event.clientX - left - GUTTER + this.box.scrollLeft) / this.scale;
  }

  #noteAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const seconds = this.#secondAt(event);
    const row = this.#row(this.box.clientHeight);
    const pitch = this.high - (event.clientY - box.top) / row + 0.5;
    let best = null, least = 1;
    for (const note of this.notes.values()) {
      // A finger is wider than a note: the nearest within a few pixels counts.
      const across = Math.max(note.start - seconds, seconds - note.end, 0) * this.scale / 6;
      const along = Math.max(Math.abs(note.pitch - pitch) - 0.5, 0) * row / 6;
      const distance = across + along;
      if (distance < least) { least = distance; best = note; }
    }
    return best;
  }

  /** A long press is about the note under it. */
  #press(event) {
    const note = this.onNote && this.#noteAt(event);
    this.pressed = false;
    clearTimeout(this.pressing);
    if (note) this.pressing = setTimeout(() => { this.pressed = true; this.onNote(note); }, LONG_PRESS_MS);
  }

  #click(event) {
    if (this.pressed) return;
    const note = this.asking && this.#noteAt(event);
    if (note) this.onNote(note);
    else this.onSeek?.(Math.max(0, this.#secondAt(event)));
  }

  /** Left and right walk from note to note, Home moves the playhead to the beginning. */
  #key(event) {
    if (event.key === "Home") { event.preventDefault(); this.onSeek?.(0); this.reveal(0); }
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    if (!this.onNote || !this.notes.size) return;
    event.preventDefault();
    const ordered = [...this.notes.values()].sort((a, b) => a.start - b.start || a.pitch - b.pitch);
    const at = ordered.findIndex((note) => keyOf(note) === this.selected);
    const step = event.key === "ArrowRight" ? 1 : -1;
    const next = at < 0 ? (step > 0 ? 0 : ordered.length - 1) : at + step;
    const note = ordered[Math.min(Math.max(next, 0), ordered.length - 1)];
    this.reveal(note.start);
    this.onNote(note);
  }
}

/** The lowest and highest row that hold all notes, two octaves at least. */
export function pitchRange(notes) {
  let low = 127, high = 0;
  for (const { pitch } of notes) { low = Math.min(low, pitch); high = Math.max(high, pitch); }
  if (low > high) return { low: 48, high: 84 };
  low -= 2; high += 2;
  const missing = Math.max(0, 24 - (high - low));
  return { low: Math.max(0, low - Math.floor(missing / 2)), high: Math.min(127, high + Math.ceil(missing / 2)) };
}

/** The whole multiples of some seconds that are seen. */
function ticks(left, right, scale, every) {
  const first = Math.max(0, Math.floor(left / scale / every));
  return Array.from({ length: Math.ceil(right / scale / every) - first }, (_, i) => (first + i) * every);
}

function bar(pen, x, y, width, height) {
  if (width < 4 || height < 4) { pen.fillRect(x, y, width, height); return; }
  pen.beginPath();
  pen.roundRect(x, y, width, height, 2);
  pen.fill();
}

function line(pen, x, from, to) {
  pen.beginPath();
  pen.moveTo(Math.round(x) + 0.5, from);
  pen.lineTo(Math.round(x) + 0.5, to);
  pen.stroke();
}

// Colours come from the style sheet, read once for each scheme.

const dark = window.matchMedia("(prefers-color-scheme: dark)");
let colors = null;
dark.addEventListener("change", () => { colors = null; });

function palette() {
  if (colors) return colors;
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  const named = ["ink", "sheet", "soft", "line", "row", "beat", "accent", "focus", "sans"];
  colors = Object.fromEntries(named.map((name) => [name, read(name)]));
  colors.given = shades(read("given-soft"), read("given-loud"));
  colors.made = shades(read("new-soft"), read("new-loud"));
  return colors;
}

/** Sixteen colours from soft to loud. */
function shades(soft, loud) {
  const channels = (color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  const from = channels(soft), to = channels(loud);
  return Array.from({ length: 16 }, (_, level) => {
    const part = level / 15;
    return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * part)).join(" ")})`;
  });
}
