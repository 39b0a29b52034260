// The page: the motif above, the settings beside it, the takes below.

import * as api from "./api.js";
import { Keyboard, connectMidi } from "./keyboard.js";
import { clock, noteOf, pitchName } from "./notes.js";
import { Live, Metronome } from "./live.js";
import { player } from "./player.js";
import { Recorder } from "./recorder.js";
import { Roll, pitchRange } from "./roll.js";
import { Takes } from "./takes.js";

const LONG_MOTIF_SECONDS = 60;
const FIRST_PART_SECONDS = 20;
const TITLES = {
  bach_bwv846_prelude_bars1_4: "Bach, prelude in C",
  c_major_scale: "C major scale",
  fur_elise_opening: "Für Elise",
  ode_to_joy_melody: "Ode to Joy",
  twinkle_melody: "Twinkle, twinkle",
};
const HINTS = {
  performance: "Piano, with timing and dynamics.",
  chorale: "Four voices on a grid of sixteenths.",
  accompaniment: "A piano that plays to the melody.",
};
const $ = (id) => document.getElementById(id);

let offered;
let takes;
let motif = null; // {id, title, seconds}
let cleared = null; // what the server said of a motif that was cleared
let recording = null; // a Recorder

// Lines of the page

function say(id, text) {
  $(id).textContent = text ?? "";
  $(id).hidden = !text;
}

function titleOf(name) {
  const known = TITLES[name.replaceAll("-", "_")];
  return known ?? name.replace(/\.midi?$/i, "");
}

// The motif

const motifRoll = new Roll($("motif-roll"), {
  label: "The motif",
  onSeek: (seconds) => motif && player.seek(motifSource, Math.min(seconds, motif.seconds)),
});
const motifSource = {
  get url() { return motif && offered.sound ? api.fileOf("primers", motif.id, "wav") : null; },
  start: 0,
  notes: () => [...motifRoll.notes.values()],
  seconds: () => motif?.seconds ?? 0,
  show(position, playing = true) {
    motifRoll.show({ playhead: position });
    if (playing && position !== null) motifRoll.reveal(position);
    $("motif-time").textContent = motif ? `${clock(position ?? 0)} / ${clock(motif.seconds)}` : "";
    $("motif-play").toggleAttribute("data-playing", playing);
    $("motif-play").setAttribute("aria-label", playing ? "Pause the motif" : "Play the motif");
  },
  busy: (busy) => $("motif-play").toggleAttribute("data-busy", busy),
};

async function loadMotif(request) {
  say("motif-error");
  let told;
  try {
    told = await request;
  } catch (error) {
    say("motif-error", error.message);
    return;
  }
  player.forget(motifSource);
  motif = { id: told.id, title: titleOf(told.title), seconds: told.seconds, told };
  motifRoll.clear();
  const notes = told.notes.map(noteOf);
  motifRoll.show({ ...pitchRange(notes), bars: told.bars, total: Math.max(told.seconds, 2) });
  motifRoll.add(notes);
  $("cut-from").value = "0";
  const long = told.seconds > LONG_MOTIF_SECONDS;
  $("cut-to").value = (long ? FIRST_PART_SECONDS : told.seconds).toFixed(1);
  const count = `${notes.length} ${notes.length === 1 ? "note" : "notes"}`;
  const more = told.warnings.length ? `; ${told.warnings.join("; ")}` : "";
  const part = long ? `; its first ${FIRST_PART_SECONDS} s will be continued` : "";
  $("motif-about").textContent = `${motif.title}: ${count}, ${told.seconds.toFixed(1)} s${part}${more}`;
  showCut();
  showMotif();
  motifSource.show(null, false);
}

/** Clear the motif; a second click brings it back. */
function clearOrUndo() {
  if (motif) {
    cleared = motif.told;
    clearMotif();
  } else loadMotif(cleared);
}

