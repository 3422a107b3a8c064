// The sockets of live components: one for each metric and filter, however many draw from it.

import { FleetState } from "./fleet_state.mjs";
import { Live } from "./live.mjs";
import { Teller } from "../parts/dom.mjs";

const MOST_LINES = 64; // as many the hub tells one viewer

/** @type {Live | null} */
let spare = null;

/**
 * The page's own socket, where the page itself asks nothing of it.
 * @type {(live: Live) => void}
 */
export function lend(live) {
  spare = live;
}

function socket() {
  const live = spare ?? new Live({ is_live: true });
  spare = null;
  live.isIdle = false;
  return live;
}

/**
 * The fleet by one metric and filter. Tells of events after the picture has changed.
 * @extends {Teller<Record<"layout" | "cells" | "totals" | "filter", object>>}
 */
class FleetFeed extends Teller {
  /** @type {string | null} */
  key = null;
  /** @type {Hub.Totals | null} */
  totals = null;
  /** @type {string | null} */
  error = null;

  constructor() {
    super();
    this.live = socket();
    this.picture = new FleetState();
    this.uses = 0;
    const { live, picture } = this;
    live.addEventListener("layout", ({ detail }) => {
      picture.takeLayout(detail);
      this.tell("layout");
    });
    live.addEventListener("cells", ({ detail }) => {
      picture.takeCells(detail);
      this.tell("cells");
    });
    live.addEventListener("owners", ({ detail }) => {
      picture.takeOwners(detail);
      this.tell("cells");
    });
    live.addEventListener("leases", ({ detail }) => {
      picture.takeLeases(detail);
      this.tell("cells");
    });
    this.live.addEventListener("totals", ({ detail }) => {
      this.totals = detail;
      this.tell("totals");
    });
    this.live.addEventListener("filter", ({ detail }) => {
      this.error = detail.ok ? null : detail.error;
      this.tell("filter");
    });
    this.live.addEventListener("state", () => this.tell("cells"));
  }

  /** @type {(metric: string, filter: string) => void} */
  watch(metric, filter) {
    this.error = null;
    this.live.watch(metric, filter);
  }
}

/** @type {FleetFeed[]} */
const feeds = [];

/**
 * `had`: that which is used so far; null: none.
 * @type {(metric: string, filter: string, had?: FleetFeed | null) => FleetFeed}
 */
export function feedOf(metric, filter, had = null) {
  const key = JSON.stringify([metric, filter]);
  if (had?.key === key) return had;
  release(had);
  let feed = feeds.find((each) => each.key === key) ?? feeds.find(({ uses }) => uses === 0);
  if (feed === undefined) feeds.push((feed = new FleetFeed()));
  if (feed.key !== key) {
    feed.key = key;
    feed.watch(metric, filter);
  }
  feed.uses += 1;
  return feed;
}

/** Returns a feed of any filter, for what concerns the whole fleet. */
export const anyFeed = () => {
  const [feed] = feeds;
  if (feed === undefined) return feedOf("util_pct", "");
  feed.uses += 1;
  return feed;
};

/** @type {(feed: FleetFeed | null) => void} */
export function release(feed) {
  if (feed !== null) feed.uses -= 1;
}

/**
 * Feed of each second of the GPUs whose lines are drawn.
 * @extends {Teller<{ lines: Hub.Lines }>}
 */
class LineFeed extends Teller {
  /** @type {Live | undefined} */
  live;
  /** @type {Map<unknown, string[]>} */
  uuidsOf = new Map();

  /** @type {(who: unknown, uuids: string[]) => void} */
  want(who, uuids) {
    if (uuids.length > 0) this.uuidsOf.set(who, uuids);
    else this.uuidsOf.delete(who);
    const all = [...new Set([...this.uuidsOf.values()].flat())];
    if (all.length === 0 && this.live === undefined) return;
    if (this.live === undefined) {
      this.live = anyFeed().live;
      this.live.addEventListener("lines", ({ detail }) => this.tell("lines", detail));
    }
    this.live.lines(all.slice(0, MOST_LINES));
    this.live.isIdle = false;
  }
}

export const lines = new LineFeed();
