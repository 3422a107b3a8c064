// One Gpu at a moment that is over: its numbers, for the card beside the pointer and the drawer.

import { look } from "../parts/api.mjs";
import { make } from "../parts/dom.mjs";
import { stateWords, valueWords } from "./gpu_words.mjs";

const LOOK_BACK_S = 3; // as the cells of the map
const MINUTE_S = 60;
const MOST_ALSO = 16;

export class GpuThen {
  constructor(book) {
    this.book = book;
    this.kept = { path: null, answer: null };
  }

  /** Shaped as the API shapes a Gpu. `state`: of its cell; a number that nobody kept has no reason. */
  async at(uuid, at, { state, grainS }) {
    const step = grainS > 1 ? MINUTE_S : 1;
    const start = grainS > 1 ? at - (at % MINUTE_S) : at - LOOK_BACK_S + 1;
    const keys = this.book.columns.slice(0, MOST_ALSO + 1);
    const query = { gpu: uuid, metric: keys[0], also: keys.slice(1).join(","), start, end: grainS > 1 ? start + MINUTE_S : at + 1, step };
    const found = await this.ask(`series?${new URLSearchParams(query)}`);
    const gpu = { uuid, at, state, values: {}, missing: {}, tasks: null, isThen: true };
    // What was sampled last decides, as in a cell: an older number does not stand in for a missing one.
    const bands = new Map(keys.map((key) => [key, bandOf(found, key)]));
    const last = found.t.findLastIndex((_, row) => keys.some((key) => (bands.get(key)[row] ?? null) !== null));
    for (const key of keys) {
      const value = last < 0 ? null : bands.get(key)[last] ?? null;
      if (value === null) gpu.missing[key] = last < 0 ? "no sample" : "not reported";
      else gpu.values[key] = value;
    }
    return gpu;
  }

  ask(path) {
    if (this.kept.path !== path) this.kept = { path, answer: look(path) };
    this.kept.answer.catch(() => { this.kept = { path: null, answer: null }; });
    return this.kept.answer;
  }

  /** In the drawer, in the place of all that is live there. */
  draw(body, gpu, words) {
    const rows = this.book.columns.map((key) => this.book.metrics.get(key)).map((metric) => {
      const { text, unit, isMissing } = valueWords(gpu, metric, this.book);
      return make("div", {}, make("dt", {}, metric.label), make("dd", {}, make("span", { class: isMissing ? "value words missing" : "value words" }, `${text} ${unit}`.trim())));
    });
    body.replaceChildren(
      make("p", { class: "drawer-state stale", role: "status" }, make("strong", {}, "Past: "), `${words}; ${gpu.state === "ok" ? "sampled then" : stateWords(gpu.state)}`),
      make("p", { class: "not-here" }, "Tasks, owners and limits are told of now only. Go live to act."),
      make("p", {}, make("button", { type: "button", class: "button go-live" }, "Go live"), " ",
        make("a", { class: "button", href: `/history?${new URLSearchParams({ gpu: gpu.uuid, start: gpu.at - 900, end: gpu.at + 900 })}` }, "Its history around then")),
      make("dl", { class: "metrics" }, ...rows));
  }
}

/** Of bits and of counters there is no mean; of one second they are the same. */
function bandOf(found, key) {
  const band = key === found.metric ? found : found.also[key];
  return band === undefined ? [] : band.mean.map((value, row) => value ?? band.max[row]);
}
