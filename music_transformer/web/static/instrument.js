// The piano under the motif and what goes with it: metronome, loop, live, a MIDI keyboard.

import { Keyboard, connectMidi } from "./keyboard.js";
import { Live, Metronome } from "./live.js";
import { pitchName } from "./notes.js";
import { $, press } from "./page.js";
import { player } from "./player.js";

/**
 * @param {Motif} motif which may be recording
 * @param {{prepare: () => Promise, answer: (rows, seconds) => Promise<Card>}} model
 */
export function wireInstrument(motif, model) {
  const live = new Live(model, (text) => { $("live-about").textContent = text; });
  const metronome = new Metronome();
  const keyboard = new Keyboard($("keys"), {
    onDown(pitch, velocity) { motif.recording?.down(pitch, velocity); live.down(pitch, velocity); },
    onUp(pitch) { motif.recording?.up(pitch); live.up(pitch); },
  });
  $("record").addEventListener("click", () => keyboard.releaseAll(), { capture: true });
  $("live").onclick = () => { live.toggle(); press("live", live.on); };
  $("metronome").onclick = () => {
    metronome.toggle(() => Number($("beats").value));
    press("metronome", metronome.on);
  };
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
  if (!navigator.requestMIDIAccess) return;
  $("midi-in").hidden = false;
  $("midi-in").onclick = async () => {
    const names = await connectMidi(keyboard).catch(() => null);
    $("midi-in").textContent = names === null ? "The browser refused MIDI"
      : names.length ? `Connected: ${names.join(", ")}` : "Waiting for a keyboard";
  };
}
