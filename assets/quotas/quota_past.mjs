// What a holder had of a quota over the last day or week, beside what it gave then: a dialog around the hub's figure
// (dashboard/pages/quota_past.py).

import { Graph } from "../figures/graph.mjs";
import { sentence, tell } from "../parts/dialog.mjs";
import { byId, make, say, show } from "../parts/dom.mjs";
import { nowS } from "../parts/time_ranges.mjs";
import { LIMITS } from "./quota_bars.mjs";

const SPANS = [["3h", "3 hours"], ["24h", "24 hours"], ["7d", "7 days"]];
const FIRST = 1;
const HEIGHT_PX = 180;
let graph = null;

/** `one`: as the API gives a balance. */
export function openPast(one) {
  graph ??= new Graph("quota-graph");
  const [figure, summary] = [byId("quota-graph"), make("p", { role: "status" }, "Loading …")];
  show(figure, false);
  const choices = SPANS.map(([last, words]) => make("button", { type: "button", class: "button small", "aria-pressed": "false", onclick: () => draw(last) }, words));
  const links = one.users.length === 1 && one.users[0] === one.holder ? [make("a", { href: `/history?${new URLSearchParams({ owner: `user:${one.holder}`, last: "24h" })}` }, `Total usage of ${one.holder}`)] : [];
  const dialog = tell(`${one.holder}: ${LIMITS[one.limit].name} of ${one.quota}`, make("p", { class: "quota-past-now" }, `${one.sentence}.`),
    make("div", { class: "quota-spans", role: "group", "aria-label": "How far back" }, ...choices, ...links), make("div", { class: "quota-past" }, figure, summary));
  dialog.classList.add("wide");
  dialog.addEventListener("close", () => byId("quota-figure").append(figure));
  let chosen = null;
  async function draw(last) {
    chosen = last;
    SPANS.forEach(([each], at) => choices[at].setAttribute("aria-pressed", String(each === last)));
    const facts = await graph.ask({ quota: one.quota, holder: one.holder, limit: one.limit, last, most: one.most }, { height: HEIGHT_PX, at: nowS() }).catch((error) => ({ problem: sentence(error.message) }));
    if (chosen !== last || !dialog.open) return;
    show(figure, facts.problem === undefined);
    say(summary, facts.problem ?? facts.words);
  }
  draw(SPANS[FIRST][0]);
}
