"""The page of a listening test: one HTML file that collects answers, offline.

It knows the study's name, the trials and their clips, and nothing of sources. A listener gets the
trials in an order of their own, so that those who stop early leave different ones out; the answers
stay in the browser until they are saved as JSON or CSV.
"""

import json
from collections.abc import Sequence
from html import escape

from music_transformer.evaluation.listening import Trial


def page(study: str, trials: Sequence[Trial], clips: Sequence[tuple[str, str]]) -> str:
    """The HTML of a study.

    Args:
        study: its name, which the answers carry.
        trials: of which only the names are told.
        clips: for each trial the addresses of A and B, relative to the page.
    """
    told = [
        {"trial": trial.name, "a": a, "b": b} for trial, (a, b) in zip(trials, clips, strict=True)
    ]
    data = json.dumps({"study": study, "trials": told}).replace("<", "\\u003c")
    return _PAGE.replace("@TITLE@", escape(study)).replace("@DATA@", data)


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>Listening test: @TITLE@</title>
<style>
:root { color-scheme: light; --ink: #222; --quiet: #666; --line: #d8d8d4; --strong: #0f4f8a; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 44rem; padding: 1.5rem 1rem 4rem; color: var(--ink);
  background: #fbfbf9; font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .5rem; }
p { margin: .5rem 0; } .quiet { color: var(--quiet); font-size: .9rem; }
.card { background: #fff; border: 1px solid var(--line); border-radius: .6rem; padding: 1rem;
  margin: 1rem 0; }
.clips { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); }
.clips h2 { margin: 0 0 .4rem; font-size: 1.1rem; } audio { width: 100%; }
fieldset { border: 0; padding: 0; margin: 0; display: grid; gap: .4rem; }
legend { padding: 0; margin-bottom: .5rem; font-weight: 600; }
label.choice { display: flex; gap: .6rem; align-items: center; padding: .55rem .7rem;
  border: 1px solid var(--line); border-radius: .4rem; cursor: pointer; }