function clearMotif() {
  player.forget(motifSource);
  motif = null;
  motifRoll.clear();
  motifRoll.show({ low: 48, high: 84, total: 8, bars: [] });
  $("motif-about").textContent = "";
  say("motif-error");
  showMotif();
  motifSource.show(null, false);
}

function showMotif() {
  $("invitation").hidden = motif !== null || recording !== null;
  $("motif-play").disabled = motif === null;
  $("cut").hidden = motif === null;
  $("clear").hidden = recording !== null || (motif === null && cleared === null);
  $("clear").textContent = motif ? "Clear" : "Undo";
  showButton();
}

/** The part of the motif to continue, null for all of it. */
function cutOf() {
  if (!motif) return null;
  const from = Math.max(0, Number($("cut-from").value) || 0);
  const to = Number($("cut-to").value) || motif.seconds;
  if (from <= 0 && to >= Math.floor(motif.seconds * 10) / 10) return null;
  return [from, to];
}

function showCut() {
  $("cut-from").max = $("cut-to").max = motif.seconds.toFixed(1);
  motifRoll.show({ cut: cutOf() });
}

// Playing and recording

const keyboard = new Keyboard($("keys"), {
  onDown(pitch, velocity) { recording?.down(pitch, velocity); live.down(pitch, velocity); },
  onUp(pitch) { recording?.up(pitch); live.up(pitch); },
});

function record() {
  player.pause();
  cleared = motif?.told ?? cleared;
  clearMotif();
  recording = new Recorder();
  $("record").setAttribute("aria-pressed", "true");
  $("record").lastElementChild.textContent = "Use it";
  $("motif-about").textContent = "Recording: the first note starts the clock.";
  showMotif();
  requestAnimationFrame(drawRecording);
}

function drawRecording() {
  if (!recording) return;
  const { notes, seconds } = recording;
  if (notes.length) {
    motifRoll.show({ ...pitchRange(notes), total: Math.max(8, seconds * 1.15), edge: seconds });
    motifRoll.add(notes);
  }
  requestAnimationFrame(drawRecording);
}

function endRecording() {
  keyboard.releaseAll();
  const { rows } = recording;
  recording = null;
  $("record").setAttribute("aria-pressed", "false");
  $("record").lastElementChild.textContent = "Record";
  motifRoll.clear();
  $("motif-about").textContent = "";
  if (rows.length) loadMotif(api.uploadNotes(rows));
  showMotif();
}

// Live

const LIVE_SECONDS = [5, 15]; // the least and the most that is answered

const live = new Live(async (rows, seconds) => {
  const { id } = await api.uploadNotes(rows);
  const length = Math.round(Math.min(Math.max(seconds, LIVE_SECONDS[0]), LIVE_SECONDS[1]));
  return ask({ ...settings(), task: "continue", primer: id, from: null, to: null, seconds: length }, 1);
}, (text) => { $("live-about").textContent = text; });
const metronome = new Metronome();

// Composing

function showButton() {
  const accompanies = $("task").value === "accompany";
  $("go").textContent = accompanies ? "Accompany the motif" : motif ? "Continue the motif" : "Compose from nothing";
  $("go").disabled = !offered?.models.length || recording !== null || (accompanies && !motif);
}

function settings() {
  const cut = cutOf();
  return {
    task: $("task").value,
    model: $("model").value,
    primer: motif?.id ?? null,
    from: cut?.[0] ?? null,
    to: cut?.[1] ?? null,
    // An accompaniment is as long as its melody.
    seconds: $("task").value === "accompany" ? Math.ceil(motif?.seconds ?? 0) : Number($("seconds").value),
    temperature: Number($("temperature").value),
    top_p: Number($("top-p").value),
    closeness: Number($("closeness").value),
  };
}

/** The same settings as those of a take, the next seeds. */
async function more(card) {
  const asked = { ...card.asked };
  if (card.restored && asked.primer) { // the server has forgotten it, but the take begins with it
    const { id } = await api.takeAsPrimer(card.id);
    Object.assign(asked, { primer: id, from: 0, to: card.primerSeconds });
  }
  await ask(asked);
}

