// The page: the motif above, the settings beside it, the takes below.

import * as api from "./api.js";
import { wireInstrument } from "./instrument.js";
import { Motif } from "./motif.js";
import { $, say } from "./page.js";
import { player } from "./player.js";
import { Settings } from "./settings.js";
import { Takes } from "./takes.js";

const LIVE_SECONDS = [5, 15]; // the least and the most that is answered to a phrase

const motif = new Motif(() => settings.show());
const settings = new Settings(motif);
let takes = null;

wireInstrument(motif, {
  prepare: () => api.prepareModel(settings.continuing),
  async answer(rows, seconds) {
    const { id } = await api.uploadNotes(rows);
    const length = Math.round(Math.min(Math.max(seconds, LIVE_SECONDS[0]), LIVE_SECONDS[1]));
    const phrase = { task: "continue", model: settings.continuing, primer: id, from: null, to: null, seconds: length };
    const [card] = await ask({ ...settings.inKey, ...settings.asked, ...phrase }, 1);
    return card;
  },
});

/** Takes with the seeds from the chosen one on, composed side by side; their cards come back. */
async function ask(wanted, count = settings.count) {
  say("compose-error");
  try {
    const added = await api.addTakes({ ...wanted, seed: settings.seed, count });
    const cards = added.map(({ id, title, seed }) => {
      const asked = { ...wanted, seed };
      return takes.add(id, asked, { key: `${Date.now()}/${id}`, asked, title });
    });
    settings.seed += count; // the next click gives others
    cards[0].element.scrollIntoView({ block: "nearest", behavior: "smooth" });
    return cards;
  } catch (error) {
    say("compose-error", error.message);
    throw error;
  }
}

/** The same settings as those of a take, the next seeds. */
async function more(card) {
  const asked = { ...card.asked };
  if (card.restored && asked.primer) { // the server has forgotten it, but the take begins with it
    const { id } = await api.takeAsPrimer(card.id);
    asked.primer = id;
    if (asked.task === "continue") Object.assign(asked, { from: 0, to: card.primerSeconds });
  }
  await ask(asked);
}

function showTakes() {
  $("takes").hidden = takes.size === 0;
  $("layout").hidden = takes.size < 2;
  $("undo").hidden = !takes.removed.length;
  if (takes.removed.length) $("undo").firstElementChild.textContent = `Removed: ${takes.removed[0].title}.`;
}

function wire() {
  $("compose").onsubmit = (event) => { event.preventDefault(); ask(settings.asked).catch(() => {}); };
  $("undo").lastElementChild.onclick = async () => { await takes.undo(); showTakes(); };
  window.addEventListener("beforeunload", (event) => { if (takes?.running) event.preventDefault(); });
  for (const button of $("layout").children) {
    button.onclick = () => {
      for (const other of $("layout").children) other.setAttribute("aria-pressed", other === button);
      $("take-list").classList.toggle("beside", button.dataset.layout === "beside");
    };
  }
  $("take-list").classList.add("beside");
  // Space plays or pauses what was heard last, as everywhere else in music.
  window.addEventListener("keydown", (event) => {
    if (event.key !== " " || event.target.closest("button, input, select, summary, a, [role=group].keys")) return;
    event.preventDefault();
    const card = takes && [...takes.cards.values()].find(({ element }) => element.contains(event.target));
    const source = player.source ?? card?.source ?? (motif.id ? motif.source : null);
    if (source && source.seconds() > 0) player.toggle(source);
  });
}

async function begin() {
  wire();
  let offered;
  try {
    offered = await api.openPage();
  } catch (error) {
    say("lost", error.message);
    return;
  }
  motif.offer(offered);
  settings.offer(offered);
  takes = new Takes($("take-list"), {
    sound: offered.sound,
    onMotif: (id) => { motif.load(api.takeAsPrimer(id)); $("motif-title").scrollIntoView({ behavior: "smooth" }); },
    onMore: (card) => more(card).catch((error) => say("compose-error", error.message)),
    onError: (text) => say("compose-error", text),
    onChange: showTakes,
  });
  api.listen(
    (message) => takes.hear(message),
    () => say("lost", "The connection to the server is lost. Start it again, then reload this page."),
  );
  await takes.restoreAll();
  document.body.dataset.ready = "true";
}

begin();
