// Stat: one of the fleet's totals.

import { anyFeed } from "../live/feeds.mjs";
import { make, say } from "../parts/dom.mjs";
import { amount, gibibytes, watts } from "../parts/format.mjs";
import { LiveComponent } from "./live_component.mjs";

const UNKNOWN = { text: "–", unit: "" };
/** @type {(value: number) => Quantity} */
const count = (value) => ({ text: amount(value), unit: "" });
/** @type {(value: number | null | undefined, words: (value: number) => Quantity) => Quantity} */
const wordsOf = (value, words) => (value === null || value === undefined ? UNKNOWN : words(value));
/** @type {Record<string, [string, (totals: Hub.Totals) => Quantity]>} */
const FIGURES = {
  free: ["Free GPUs", ({ gpus }) => count(gpus.free)],
  gpus: ["GPUs", ({ gpus }) => count(gpus.total)],
  lost: ["Lost GPUs", ({ gpus }) => count(gpus.lost + gpus.error)],
  tasks: ["Tasks", ({ tasks }) => count(tasks)],
  throttled: ["Throttled GPUs", ({ throttled }) => wordsOf(throttled, count)],
  util: [
    "Average utilization",
    ({ util_mean_pct: share }) => wordsOf(share, (value) => ({ text: amount(value), unit: "%" })),
  ],
  power: ["Power", ({ power_w: power }) => wordsOf(power, watts)],
  memory: ["Memory used", ({ mem_used_bytes: used }) => wordsOf(used, gibibytes)],
};

export default class Stat extends LiveComponent {
  /**
   * @param {HTMLElement} place
   * @param {TellDash} tell
   */
  constructor(place, tell) {
    super(place, tell);
    this.total = "";
    this.label = make("span", { class: "site-label" });
    this.figure = make("b", {}, "–");
    this.unit = make("span", {});
    place.append(this.label, make("span", { class: "site-figure" }, this.figure, this.unit));
    this.feed = anyFeed();
    this.feed.addEventListener("totals", () => this.redraw(), { signal: this.over.signal });
  }

  /** @type {(properties: { total: string, label?: string }) => void} */
  draw({ total, label }) {
    this.total = total;
    say(this.label, label || (FIGURES[total]?.[0] ?? `no total ${total}`));
    this.redraw();
  }

  redraw() {
    const totals = this.feed?.totals ?? null;
    if (totals === null || !(this.total in FIGURES)) return;
    const { text, unit } = FIGURES[this.total][1](totals);
    say(this.figure, text);
    say(this.unit, unit);
  }
}
