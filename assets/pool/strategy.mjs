// How the pool decides: its order, where it puts what it gives out, and what another way would have done.

import { look, send } from "../parts/api.mjs";
import { choiceField, sentence } from "../parts/dialog.mjs";
import { button, byId, factLines, make, redraw, say } from "../parts/dom.mjs";
import { age, amount, plural } from "../parts/format.mjs";

const HEADS = ["Strategy", "Wait, median", "Wait, 95th percentile", "Makespan", "GPU time used", "Could not be placed"];
const ORDERS = {
  fair: "the team that held the fewest GPU-hours in the last weeks (an owner in no team counts alone) and in it the owner who did, then the oldest claim",
  fifo: "the oldest claim", smallest_first: "the claim for the fewest GPUs, then the oldest", largest_first: "the claim for the most GPUs, then the oldest", shortest_first: "the claim with the shortest term, then the oldest",
};
const BACKFILL = "A later claim may start earlier if it delays neither the first in the queue nor a reservation (backfill).";

export class Strategy {
  constructor(page) {
    Object.assign(this, { page, facts: make("dl", { class: "pool-facts" }), more: make("div", { class: "pool-would" }) });
    const details = make("details", {}, make("summary", {}, "What would another strategy have done?"), this.more);
    details.addEventListener("toggle", () => { if (details.open) this.open(); });
    byId("pool-strategy").append(this.facts, details);
  }

  draw({ strategy, queue_order: order }) {
    redraw(this.facts, `${strategy} ${order}`, () => factLines([["Order", `Higher priority first, then ${ORDERS[order] ?? order}. ${BACKFILL}`],
      ["Placement", make("code", {}, strategy), "; several GPUs come from one NVLink clique if possible, otherwise from one NUMA node."]]));
  }

  async open() {
    if (this.more.childElementCount > 0) return;
    try {
      const { items } = await look("pool/strategies");
      const words = make("dl", { class: "pool-facts" }, ...factLines(items.map(({ name, words: what, is_used: isUsed }) => [name, `${sentence(what)}${isUsed ? " In use." : ""}`])));
      this.more.replaceChildren(words, ...(this.page.may("operator") ? this.comparison(items) : []));
    } catch (error) {
      this.more.replaceChildren(make("p", {}, sentence(error.message)));
    }
  }

  comparison(items) {
    const used = items.find((one) => one.is_used)?.name;
    const others = items.filter((one) => !one.is_used).map(({ name }) => [name, name]);
    const choice = choiceField("strategy", `Compare ${used} with`, others, others[0]?.[0] ?? "");
    const outcome = make("div", { role: "status" });
    const compare = async () => {
      say(outcome, "Simulating the last 7 days …");
      const answer = await send("POST", "pool/simulations", { strategies: [used, choice.querySelector("select").value], days: 7 }).catch((error) => ({ why: error.message }));
      outcome.replaceChildren(answer.why === undefined ? outcomeOf(answer) : make("p", {}, sentence(answer.why)));
    };
    return [make("div", { class: "pool-compare" }, choice, button("Compare", compare)), outcome];
  }
}

function outcomeOf({ claims, items }) {
  if (claims === 0) return make("p", {}, "No lease has ended in the last 7 days: nothing to compare.");
  const row = (one) => [one.strategy, age(one.wait_p50_s), age(one.wait_p95_s), age(one.makespan_s), `${amount(one.used_pct, 1)} %`, amount(one.never)];
  return make("div", {}, make("p", {}, `${plural(claims, "lease")} of the last 7 days, simulated on the current nodes:`), make("div", { class: "rows-place" },
    make("table", { class: "rows", "aria-label": "Strategies compared" },
      make("thead", {}, make("tr", {}, ...HEADS.map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...items.map((one) => make("tr", {}, ...row(one).map((words, at) => make("td", { "data-head": HEADS[at] }, words))))))));
}