/** Takes with the seeds from the chosen one on; the last one's card comes back. */
async function ask(settings, count = Number($("count").value)) {
  say("compose-error");
  let card;
  const seed = Math.max(0, Math.floor(Number($("seed").value)) || 0);
  for (let i = 0; i < count; i++) {
    const asked = { ...settings, seed: seed + i };
    try {
      const { id, title } = await api.addTake(asked);
      card = takes.add(id, asked, { key: `${Date.now()}/${id}`, asked, title });
      if (i === 0) card.element.scrollIntoView({ block: "nearest", behavior: "smooth" });
    } catch (error) {
      say("compose-error", error.message);
      throw error;
    }
    $("seed").value = seed + i + 1; // the next click is another take
  }
  return card;
}

const chosenModel = () => offered?.models.find(({ name }) => name === $("model").value);

/** Only the models that can do what is chosen. */
function offerModels() {
  const able = offered.models.filter(({ tasks }) => tasks.includes($("task").value));
  const before = $("model").value;
  $("model").replaceChildren(...able.map(({ name }) => new Option(name, name)));
  if (able.some(({ name }) => name === before)) $("model").value = before;
  if ($("model").value !== before) adoptModel();
  showSettings();
}

/** A model comes with the settings that suit it; from there on they are the user's. */
function adoptModel() {
  const model = chosenModel();
  if (model) {
    slideTo($("temperature"), model.temperature);
    slideTo($("top-p"), model.top_p);
    slideTo($("closeness"), model.closeness);
  }
  showSettings();
}

function slideTo(slider, value) {
  slider.min = Math.min(slider.min, value);
  slider.max = Math.max(slider.max, value);
  slider.value = value;
}

function showSettings() {
  $("seconds-value").textContent = `${$("seconds").value} s`;
  $("temperature-value").textContent = Number($("temperature").value).toFixed(2);
  $("top-p-value").textContent = Number($("top-p").value).toFixed(2);
  $("closeness-value").textContent = Number($("closeness").value).toFixed(1);
  $("length").hidden = $("task").value === "accompany";
  $("model-hint").textContent = HINTS[chosenModel()?.kind] ?? "";
  showButton();
}

// Wiring

function wire() {
  $("open").onclick = () => $("file").click();
  $("file").onchange = () => {
    const [file] = $("file").files;
    if (file) loadMotif(sendFile(file));
    $("file").value = "";
  };
  $("motif-play").onclick = () => player.toggle(motifSource);
  $("clear").onclick = clearOrUndo;
  $("cut-from").oninput = $("cut-to").oninput = showCut;
  $("record").onclick = () => (recording ? endRecording() : record());
  const press = (id, on) => $(id).setAttribute("aria-pressed", on);
  $("live").onclick = () => { live.toggle(); press("live", live.on); };
  $("metronome").onclick = () => { metronome.toggle(() => Number($("beats").value)); press("metronome", metronome.on); };
  $("loop").onclick = () => { player.loop = !player.loop; press("loop", player.loop); };
  $("typing").onchange = () => keyboard.setTyping($("typing").checked);
  const shift = (octaves) => {
    keyboard.shift(octaves);
    $("octave").textContent = pitchName(keyboard.base);
  };
  $("lower").onclick = () => shift(-1);
  $("higher").onclick = () => shift(1);
  $("keys").addEventListener("octave", (event) => shift(event.detail));
  $("octave").textContent = pitchName(keyboard.base);

  $("compose").onsubmit = (event) => { event.preventDefault(); ask(settings()).catch(() => {}); };
  for (const id of ["seconds", "temperature", "top-p", "closeness", "count"]) $(id).oninput = showSettings;
  $("model").onchange = adoptModel;
  $("task").onchange = offerModels;
  $("undo").lastElementChild.onclick = async () => { await takes.undo(); showTakes(); };
  window.addEventListener("beforeunload", (event) => { if (takes?.running) event.preventDefault(); });
  $("dice").onclick = () => { $("seed").value = Math.floor(Math.random() * 1e6); };
  for (const button of $("layout").children) {
    button.onclick = () => {
      for (const other of $("layout").children) other.setAttribute("aria-pressed", other === button);
      $("take-list").classList.toggle("beside", button.dataset.layout === "beside");
    };
  }
  $("take-list").classList.add("beside");

  if (navigator.requestMIDIAccess) {
    $("midi-in").hidden = false;
    $("midi-in").onclick = async () => {
      const names = await connectMidi(keyboard).catch(() => null);
      $("midi-in").textContent = names === null ? "The browser refused MIDI"
        : names.length ? `Connected: ${names.join(", ")}` : "Waiting for a keyboard";
    };
  }
  wireDrop();
  // Space plays or pauses what was heard last, as everywhere else in music.
  window.addEventListener("keydown", (event) => {
    if (event.key !== " " || event.target.closest("button, input, select, a, [role=group].keys")) return;
    event.preventDefault();
    const card = takes && [...takes.cards.values()].find(({ element }) => element.contains(event.target));
    const source = player.source ?? card?.source ?? (motif ? motifSource : null);
    if (source && source.seconds() > 0) player.toggle(source);
  });
}

