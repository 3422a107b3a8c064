// A GPU at a past moment: its numbers, for the card beside the pointer and the drawer.

/** @import { FleetState } from "../live/fleet_state.mjs" */

import { metricOf } from "../parts/metric_catalogue.mjs";
import { get } from "../parts/api.mjs";
import { pastOf } from "./past_series.mjs";
import { factLines, make } from "../parts/dom.mjs";
import { clock, oneWord } from "../parts/format.mjs";
import { stateWords, valueWords } from "./gpu_words.mjs";

const LOOK_BACK_S = 3; // as the cells of the map
const MINUTE_S = 60;

export class GpuThen {
  /**
   * @param {MetricBook} book
   * @param {FleetState} picture
   */
  constructor(book, picture) {
    this.book = book;
    this.picture = picture;
  }

  /**
   * Reads the GPU of a slot at the moment that is shown; null: what is live is shown.
   * @type {(slot: number) => Promise<GpuOfThen | null>}
   */
  async read(slot) {
    const { picture } = this;
    if (picture.at === null) return null;
    return this.at(picture.uuids[slot], picture.at, {
      state: picture.state(slot),
      grainS: picture.grainS,
    });
  }

  /**
   * Fills the drawer with the GPU of a slot. `isWanted`: whether a GPU is still the drawer's once it is read.
   * @type {(slot: number, body: HTMLElement, isWanted: (uuid: string) => boolean) => Promise<void>}
   */
  async fill(slot, body, isWanted) {
    const { picture } = this;
    const { at, uuids } = picture;
    const whose = this.whose(slot);
    const key = `${uuids[slot]} ${at} ${whose}`;
    if (body.dataset.drawn === key) return;
    const gpu = await this.read(slot).catch(() => null);
    if (gpu === null || at === null || picture.at !== at || !picture.isThen || !isWanted(gpu.uuid))
      return;
    body.dataset.drawn = key;
    this.draw(body, gpu, clock(at), whose);
  }

  /**
   * "Owner: kavya · idle with memory held since 14:16 · leased to kavya"
   * @type {(slot: number) => string}
   */
  whose(slot) {
    const { picture } = this;
    if (!picture.isKnownThen) return "";
    const wasted = picture.wasted.get(slot);
    return [
      picture.hasTask(slot) ? `Owner: ${picture.ownerName(slot)}` : "No task",
      wasted === undefined ? "" : `idle with memory held since ${clock(wasted.since)}`,
      picture.leaseWords(slot),
    ]
      .filter(Boolean)
      .join(" · ");
  }

  /**
   * Shaped as the API shapes a GPU. `state`: of its cell; a number that nobody kept has no reason.
   * @type {(uuid: string, at: number, cell: { state: string, grainS: number }) =>
   *   Promise<GpuOfThen>}
   */
  async at(uuid, at, { state, grainS }) {
    const step = grainS > 1 ? MINUTE_S : 1;
    const start = grainS > 1 ? at - (at % MINUTE_S) : at - LOOK_BACK_S + 1;
    const keys = this.book.columns;
    const { t, columns } = await pastOf(
      uuid,
      keys,
      start,
      grainS > 1 ? start + MINUTE_S : at + 1,
      step,
      get,
    );
    /** @type {GpuOfThen} */
    const gpu = { uuid, at, state, values: {}, missing: {}, tasks: null, isThen: true };
    // What was sampled last decides, as in a cell: an older number does not stand in for a missing one.
    const last = t.findLastIndex((_, row) => keys.some((key) => columns[key][row] !== null));
    for (const key of keys) {
      const value = columns[key][last] ?? null;
      if (value === null) gpu.missing[key] = last < 0 ? "no sample" : "not reported";
      else gpu.values[key] = value;
    }
    return gpu;
  }

  /**
   * Draws it in the drawer, in place of everything live there.
   * @type {(body: HTMLElement, gpu: GpuOfThen, words: string, whose: string) => void}
   */
  draw(body, gpu, words, whose) {
    const rows = this.book.columns
      .map((key) => metricOf(this.book, key))
      .map((metric) => {
        const { text, unit, isMissing } = valueWords(gpu, metric, this.book);
        return [
          metric.label,
          make(
            "span",
            { class: isMissing ? "value words missing" : "value words" },
            oneWord({ text, unit }),
          ),
        ];
      });
    body.replaceChildren(
      make(
        "p",
        { class: "drawer-state stale", role: "status" },
        make("strong", {}, "Past: "),
        `${words}; ${gpu.state === "ok" ? "sampled" : stateWords(gpu.state)}`,
      ),
      ...(whose === "" ? [] : [make("p", { class: "drawer-whose" }, whose)]),
      make("p", { class: "not-here" }, "Tasks and limits need live data. Go live to act."),
      make(
        "p",
        {},
        make("button", { type: "button", class: "button go-live" }, "Go live"),
        " ",
        make(
          "a",
          {
            class: "button",
            href: `/history?${new URLSearchParams({ gpu: gpu.uuid, start: String(gpu.at - 900), end: String(gpu.at + 900) })}`,
          },
          "History around this time",
        ),
      ),
      make("dl", { class: "metrics" }, factLines(rows)),
    );
  }
}
