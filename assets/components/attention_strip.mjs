// AttentionStrip: the four numbers of the Fleet page, on a page of the site's own.

import { Firing } from "../alerts/firing.mjs";
import { Attention, drawSummary } from "../fleet/attention.mjs";
import { followOwnPaused } from "../fleet/own_paused.mjs";
import { SitesLine } from "../fleet/sites.mjs";
import { anyFeed } from "../live/feeds.mjs";
import { LiveComponent } from "./live_component.mjs";

export default class AttentionStrip extends LiveComponent {
  /**
   * @param {HTMLElement} place
   * @param {TellDash} tell
   */
  constructor(place, tell) {
    super(place, tell);
    const feed = anyFeed();
    this.feed = feed;
    const { picture, live } = feed;
    this.shown = new Attention(picture, live, new Firing(live));
    this.sites = new SitesLine();
    followOwnPaused();
    this.shown.addEventListener("open", ({ detail }) => {
      const slot = picture.slotOf.get(detail.uuid);
      if (slot !== undefined) this.clicked(picture, slot);
    });
    this.shown.addEventListener("seek", ({ detail }) =>
      location.assign(`/?${new URLSearchParams({ filter: detail.filter })}`),
    );
    document.addEventListener(
      "keydown",
      ({ key }) => {
        if (key === "Escape" && this.shown.lists.isOpen) this.shown.lists.close();
      },
      { signal: this.over.signal },
    );
    feed.addEventListener("totals", () => this.redraw(), { signal: this.over.signal });
  }

  draw() {
    this.redraw();
  }

  redraw() {
    if (this.feed === null || this.feed.totals === null) return;
    const { totals, picture } = this.feed;
    drawSummary(totals);
    this.sites.draw(totals.sites ?? []);
    picture.takeTotals(totals);
    this.shown.take(totals);
  }
}
