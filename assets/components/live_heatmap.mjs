// LiveHeatmap: the map of the Fleet page, on a page of the site's own.

import { Firing } from "../alerts/firing.mjs";
import { describeSlot } from "../fleet/gpu_words.mjs";
import { Heatmap, partsOf } from "../fleet/heatmap.mjs";
import { make, say } from "../parts/dom.mjs";
import { readMetricCatalogue } from "../parts/metric_catalogue.mjs";
import { LiveComponent } from "./live_component.mjs";

export default class LiveHeatmap extends LiveComponent {
  constructor(place, tell) {
    super(place, tell);
    this.book = readMetricCatalogue();
    this.hovered = make("p", { class: "site-hover" });
    this.parts = partsOf(place);
    place.append(this.hovered, this.said);
  }

  draw({ metric, filter, group, height }) {
    this.parts.stage.style.height = `${height}px`;
    this.view = { metric, group, sort: "name" };
    this.follow(metric, filter);
  }

  makeMap() {
    const { picture, live } = this.feed;
    this.firing = new Firing(live);
    this.heatmap = new Heatmap(picture, this.view, (slot) => this.describe(slot), this.firing, this.parts);
    this.heatmap.addEventListener("open", ({ detail }) => this.clicked(this.feed.picture, detail.slot));
    this.heatmap.addEventListener("hover", ({ detail }) => say(this.hovered, detail.slot === null ? "" : this.describe(detail.slot).spoken));
  }

  describe(slot) {
    const { picture } = this.feed;
    return describeSlot(picture, slot, { group: this.view.group, metric: this.book.metrics.get(picture.metric ?? this.view.metric), reasons: this.book.reasons, alerts: this.firing.of(picture.uuids[slot], picture.nodeId(slot)) });
  }

  redraw() {
    if (this.feed === null || this.feed.picture.count === 0) return;
    if (this.heatmap === undefined) this.makeMap();
    const { heatmap, feed: { picture, live } } = this;
    const drawn = JSON.stringify([this.view, picture.epoch, picture.size, picture.retired, picture.metric]);
    if (heatmap.picture !== picture || drawn !== this.drawn) Object.assign(heatmap, { picture, view: this.view, plan: null });
    heatmap.isFrozen = live.state !== "live";
    heatmap.refresh(drawn !== this.drawn);
    this.drawn = drawn;
  }
}