label.choice:has(input:checked) { border-color: var(--strong); background: #eaf2fa; }
label.choice:has(input:disabled) { color: var(--quiet); cursor: default; }
input[type=text] { font: inherit; padding: .5rem; width: 100%; border: 1px solid var(--line);
  border-radius: .4rem; }
button { font: inherit; padding: .55rem 1.1rem; border-radius: .4rem; cursor: pointer;
  border: 1px solid var(--strong); background: #fff; color: var(--strong); }
button.main { background: var(--strong); color: #fff; } button:disabled { opacity: .4; }
.row { display: flex; gap: .6rem; flex-wrap: wrap; align-items: center; margin-top: 1rem; }
:focus-visible { outline: 3px solid #f0a030; outline-offset: 2px; }
progress { width: 100%; accent-color: var(--strong); } [hidden] { display: none !important; }
</style>
</head>
<body>
<main>
<section id="start">
  <h1>Which is more musical?</h1>
  <div class="card">
    <p>You will hear pairs of piano pieces, A and B. Both begin with the same few bars; then there
    is a short silence, and each goes on in its own way. Judge how each goes on: which one is more
    musical?</p>
    <p>Use headphones if you can, and listen to both to the end; you may listen as often as you
    like. You can stop at any time and save the answers you have given.</p>
    <form id="who">
      <label for="name">A name or number, so that your answers count once:</label>
      <input id="name" type="text" autocomplete="off" maxlength="60" required>
      <div class="row"><button class="main">Begin</button></div>
    </form>
  </div>
</section>
<section id="trial" hidden>
  <h1 id="count" tabindex="-1"></h1>
  <progress id="progress" max="1" value="0" aria-label="answered"></progress>
  <div class="card clips">
    <div><h2>A</h2><audio id="a" controls preload="auto" aria-label="Piece A"></audio></div>
    <div><h2>B</h2><audio id="b" controls preload="auto" aria-label="Piece B"></audio></div>
  </div>
  <div class="card">
    <fieldset id="choices"><legend>Which goes on more musically?</legend></fieldset>
    <p class="quiet" id="hint" role="status">Listen to both first.</p>
  </div>
  <div class="row">
    <button id="back">Back</button><button id="next" class="main">Next</button>
    <button id="stop">Stop and save</button>
  </div>
</section>
<section id="end" hidden>
  <h1 tabindex="-1" id="thanks">Thank you</h1>
  <div class="card">
    <p id="summary"></p>
    <p>Please save your answers and send the file to whoever asked you.</p>
    <div class="row">
      <button id="json" class="main">Save as JSON</button><button id="csv">Save as CSV</button>
      <button id="again">Back to the pieces</button>
    </div>
  </div>
</section>
</main>
<script>
"use strict";
const STUDY = @DATA@;
const CHOICES = [[-2, "A is much better"], [-1, "A is better"], [0, "Both are equal"],
  [1, "B is better"], [2, "B is much better"]];
const $ = (id) => document.getElementById(id);
let listener = "", order = [], at = 0, answers = {}, heard = {}, since = 0;

function shuffled(items, text) {  // the same listener, the same order
  let state = 2166136261;
  for (const letter of text) state = Math.imul(state ^ letter.codePointAt(0), 16777619) >>> 0;
  const random = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), 1 | state);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
  const result = items.slice();
  for (let i = result.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [result[i], result[j]] = [result[j], result[i]];
  }
  return result;
}
const place = () => `listening-test ${STUDY.study} ${listener}`;
function keep() { try { localStorage.setItem(place(), JSON.stringify(answers)); } catch {} }
function kept() {
  try { return JSON.parse(localStorage.getItem(place())) || {}; } catch { return {}; }
}
function show(section) {
  for (const id of ["start", "trial", "end"]) $(id).hidden = id !== section;
  for (const id of ["a", "b"]) $(id).pause();
}
function present() {
  const trial = order[at];
  show("trial");
  $("count").textContent = `Pair ${at + 1} of ${order.length}`;
  $("progress").value = Object.keys(answers).length / order.length;
  heard = { a: trial.trial in answers, b: trial.trial in answers };
  since = Date.now();
  for (const id of ["a", "b"]) $(id).src = trial[id];
  for (const input of document.querySelectorAll("input[name=score]"))
    input.checked = trial.trial in answers && answers[trial.trial].score === Number(input.value);
  $("back").disabled = at === 0;
  enable();
  $("count").focus();
}
function enable() {
  const ready = heard.a && heard.b;
  for (const input of document.querySelectorAll("input[name=score]")) input.disabled = !ready;
  $("hint").textContent = ready ? "" : "Listen to both first.";
  $("next").disabled = !(order[at].trial in answers);
  $("next").textContent = at + 1 === order.length ? "Finish" : "Next";
}
function finish() {
  show("end");
  const given = Object.keys(answers).length;
  $("summary").textContent = `You have answered ${given} of ${order.length} pairs.`;
  $("json").disabled = $("csv").disabled = given === 0;
  $("thanks").focus();
}
function rows() {
  return order.filter((t) => t.trial in answers)
    .map((t) => ({ trial: t.trial, ...answers[t.trial] }));
}
function save(text, type, suffix) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = `answers-${STUDY.study}-${listener}`.replace(/[^\\w.-]+/g, "_") + suffix;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
const quoted = (value) => `"${String(value).replace(/"/g, '""')}"`;

for (const [score, text] of CHOICES) {
  const label = document.createElement("label");
  label.className = "choice";
  const input = Object.assign(document.createElement("input"),
    { type: "radio", name: "score", value: score });
  input.addEventListener("change", () => {
    answers[order[at].trial] = { score, seconds: Math.round((Date.now() - since) / 1000) };
    keep();
    enable();
  });
  label.append(input, text);
  $("choices").append(label);
}
for (const [id, other] of [["a", "b"], ["b", "a"]]) {
  $(id).addEventListener("play", () => { $(other).pause(); });
  $(id).addEventListener("timeupdate", () => {
    if (!heard[id] && $(id).currentTime > 0.6 * $(id).duration) { heard[id] = true; enable(); }
  });
  $(id).addEventListener("ended", () => { heard[id] = true; enable(); });
  $(id).addEventListener("error", () => {
    if ($("trial").hidden) return;
    $("hint").textContent = "A clip cannot be played: tell whoever asked you.";
  });
}
$("who").addEventListener("submit", (event) => {
  event.preventDefault();
  listener = $("name").value.trim();
  if (!listener) return;
  order = shuffled(STUDY.trials, listener);
  answers = kept();
  at = Math.max(0, order.findIndex((t) => !(t.trial in answers)));
  present();
});
$("back").addEventListener("click", () => { at -= 1; present(); });
$("next").addEventListener("click", () => {
  if (at + 1 === order.length) finish(); else { at += 1; present(); }
});
$("stop").addEventListener("click", finish);
$("again").addEventListener("click", present);
$("json").addEventListener("click", () => {
  save(JSON.stringify({ study: STUDY.study, listener, answers: rows() }, null, 1),
    "application/json", ".json");
});
$("csv").addEventListener("click", () => {
  const lines = rows().map((row) =>
    [STUDY.study, listener, row.trial, row.score, row.seconds].map(quoted).join(","));
  save(["study,listener,trial,score,seconds", ...lines].join("\\n") + "\\n", "text/csv", ".csv");
});
</script>
</body>
</html>
"""
