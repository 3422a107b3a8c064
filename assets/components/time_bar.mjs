// TimeBar: the moment that is looked at, on a page of the site's own; `at` goes to its callbacks.

import { FleetLoad } from "../fleet/fleet_load.mjs";
import { TimeBar as Bar } from "../fleet/time_bar.mjs";
import { anyFeed, release } from "../live/feeds.mjs";

const EVERY_MS = 60_000;

export default class TimeBar {
  /**
   * @param {HTMLElement} place
   * @param {TellDash} tell
   */
  constructor(place, tell) {
    this.feed = anyFeed();
    this.bar = new Bar();
    this.load = new FleetLoad(this.bar);
    this.over = new AbortController();
    this.bar.addEventListener("move", ({ detail }) => tell({ at: detail.at }));
    this.bar.addEventListener("range", () => this.load.look());
    this.feed.addEventListener("cells", () => this.bar.link(this.feed.live.state === "live"), {
      signal: this.over.signal,
    });
    this.timer = setInterval(() => {
      if (!document.hidden) this.load.look();
    }, EVERY_MS);
    this.load.look();
  }

  draw() {}

  end() {
    clearInterval(this.timer);
    this.bar.close();
    this.over.abort();
    release(this.feed);
  }
}
