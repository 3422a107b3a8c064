// LiveHeatmap: the map of the Fleet page, on a page of the site's own.

import { Firing } from "../alerts/firing.mjs";
import { describeSlot } from "../fleet/gpu_words.mjs";
import { Heatmap, partsOf } from "../fleet/heatmap.mjs";
import { make, say } from "../parts/dom.mjs";
import { metricOf, readMetricCatalogue } from "../parts/metric_catalogue.mjs";
import { LiveComponent } from "./live_component.mjs";

export default class LiveHeatmap extends LiveComponent {
  /** @type {Heatmap | undefined} */
  heatmap;
  /** @type {Firing | undefined} */
  firing;
  /** @type {FleetView} */
  view = { metric: "", group: "", sort: "name", filter: "", gpu: "", view: "map", at: "" };
  drawnKey = "";

  /**
   * @param {HTMLElement} place
   * @param {TellDash} tell
   */
  constructor(place, tell) {
    super(place, tell);
    this.book = readMetricCatalogue();
    this.hovered = make("p", { class: "site-hover" });
    this.parts = partsOf(place);
    place.append(this.hovered, this.said);
  }

  /**
   * @type {(properties: { metric: string, filter: string, group: string, height: number }) => void}
   */
  draw({ metric, filter, group, height }) {
    this.parts.stage.style.height = `${height}px`;
    this.view = { ...this.view, metric, group };
    this.follow(metric, filter);
  }

  /** @type {(feed: Feed) => Heatmap} */
  makeMap({ picture, live }) {
    const firing = new Firing(live);
    const heatmap = new Heatmap(
      picture,
      this.view,
      (slot) => this.describe(slot),
      firing,
      this.parts,
    );
    heatmap.addEventListener("open", ({ detail }) => {
      if (this.feed !== null) this.clicked(this.feed.picture, detail.slot);
    });
    heatmap.addEventListener("hover", ({ detail }) =>
      say(this.hovered, detail.slot === null ? "" : this.describe(detail.slot).spoken),
    );
    this.firing = firing;
    this.heatmap = heatmap;
    return heatmap;
  }

  /** @type {(slot: number) => SlotWords} */
  describe(slot) {
    if (this.feed === null) throw new Error("no map without a feed");
    const { picture } = this.feed;
    const alerts = this.firing?.of(picture.uuids[slot], picture.nodeId(slot)) ?? [];
    return describeSlot(picture, slot, {
      group: this.view.group,
      metric: metricOf(this.book, picture.metric ?? this.view.metric),
      reasons: this.book.reasons,
      alerts,
    });
  }

  redraw() {
    if (this.feed === null || this.feed.picture.count === 0) return;
    const {
      feed: { picture, live },
    } = this;
    const heatmap = this.heatmap ?? this.makeMap(this.feed);
    const key = JSON.stringify([
      this.view,
      picture.epoch,
      picture.size,
      picture.retired,
      picture.metric,
    ]);
    if (heatmap.picture !== picture || key !== this.drawnKey)
      Object.assign(heatmap, { picture, view: this.view, plan: null });
    heatmap.isFrozen = live.state !== "live";
    heatmap.refresh(key !== this.drawnKey);
    this.drawnKey = key;
  }
}
