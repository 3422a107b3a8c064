// Base of live components: listens to a feed, and shows a sentence where it cannot be shown.

/** @import { FleetState } from "../live/fleet_state.mjs" */

import { make, onTheme, sayOrHide } from "../parts/dom.mjs";
import { feedOf, release } from "../live/feeds.mjs";

/** Base of live components: a subclass has `redraw()`. */
export class LiveComponent {
  /** @type {Feed | null} */
  feed = null;

  /**
   * @param {HTMLElement} place
   * @param {TellDash} tell
   */
  constructor(place, tell) {
    this.place = place;
    this.tell = tell;
    this.clicks = 0;
    this.over = new AbortController();
    this.said = make("p", { class: "site-said", role: "status", hidden: "" });
    onTheme(() => {
      if (!this.over.signal.aborted) this.redraw();
    });
  }

  /**
   * Draws from now on what this metric and filter pick.
   * @type {(metric: string, filter: string | null | undefined) => void}
   */
  follow(metric, filter) {
    const feed = feedOf(metric, filter ?? "", this.feed);
    if (feed !== this.feed) {
      this.over.abort();
      this.over = new AbortController();
      this.feed = feed;
      for (const name of ["layout", "cells", "totals", "filter"])
        feed.addEventListener(name, () => this.onFeed(), { signal: this.over.signal });
    }
    this.onFeed();
  }

  onFeed() {
    sayOrHide(this.said, this.feed?.error ?? "");
    this.redraw();
  }

  /** Draws the feed's picture, in a subclass. */
  redraw() {
    throw new Error("nothing draws this component");
  }

  /**
   * Two clicks on the same are two: Dash passes on only what has changed.
   * @type {(picture: FleetState, slot: number) => void}
   */
  clicked(picture, slot) {
    this.clicks += 1;
    this.tell({
      clicked: {
        uuid: picture.uuids[slot],
        host: picture.host(slot),
        index: picture.placeName(slot),
        n: this.clicks,
      },
    });
  }

  end() {
    this.over.abort();
    release(this.feed);
    this.feed = null;
  }
}
