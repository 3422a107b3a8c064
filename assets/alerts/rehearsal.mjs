// A rule over the past: the hub says when it would have fired, of whom, and what its ladder would have done
// (dashboard/pages/rehearsal_words.py).

import { Graph } from "../figures/graph.mjs";
import { look, send } from "../parts/api.mjs";
import { sentence } from "../parts/dialog.mjs";
import { button, make, options, say, show } from "../parts/dom.mjs";
import { amount } from "../parts/format.mjs";
import { put } from "../reading/patch.mjs";

const SPANS = [["3600", "the last hour"], ["86400", "the last day"], ["604800", "the last week"], ["2592000", "the last 30 days"]];
const AGAIN_MS = 700;
const timeZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC";
let graph = null; // one for all forms: it is Dash's, and goes from one to the next

/** `draft()`: the rule as it is being written, or why there is none as an Error. */
export class Rehearsal {
  constructor(draft) {
    this.draft = draft;
    this.span = make("select", { "aria-label": "Rehearse over" }, options(SPANS));
    this.span.value = "86400";
    this.button = button("Rehearse", () => this.begin());
    this.words = make("output", { class: "rehearsal-words", role: "status" }, "No actions are taken and no notifications are sent.");
    graph ??= new Graph("rehearsal-graph");
    show(graph.place, false);
    this.list = make("ul", { class: "rehearsal-list" });
    this.root = make("div", { class: "rehearsal wide" }, make("div", { class: "rehearsal-ask" }, this.span, this.button), this.words, graph.place, this.list);
  }

  async begin() {
    this.button.disabled = true;
    try {
      const rule = await this.draft();
      const end = Date.now() / 1000;
      let found = await send("POST", "rules/backtests", { rule, start: end - Number(this.span.value), end });
      while (found.state === "running" && this.root.isConnected) {
        say(this.words, `Rehearsing … ${amount(100 * found.progress)} %`);
        await new Promise((done) => setTimeout(done, AGAIN_MS));
        found = await look(`rules/backtests/${encodeURIComponent(found.id)}`);
      }
      if (found.state !== "running") await this.draw(found);
    } catch (error) {
      say(this.words, sentence(error.message));
    } finally {
      this.button.disabled = false;
    }
  }

  /** The figure, and below it the same in words: the hub writes both. */
  async draw({ id, end }) {
    show(graph.place, false);
    const { is_drawn: isDrawn, parts } = await graph.ask({ id, zone: timeZone() }, { height: 0, at: end });
    put(this.words, parts["rehearsal-words"]);
    put(this.list, parts["rehearsal-list"]);
    show(graph.place, isDrawn);
  }
}