/** A file of the user; one that is too large is not even sent. */
async function sendFile(file) {
  if (file.size > offered.max_bytes) {
    throw new Error(`${file.name} is larger than ${offered.max_bytes >> 20} MB, too large for a motif.`);
  }
  return api.uploadFile(file);
}

function wireDrop() {
  const over = (event, on) => { event.preventDefault(); $("drop").classList.toggle("over", on); };
  // Anywhere on the page will do; a browser that opens the file instead would leave the page.
  window.addEventListener("dragover", (event) => over(event, true));
  window.addEventListener("dragleave", (event) => over(event, event.relatedTarget !== null));
  window.addEventListener("drop", (event) => {
    over(event, false);
    const [file] = event.dataTransfer.files;
    if (file) loadMotif(sendFile(file));
  });
}

function showTakes() {
  $("takes").hidden = takes.size === 0;
  $("layout").hidden = takes.size < 2;
  $("undo").hidden = !takes.removed.length;
  if (takes.removed.length) $("undo").firstElementChild.textContent = `Removed: ${takes.removed[0].title}.`;
}

async function begin() {
  wire();
  try {
    offered = await api.openPage();
    for (const [name, [min, max, step]] of Object.entries(offered.sliders)) {
      Object.assign($(name.replace("_", "-")), { min, max, step });
    }
    $("seconds").value = 30;
  } catch (error) {
    say("lost", error.message);
    return;
  }
  for (const option of $("task").options) {
    option.hidden = option.disabled = !offered.models.some(({ tasks }) => tasks.includes(option.value));
  }
  $("task").value = [...$("task").options].find(({ disabled }) => !disabled)?.value ?? "continue";
  for (const name of offered.motifs) {
    const chip = document.createElement("button");
    chip.type = "button";
    chip.textContent = titleOf(name);
    chip.onclick = () => loadMotif(api.chooseMotif(name));
    $("motifs").append(chip);
  }
  $("motifs").hidden = !offered.motifs.length;
  takes = new Takes($("take-list"), {
    sound: offered.sound,
    onMotif: (id) => { loadMotif(api.takeAsPrimer(id)); $("motif-title").scrollIntoView({ behavior: "smooth" }); },
    onMore: (card) => more(card).catch((error) => say("compose-error", error.message)),
    onError: (text) => say("compose-error", text),
    onChange: showTakes,
  });
  api.listen(
    (message) => takes.hear(message),
    () => say("lost", "The connection to the server is lost. Start it again, then reload this page."),
  );
  offerModels();
  await takes.restoreAll();
  document.body.dataset.ready = "true";
}

begin();
