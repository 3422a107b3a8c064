// AttentionStrip: the four numbers of the Fleet page, on a page of the site's own.

import { Firing } from "../alerts/firing.mjs";
import { Attention, drawSummary } from "../fleet/attention.mjs";
import { followOwnPaused } from "../fleet/own_paused.mjs";
import { SitesLine } from "../fleet/sites.mjs";
import { anyFeed } from "../live/feeds.mjs";
import { LiveComponent } from "./live_component.mjs";

export default class AttentionStrip extends LiveComponent {
  constructor(place, tell) {
    super(place, tell);
    this.feed = anyFeed();
    const { picture, live } = this.feed;
    this.shown = new Attention(picture, live, new Firing(live));
    this.sites = new SitesLine();
    followOwnPaused();
    this.shown.addEventListener("open", ({ detail }) => this.clicked(picture, picture.slotOf.get(detail.uuid)));
    this.shown.addEventListener("seek", ({ detail }) => location.assign(`/?${new URLSearchParams({ filter: detail.filter })}`));
    document.addEventListener("keydown", ({ key }) => key === "Escape" && this.shown.lists.isOpen && this.shown.lists.close(), { signal: this.over.signal });
    this.feed.addEventListener("totals", () => this.redraw(), { signal: this.over.signal });
  }

  draw() {
    this.redraw();
  }

  redraw() {
    const { totals, picture } = this.feed ?? {};
    if (!totals) return;
    drawSummary(totals);
    this.sites.draw(totals.sites ?? []);
    picture.takeTotals(totals);
    this.shown.take(totals);
  }
}
