// LiveTable: the GPUs that a filter picks, those with the highest value first.

import { cellText, stateWords } from "../fleet/gpu_words.mjs";
import { Lines, make, say, sayOrHide } from "../parts/dom.mjs";
import { oneWord } from "../parts/format.mjs";
import { readMetricCatalogue } from "../parts/metric_catalogue.mjs";
import { LiveComponent } from "./live_component.mjs";

export default class LiveTable extends LiveComponent {
  constructor(place, tell) {
    super(place, tell);
    this.book = readMetricCatalogue();
    this.head = make("th", { scope: "col", class: "number" });
    const body = make("tbody", {});
    this.rows = new Lines(body, (slot) => this.feed.picture.uuids[slot], (slot) => this.row(slot));
    const heads = ["Node", "GPU", "Model", "Owner"].map((name) => make("th", { scope: "col" }, name));
    place.append(make("table", { class: "site-rows" }, make("thead", {}, make("tr", {}, ...heads, this.head)), body), this.said);
  }

  draw({ metric, filter, limit }) {
    Object.assign(this, { metric: this.book.metrics.get(metric), limit });
    this.follow(metric, filter);
  }

  redraw() {
    const { picture } = this.feed ?? {};
    if (picture === undefined || !picture.isKnown) return;
    say(this.head, this.metric.label);
    const value = (slot) => (picture.hasValue(slot) ? picture.exact?.[slot] ?? picture.code(slot) : -1);
    const picked = picture.present().filter((slot) => picture.isLit(slot)).sort((a, b) => value(b) - value(a) || a - b);
    this.rows.draw(picked.slice(0, this.limit));
    sayOrHide(this.said, this.feed.error ?? (picked.length === 0 ? "No GPU matches." : picked.length > this.limit ? `The first ${this.limit} of ${picked.length} GPUs.` : ""));
  }

  row(slot) {
    const uuid = this.feed.picture.uuids[slot];
    const open = make("button", { type: "button", class: "as-link", onclick: () => this.clicked(this.feed.picture, this.feed.picture.slotOf.get(uuid)) });
    const cells = Array.from({ length: 4 }, (_, at) => make("td", { class: at === 3 ? "number" : null }));
    return { root: make("tr", {}, make("th", { scope: "row" }, open), cells), draw: (at) => this.drawRow(at, open, cells) };
  }

  drawRow(slot, open, cells) {
    const { picture } = this.feed;
    say(open, picture.host(slot));
    const value = picture.hasValue(slot) ? oneWord(cellText(picture, slot, this.metric, this.book.reasons)) : stateWords(picture.state(slot));
    [picture.placeName(slot), picture.modelName(slot), picture.ownerName(slot), value].forEach((words, at) => say(cells[at], words));
  }
}
