// LiveTable: the GPUs that a filter picks, those with the highest value first.

/** @import { FleetState } from "../live/fleet_state.mjs" */

import { cellText, stateWords } from "../fleet/gpu_words.mjs";
import { Lines, make, say, sayOrHide } from "../parts/dom.mjs";
import { oneWord } from "../parts/format.mjs";
import { metricOf, readMetricCatalogue } from "../parts/metric_catalogue.mjs";
import { LiveComponent } from "./live_component.mjs";

export default class LiveTable extends LiveComponent {
  /** @type {Metric | null} */
  metric = null;
  limit = 0;

  /**
   * @param {HTMLElement} place
   * @param {TellDash} tell
   */
  constructor(place, tell) {
    super(place, tell);
    this.book = readMetricCatalogue();
    this.head = make("th", { scope: "col", class: "number" });
    const body = make("tbody", {});
    /** @type {Lines<{ feed: Feed, slot: number, metric: Metric }>} */
    this.rows = new Lines(
      body,
      ({ feed, slot }) => feed.picture.uuids[slot],
      ({ feed, slot }) => this.row(feed, slot),
    );
    const heads = ["Node", "GPU", "Model", "Owner"].map((name) =>
      make("th", { scope: "col" }, name),
    );
    place.append(
      make(
        "table",
        { class: "site-rows" },
        make("thead", {}, make("tr", {}, ...heads, this.head)),
        body,
      ),
      this.said,
    );
  }

  /** @type {(properties: { metric: string, filter: string, limit: number }) => void} */
  draw({ metric, filter, limit }) {
    this.metric = metricOf(this.book, metric);
    this.limit = limit;
    this.follow(metric, filter);
  }

  redraw() {
    const { feed, metric } = this;
    if (feed === null || metric === null || !feed.picture.isKnown) return;
    const { picture } = feed;
    say(this.head, metric.label);
    /** @type {(slot: number) => number} */
    const value = (slot) =>
      picture.hasValue(slot) ? (picture.exact?.[slot] ?? picture.code(slot)) : -1;
    const picked = picture
      .present()
      .filter((slot) => picture.isLit(slot))
      .sort((a, b) => value(b) - value(a) || a - b);
    this.rows.draw(picked.slice(0, this.limit).map((slot) => ({ feed, slot, metric })));
    sayOrHide(
      this.said,
      feed.error ??
        (picked.length === 0
          ? "No GPU matches."
          : picked.length > this.limit
            ? `The first ${this.limit} of ${picked.length} GPUs.`
            : ""),
    );
  }

  /** @type {(feed: Feed, slot: number) => DrawnLine<{ feed: Feed, slot: number, metric: Metric }>} */
  row({ picture: { uuids } }, slot) {
    const uuid = uuids[slot];
    const click = () => {
      const at = this.feed?.picture.slotOf.get(uuid);
      if (this.feed !== null && at !== undefined) this.clicked(this.feed.picture, at);
    };
    const open = make("button", { type: "button", class: "as-link", onclick: click });
    const cells = Array.from({ length: 4 }, (_, at) =>
      make("td", { class: at === 3 ? "number" : null }),
    );
    return {
      root: make("tr", {}, make("th", { scope: "row" }, open), cells),
      draw: ({ feed, slot: at, metric }) => this.drawRow(feed.picture, at, metric, open, cells),
    };
  }

  /**
   * @type {(picture: FleetState, slot: number, metric: Metric, open: HTMLElement,
   *   cells: HTMLElement[]) => void}
   */
  drawRow(picture, slot, metric, open, cells) {
    say(open, picture.host(slot));
    const value = picture.hasValue(slot)
      ? oneWord(cellText(picture, slot, metric, this.book.reasons))
      : stateWords(picture.state(slot));
    [picture.placeName(slot), picture.modelName(slot), picture.ownerName(slot), value].forEach(
      (words, at) => say(cells[at], words),
    );
  }
}
