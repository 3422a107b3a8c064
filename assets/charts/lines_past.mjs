// The charts at a moment that is over: what the time bar asks for, read from history, ends there.

/** @import Timelines from "./timelines.mjs" */

import { isSilenced, placeOf, withWhat } from "../alerts/alert_words.mjs";
import { writeQuery } from "../parts/address.mjs";
import { afterPause, byId, messageOf, say } from "../parts/dom.mjs";
import { clock } from "../parts/format.mjs";
import { nowS } from "../parts/time_ranges.mjs";
import { FleetLoad } from "../fleet/fleet_load.mjs";
import { momentIn, TimeBar } from "../fleet/time_bar.mjs";
import { LineStore } from "./line_store.mjs";
import { pastOf } from "../fleet/past_series.mjs";

const SETTLED_MS = 400;
const LOAD_EVERY_MS = 60_000;
const MOST_BESIDE_S = 300; // read with a window, so that the next step is there already
const LOOK_BACK_S = 3; // as the cells of the map

export class LinesPast {
  /** @type {TimeRange | null} */
  known = null; // of what `store` holds
  isBringing = false;
  isFollowing = false;

  /** @param {Timelines} page */
  constructor(page) {
    this.page = page;

    this.store = new LineStore(page.book.columns);
    this.bar = new TimeBar();
    this.load = new FleetLoad(this.bar, () => page.gpus.map(({ uuid }) => uuid));
    this.settle = afterPause(SETTLED_MS, () => this.writeAddress());
    this.listen();
    this.load.look();
    setInterval(() => document.hidden || this.load.look(), LOAD_EVERY_MS);
  }

  /** To the moment that the address names. */
  come() {
    const at = momentIn(new URLSearchParams(location.search).get("at") ?? "");
    if (at !== null) this.bar.goTo(at);
  }

  /** Other GPUs are shown from now on. */
  forget() {
    this.known = null;
    if (this.page.zoom !== null) this.bring();
  }

  get at() {
    return this.bar.at;
  }

  /** The moment that is drawn, for tests and for the curious. */
  get shown() {
    return this.isBringing ? null : this.at;
  }

  listen() {
    const { bar, page } = this;
    bar.isDrawn = () => !this.isBringing;
    bar.addEventListener("move", ({ detail }) => this.isFollowing || this.move(detail.at));
    bar.addEventListener("range", () => { this.load.look(); page.side.lookAtAlerts(true); });
    const link = () => bar.link(page.live.state === "live");
    page.live.addEventListener("state", link);
    link();
  }

  /** @type {(at: number | null) => void} */
  move(at) {
    if (at !== null) this.page.zoomTo({ from: at - this.page.spanS, to: at });
    else if (this.page.zoom !== null) this.page.zoomTo(null);
  }

  /**
   * The page shows this span; null: what is live. The bar says so.
   * @type {(span: TimeRange | null) => void}
   */
  follow(span) {
    this.isFollowing = true;
    if (span === null) { if (this.at !== null) this.bar.goLive(); } else if (Math.floor(span.to) !== this.at) this.bar.goTo(Math.floor(span.to));
    this.isFollowing = false;
    this.page.root.classList.toggle("then", this.at !== null);
    if (span === null) this.bar.say("");
    else this.bring();
    this.settle();
  }

  writeAddress() {
    const query = new URLSearchParams(location.search);
    if (this.at === null) query.delete("at"); else query.set("at", String(this.at));
    writeQuery(query);
    say(byId("time-spoken"), this.at === null ? "Live" : `Past: ${clock(this.at)}. ${this.bar.note}`);
  }

  /**
   * Where the points of this span are: of what is live, or read from history.
   * @type {(span: Pick<TimeRange, "from">) => LineStore}
   */
  sourceOf({ from }) {
    const { store, gpus } = this.page;
    const oldest = Math.min(...gpus.map(({ uuid }) => store.track(uuid).t[0] ?? Infinity));
    return from >= oldest ? store : this.store;
  }

  /** @type {(span: TimeRange) => boolean} */
  isKnown({ from, to }) {
    return this.known !== null && this.known.from <= from && this.known.to >= to;
  }

  /** The newest wish; those that it overtook are not read. */
  async bring() {
    if (this.isBringing) return;
    this.isBringing = true;
    try {
      for (let span = this.page.zoom; span !== null && this.sourceOf(span) === this.store && !this.isKnown(span); span = this.page.zoom) await this.read(span);
      this.note();
    } catch (error) {
      this.bar.pause();
      this.bar.say(`not loaded: ${messageOf(error)}`);
    } finally {
      this.isBringing = false;
      this.page.redrawAll();
    }
  }

  /** @type {(span: TimeRange) => Promise<void>} */
  async read({ from, to }) {
    const beside = Math.min(MOST_BESIDE_S, (to - from) / 2);
    const known = { from: Math.floor(from - beside), to: Math.ceil(Math.min(nowS(), to + beside)) };
    const uuids = this.page.gpus.map(({ uuid }) => uuid);
    const pasts = await Promise.all(uuids.map((uuid) => pastOf(uuid, this.store.keys, known.from, known.to)));
    const store = new LineStore(this.store.keys);
    store.watch(uuids);
    pasts.forEach(({ t, columns }, at) => store.fill(uuids[at], t, columns));
    this.store = store;
    // The last seconds may be on their way yet: who comes to them asks again.
    this.known = { from: known.from, to: Math.max(to, known.to - LOOK_BACK_S) };
  }

  note() {
    if (this.at === null) return;
    this.bar.say(this.gpusThen().every(({ values }) => Object.keys(values).length === 0) ? "no samples at that time" : "");
  }

  /**
   * Shaped as the API shapes a GPU, with what was last sampled before the moment.
   * @type {() => GpuOfThen[]}
   */
  gpusThen() {
    const { page } = this;
    const at = this.at ?? nowS();
    const source = this.sourceOf({ from: at - page.spanS });
    return page.gpus.map(({ uuid, facts }) => {
      const { t, values } = source.track(uuid);
      const row = t.findLastIndex((time) => time < at + 1);
      const isThere = row >= 0 && t[row] > at - LOOK_BACK_S;
      const there = isThere ? [...values].map(([key, column]) => [key, column[row]]).filter(([, value]) => value !== null && value !== undefined) : [];
      return { uuid, at, facts, state: "ok", values: Object.fromEntries(there), missing: {}, tasks: null, isThen: true };
    });
  }

  /** @type {(alerts: Hub.AlertView[]) => void} */
  mark(alerts) {
    this.bar.mark(alerts.filter((one) => one.severity !== "info" && !isSilenced(one)).map((alert) => ({ at: alert.fired_at, kind: /** @type {const} */ ("alert"), severity: alert.severity, words: `${withWhat(alert)} · ${placeOf(alert)}` })));
  }
}
