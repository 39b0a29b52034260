// A small piano of three partials: what the keyboard sounds like at once, and what plays when the
// server has no sound font.

let context = null;
let output = null;

/** The audio context; browsers allow it only after a click or a key. */
export function audioContext() {
  if (context === null) {
    context = new AudioContext({ latencyHint: "interactive" });
    const limiter = context.createDynamicsCompressor();
    limiter.threshold.value = -14;
    limiter.connect(context.destination);
    output = context.createGain();
    output.gain.value = 0.5;
    output.connect(limiter);
  }
  if (context.state === "suspended") context.resume();
  return context;
}

/** Start a note at a time of the context; the function that comes back releases it. */
export function strike(pitch, velocity, when = null) {
  const audio = audioContext();
  const start = Math.max(when ?? 0, audio.currentTime);
  const frequency = 440 * 2 ** ((pitch - 69) / 12);
  const loudness = (velocity / 127) ** 1.6;
  const ring = 2.2 * Math.min(2.5, Math.max(0.25, (262 / frequency) ** 0.6));
  const voice = audio.createGain();
  voice.gain.setValueAtTime(0, start);
  voice.gain.linearRampToValueAtTime(loudness, start + 0.004);
  voice.gain.setTargetAtTime(loudness * 0.35, start + 0.01, 0.12);
  voice.gain.setTargetAtTime(0, start + 0.3, ring);
  const tone = audio.createBiquadFilter();
  tone.type = "lowpass";
  tone.frequency.value = Math.min(9000, frequency * (2 + 5 * loudness) + 500);
  tone.connect(voice).connect(output);
  const partials = [["triangle", 1, 0.5], ["sine", 2.003, 0.16], ["sine", 3.009, 0.07]].map(
    ([type, ratio, level]) => {
      const oscillator = audio.createOscillator();
      const gain = audio.createGain();
      oscillator.type = type;
      oscillator.frequency.value = Math.min(frequency * ratio, audio.sampleRate / 2);
      gain.gain.value = level;
      oscillator.connect(gain).connect(tone);
      oscillator.start(start);
      oscillator.stop(start + ring * 5);
      return oscillator;
    },
  );
  partials[0].onended = () => voice.disconnect();
  return (end = null) => {
    const at = Math.max(end ?? 0, audio.currentTime, start + 0.03);
    voice.gain.cancelScheduledValues(at);
    voice.gain.setTargetAtTime(0, at, 0.07);
    for (const oscillator of partials) oscillator.stop(at + 0.6);
  };
}
