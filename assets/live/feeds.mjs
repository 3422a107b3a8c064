// The sockets of live components: one for each metric and filter, however many draw from it.

import { FleetState } from "./fleet_state.mjs";
import { Live } from "./live.mjs";
import { Teller } from "../parts/dom.mjs";

const MOST_LINES = 64; // as many the hub tells one viewer

let spare = null;

/** The page's own socket, where the page itself asks nothing of it. */
export function lend(live) {
  spare = live;
}

function socket() {
  const live = spare ?? new Live({ is_live: true });
  spare = null;
  live.isIdle = false;
  return live;
}

/** The fleet by one metric and filter. Tells `layout`, `cells`, `totals` and `filter` after the picture has changed. */
class FleetFeed extends Teller {
  constructor() {
    super();
    Object.assign(this, { live: socket(), picture: new FleetState(), uses: 0, key: null, totals: null, error: null });
    const takes = { layout: "takeLayout", cells: "takeCells", owners: "takeOwners", leases: "takeLeases" };
    for (const [name, take] of Object.entries(takes)) {
      this.live.addEventListener(name, ({ detail }) => { this.picture[take](detail); this.tell(name === "layout" ? "layout" : "cells"); });
    }
    this.live.addEventListener("totals", ({ detail }) => { this.totals = detail; this.tell("totals"); });
    this.live.addEventListener("filter", ({ detail }) => { this.error = detail.ok ? null : detail.error; this.tell("filter"); });
    this.live.addEventListener("state", () => this.tell("cells"));
  }

  watch(metric, filter) {
    this.error = null;
    this.live.watch(metric, filter);
  }
}

const feeds = [];

/** `had`: that which is used so far; null: none. */
export function feedOf(metric, filter, had = null) {
  const key = JSON.stringify([metric, filter]);
  if (had?.key === key) return had;
  release(had);
  let feed = feeds.find((each) => each.key === key) ?? feeds.find(({ uses }) => uses === 0);
  if (feed === undefined) feeds.push(feed = new FleetFeed());
  if (feed.key !== key) { feed.key = key; feed.watch(metric, filter); }
  feed.uses += 1;
  return feed;
}

/** Of any filter: for what is of the whole fleet. */
export const anyFeed = () => { const [feed] = feeds; if (feed === undefined) return feedOf("util_pct", ""); feed.uses += 1; return feed; };

export function release(feed) {
  if (feed !== null) feed.uses -= 1;
}

/** Every second of the GPUs that somebody draws a line of. */
class LineFeed extends Teller {
  wanted = new Map();

  want(who, uuids) {
    if (uuids.length > 0) this.wanted.set(who, uuids);
    else this.wanted.delete(who);
    const all = [...new Set([...this.wanted.values()].flat())];
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
