// The motif: loaded, dropped, played or recorded; the part of it that is continued; its roll and sound.

import * as api from "./api.js";
import { clock, noteOf } from "./notes.js";
import { $, press, say } from "./page.js";
import { player } from "./player.js";
import { Recorder } from "./recorder.js";
import { Roll, pitchRange } from "./roll.js";

const LONG_SECONDS = 60;
const FIRST_PART_SECONDS = 20;
const TITLES = {
  bach_bwv846_prelude_bars1_4: "Bach, prelude in C",
  c_major_scale: "C major scale",
  fur_elise_opening: "Für Elise",
  ode_to_joy_melody: "Ode to Joy",
  twinkle_melody: "Twinkle, twinkle",
};

function titleOf(name) {
  return TITLES[name.replaceAll("-", "_")] ?? name.replace(/\.(midi?|kar|rmi)$/i, "");
}

export class Motif {
  #told = null; // what the server said of it
  #cleared = null; // the same of one that was cleared
  recording = null; // a Recorder

  /** @param {() => void} onChange called when it comes, goes, or is recorded */
  constructor(onChange) {
    this.onChange = onChange;
    this.roll = new Roll($("motif-roll"), {
      label: "The motif",
      onSeek: (seconds) => this.#told && player.seek(this.source, Math.min(seconds, this.seconds)),
    });
    const motif = this;
    this.source = {
      get url() { return motif.#told && motif.sound ? api.fileOf("primers", motif.id, "wav") : null; },
      start: 0,
      notes: () => [...this.roll.notes.values()],
      seconds: () => this.seconds,
      show: (position, playing = true) => this.#position(position, playing),
      busy: (busy) => $("motif-play").toggleAttribute("data-busy", busy),
    };
    $("open").onclick = () => $("file").click();
    $("file").onchange = () => {
      const [file] = $("file").files;
      if (file) this.load(this.#send(file));
      $("file").value = "";
    };
    $("motif-play").onclick = () => player.toggle(this.source);
    $("clear").onclick = () => (this.#told ? this.#clear() : this.load(this.#cleared));
    $("cut-from").oninput = $("cut-to").oninput = () => { this.#showCut(); this.onChange(); };
    $("record").onclick = () => (this.recording ? this.#use() : this.#record());
    this.#wireDrop();
  }

  get id() { return this.#told?.id ?? null; }
  get seconds() { return this.#told?.seconds ?? 0; }

  /** The part to continue as [from, to], null for all of it. */
  get cut() {
    if (!this.#told) return null;
    const from = Math.max(0, Number($("cut-from").value) || 0);
    const to = Number($("cut-to").value) || this.seconds;
    return from <= 0 && to >= Math.floor(this.seconds * 10) / 10 ? null : [from, to];
  }

  /** Chips for the motifs that the server has. */
  offer({ motifs, sound, max_bytes: most }) {
    this.sound = sound;
    this.most = most;
    for (const name of motifs) {
      const chip = document.createElement("button");
      chip.type = "button";
      chip.textContent = titleOf(name);
      chip.onclick = () => this.load(api.chooseMotif(name));
      $("motifs").append(chip);
    }
    $("motifs").hidden = !motifs.length;
  }

  /** Show what the server says of a motif, or why it has none. */
  async load(request) {
    say("motif-error");
    let told;
    try {
      told = await request;
    } catch (error) {
      say("motif-error", error.message);
      return;
    }
    player.forget(this.source);
    this.#told = told;
    this.roll.clear();
    const notes = told.notes.map(noteOf);
    this.roll.show({ ...pitchRange(notes), bars: told.bars, total: Math.max(told.seconds, 2) });
    this.roll.add(notes);
    $("cut-from").value = "0";
    const long = told.seconds > LONG_SECONDS;
    $("cut-to").value = (long ? FIRST_PART_SECONDS : told.seconds).toFixed(1);
    const count = `${notes.length} ${notes.length === 1 ? "note" : "notes"}`;
    const more = told.warnings.length ? `; ${told.warnings.join("; ")}` : "";
    const part = long ? `; its first ${FIRST_PART_SECONDS} s will be continued` : "";
    $("motif-about").textContent = `${titleOf(told.title)}: ${count}, ${told.seconds.toFixed(1)} s${part}${more}`;
    this.#showCut();
    this.#show();
  }

  /** Take it away; a second click brings it back. */
  #clear() {
    this.#cleared = this.#told ?? this.#cleared;
    player.forget(this.source);
    this.#told = null;
    this.roll.clear();
    this.roll.show({ low: 48, high: 84, total: 8, bars: [] });
    $("motif-about").textContent = "";
    say("motif-error");
    this.#show();
  }

  #show() {
    const there = this.#told !== null, recording = this.recording !== null;
    $("invitation").hidden = there || recording;
    $("motif-play").disabled = !there;
    $("cut").hidden = !there;
    $("clear").hidden = recording || (!there && !this.#cleared);
    $("clear").textContent = there ? "Clear" : "Undo";
    this.#position(null, false);
    this.onChange();
  }

  #showCut() {
    $("cut-from").max = $("cut-to").max = this.seconds.toFixed(1);
    this.roll.show({ cut: this.cut });
  }

  #position(position, playing) {
    this.roll.show({ playhead: position });
    if (playing && position !== null) this.roll.reveal(position);
    $("motif-time").textContent = this.#told ? `${clock(position ?? 0)} / ${clock(this.seconds, Math.round)}` : "";
    $("motif-play").toggleAttribute("data-playing", playing);
    $("motif-play").setAttribute("aria-label", playing ? "Pause the motif" : "Play the motif");
  }

  #record() {
    player.pause();
    this.#clear();
    this.recording = new Recorder();
    press("record", true);
    $("record").lastElementChild.textContent = "Use it";
    $("motif-about").textContent = "Recording: the first note starts the clock.";
    this.#show();
    this.#drawRecording();
  }

  #drawRecording() {
    if (!this.recording) return;
    const { notes, seconds } = this.recording;
    if (notes.length) {
      this.roll.show({ ...pitchRange(notes), total: Math.max(8, seconds * 1.15), edge: seconds });
      this.roll.add(notes);
    }
    requestAnimationFrame(() => this.#drawRecording());
  }

  #use() {
    const { rows } = this.recording;
    this.recording = null;
    press("record", false);
    $("record").lastElementChild.textContent = "Record";
    this.roll.clear();
    $("motif-about").textContent = "";
    if (rows.length) this.load(api.uploadNotes(rows));
    this.#show();
  }

  /** A file of the user; one that is too large is not even sent. */
  async #send(file) {
    if (file.size > this.most) {
      throw new Error(`${file.name} is larger than ${this.most >> 20} MB, too large for a motif.`);
    }
    return api.uploadFile(file);
  }

  /** Anywhere on the page will do; a browser that opens the file instead would leave the page. */
  #wireDrop() {
    const over = (event, on) => { event.preventDefault(); $("drop").classList.toggle("over", on); };
    window.addEventListener("dragover", (event) => over(event, true));
    window.addEventListener("dragleave", (event) => over(event, event.relatedTarget !== null));
    window.addEventListener("drop", (event) => {
      over(event, false);
      const [file] = event.dataTransfer.files;
      if (file) this.load(this.#send(file));
    });
  }
}
