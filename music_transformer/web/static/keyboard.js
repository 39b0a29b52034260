// The piano under the roll: mouse, fingers, the computer's keys and a MIDI keyboard, all at once.
// `onDown(pitch, velocity)` and `onUp(pitch)` hear of every key.

import { isBlack, pitchName } from "./notes.js";
import { strike } from "./synth.js";

// By place, not by letter: on every layout the middle row is the white keys.
const TYPED = ["KeyA", "KeyW", "KeyS", "KeyE", "KeyD", "KeyF", "KeyT", "KeyG", "KeyY", "KeyH", "KeyU", "KeyJ",
  "KeyK", "KeyO", "KeyL", "KeyP", "Semicolon"];
const LETTERS = "AWSEDFTGYHUJKOLP;".split("");
const TYPED_VELOCITY = 84;

export class Keyboard {
  constructor(box, { onDown, onUp }) {
    this.box = box;
    this.base = 48; // the C that the key A plays
    this.keys = new Map(); // pitch -> button
    this.held = new Map(); // pitch -> {release, by: Set}
    this.pointers = new Map(); // pointer -> pitch
    this.typed = new Map(); // code -> pitch
    this.typing = true;
    this.onDown = onDown;
    this.onUp = onUp;
    box.addEventListener("pointerdown", (event) => this.#pointer(event));
    box.addEventListener("pointermove", (event) => this.pointers.has(event.pointerId) && this.#pointer(event));
    for (const type of ["pointerup", "pointercancel"]) {
      window.addEventListener(type, (event) => this.#lift(event.pointerId));
    }
    box.addEventListener("contextmenu", (event) => event.preventDefault());
    box.addEventListener("keydown", (event) => this.#walk(event));
    box.addEventListener("keyup", (event) => {
      if (event.key === " " || event.key === "Enter") this.up(Number(event.target.dataset.pitch), "focus");
    });
    box.addEventListener("focusout", (event) => this.up(Number(event.target.dataset.pitch), "focus"));
    window.addEventListener("keydown", (event) => this.#type(event));
    window.addEventListener("keyup", (event) => this.#untype(event.code));
    window.addEventListener("blur", () => this.releaseAll());
    new ResizeObserver(() => this.#build()).observe(box);
  }

  /** Move by octaves; the lowest key stays a C of the piano. */
  shift(octaves) {
    this.base = Math.min(84, Math.max(24, this.base + 12 * octaves));
    this.releaseAll();
    this.built = 0;
    this.#build();
  }

  down(pitch, velocity, by) {
    if (!(pitch >= 0 && pitch <= 127)) return;
    let held = this.held.get(pitch);
    if (!held) {
      held = { release: strike(pitch, velocity), by: new Set() };
      this.held.set(pitch, held);
      this.keys.get(pitch)?.classList.add("down");
      this.onDown(pitch, velocity);
    }
    held.by.add(by);
  }

  up(pitch, by) {
    const held = this.held.get(pitch);
    if (!held?.by.delete(by) || held.by.size) return;
    held.release();
    this.held.delete(pitch);
    this.keys.get(pitch)?.classList.remove("down");
    this.onUp(pitch);
  }

  releaseAll() {
    for (const [pitch, held] of [...this.held]) {
      for (const by of [...held.by]) this.up(pitch, by);
    }
    this.pointers.clear();
    this.typed.clear();
  }

  #build() {
    const width = this.box.clientWidth;
    const whites = width > 1000 ? 29 : width > 640 ? 22 : width > 420 ? 15 : 12;
    if (!width || this.built === whites) return;
    this.built = whites;
    this.box.replaceChildren();
    this.keys.clear();
    let white = 0;
    for (let pitch = this.base; white < whites; pitch++) {
      const key = document.createElement("button");
      key.type = "button";
      key.dataset.pitch = pitch;
      key.tabIndex = -1;
      key.className = isBlack(pitch) ? "key black" : "key white";
      key.setAttribute("aria-label", pitchName(pitch));
      const letter = document.createElement("span");
      letter.ariaHidden = "true";
      letter.textContent = (this.typing && LETTERS[pitch - this.base]) || "";
      key.append(letter);
      if (isBlack(pitch)) {
        key.style.left = `${((white - 0.3) / whites) * 100}%`;
        key.style.width = `${(0.6 / whites) * 100}%`;
      } else white++;
      this.keys.set(pitch, key);
      this.box.append(key);
    }
    const last = this.box.lastElementChild;
    if (last.classList.contains("black")) { this.keys.delete(Number(last.dataset.pitch)); last.remove(); }
    (this.keys.get(60) ?? this.box.firstElementChild).tabIndex = 0;
  }

  /** Whether letters play. */
  setTyping(on) {
    this.typing = on;
    this.built = 0;
    this.#build();
  }

  #pointer(event) {
    if (event.button > 0) return;
    const key = document.elementFromPoint(event.clientX, event.clientY)?.closest?.(".key");
    const pitch = key && this.box.contains(key) ? Number(key.dataset.pitch) : null;
    const before = this.pointers.get(event.pointerId);
    if (event.type === "pointerdown") event.target.releasePointerCapture?.(event.pointerId);
    if (pitch === before) return;
    if (before !== undefined) this.up(before, `pointer${event.pointerId}`);
    this.pointers.set(event.pointerId, pitch);
    if (pitch === null) return;
    const box = key.getBoundingClientRect();
    const depth = (event.clientY - box.top) / box.height; // nearer to the edge is louder
    this.down(pitch, Math.round(50 + 60 * Math.min(Math.max(depth, 0), 1)), `pointer${event.pointerId}`);
  }

  #lift(pointer) {
    const pitch = this.pointers.get(pointer);
    this.pointers.delete(pointer);
    if (pitch != null) this.up(pitch, `pointer${pointer}`);
  }

  /** The piano is one stop of the Tab key; the arrows move within. */
  #walk(event) {
    const pitch = Number(event.target.dataset.pitch);
    if (event.key === " " || event.key === "Enter") {
      event.preventDefault();
      if (!event.repeat) this.down(pitch, TYPED_VELOCITY, "focus");
      return;
    }
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    const next = step && this.keys.get(pitch + step);
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  #type(event) {
    if (!this.typing || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input:not([type=range], [type=checkbox]), select, textarea")) return;
    if (event.code === "KeyZ" || event.code === "KeyX") {
      this.box.dispatchEvent(new CustomEvent("octave", { detail: event.code === "KeyZ" ? -1 : 1 }));
      return;
    }
    const offset = TYPED.indexOf(event.code);
    if (offset < 0) return;
    const pitch = this.base + offset;
    this.typed.set(event.code, pitch);
    this.down(pitch, TYPED_VELOCITY, event.code);
  }

  #untype(code) {
    const pitch = this.typed.get(code);
    if (pitch === undefined) return;
    this.typed.delete(code);
    this.up(pitch, code);
  }
}

/** Let a MIDI keyboard play too; resolves with the names of what is connected. */
export async function connectMidi(keyboard) {
  const access = await navigator.requestMIDIAccess();
  let pedal = false;
  const waiting = new Set(); // released while the pedal is down
  const hear = ({ data: [status, pitch, value] }) => {
    const kind = status & 0xf0;
    if (kind === 0x90 && value > 0) {
      keyboard.up(pitch, "midi");
      waiting.delete(pitch);
      keyboard.down(pitch, value, "midi");
    } else if (kind === 0x80 || kind === 0x90) {
      if (pedal) waiting.add(pitch);
      else keyboard.up(pitch, "midi");
    } else if (kind === 0xb0 && pitch === 64) {
      pedal = value >= 64;
      if (!pedal) { for (const held of waiting) keyboard.up(held, "midi"); waiting.clear(); }
    }
  };
  const connect = () => { for (const input of access.inputs.values()) input.onmidimessage = hear; };
  access.onstatechange = connect;
  connect();
  return [...access.inputs.values()].map((input) => input.name);
}
