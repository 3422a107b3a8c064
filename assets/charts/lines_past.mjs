// The charts at a past moment, which the time bar chooses: a span of history that ends there.

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
  loaded = null; // the span of `store`
  isLoading = false;
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

  /** Goes to the moment that the address names. */
  goToAddress() {
    const at = momentIn(new URLSearchParams(location.search).get("at") ?? "");
    if (at !== null) this.bar.goTo(at);
  }

  /** Forgets the loaded span: other GPUs are shown from now on. */
  forget() {
    this.loaded = null;
    if (this.page.zoom !== null) this.loadSpan();
  }

  get at() {
    return this.bar.at;
  }

  /** The moment that is drawn; null while it is loaded. */
  get shown() {
    return this.isLoading ? null : this.at;
  }

  listen() {
    const { bar, page } = this;
    bar.isDrawn = () => !this.isLoading;
    bar.addEventListener("move", ({ detail }) => this.isFollowing || this.move(detail.at));
    bar.addEventListener("range", () => {
      this.load.look();
      page.side.lookAtAlerts(true);
    });
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
   * Follows the page, which shows this span; null: it is live.
   * @type {(span: TimeRange | null) => void}
   */
  follow(span) {
    this.isFollowing = true;
    if (span === null) {
      if (this.at !== null) this.bar.goLive();
    } else if (Math.floor(span.to) !== this.at) this.bar.goTo(Math.floor(span.to));
    this.isFollowing = false;
    this.page.root.classList.toggle("then", this.at !== null);
    if (span === null) this.bar.say("");
    else this.loadSpan();
    this.settle();
  }

  writeAddress() {
    const query = new URLSearchParams(location.search);
    if (this.at === null) query.delete("at");
    else query.set("at", String(this.at));
    writeQuery(query);
    say(
      byId("time-spoken"),
      this.at === null ? "Live" : `Past: ${clock(this.at)}. ${this.bar.note}`,
    );
  }

  /**
   * Returns the store with the points of this span: the live one, or that of history.
   * @type {(span: Pick<TimeRange, "from">) => LineStore}
   */
  sourceOf({ from }) {
    const { store, gpus } = this.page;
    const oldest = Math.min(...gpus.map(({ uuid }) => store.track(uuid).t[0] ?? Infinity));
    return from >= oldest ? store : this.store;
  }

  /** @type {(span: TimeRange) => boolean} */
  isLoaded({ from, to }) {
    return this.loaded !== null && this.loaded.from <= from && this.loaded.to >= to;
  }

  /** Loads the newest requested span; spans that were overtaken are skipped. */
  async loadSpan() {
    if (this.isLoading) return;
    this.isLoading = true;
    try {
      for (
        let span = this.page.zoom;
        span !== null && this.sourceOf(span) === this.store && !this.isLoaded(span);
        span = this.page.zoom
      )
        await this.read(span);
      this.note();
    } catch (error) {
      this.bar.pause();
      this.bar.say(`not loaded: ${messageOf(error)}`);
    } finally {
      this.isLoading = false;
      this.page.redrawAll();
    }
  }

  /** @type {(span: TimeRange) => Promise<void>} */
  async read({ from, to }) {
    const beside = Math.min(MOST_BESIDE_S, (to - from) / 2);
    const wide = { from: Math.floor(from - beside), to: Math.ceil(Math.min(nowS(), to + beside)) };
    const uuids = this.page.gpus.map(({ uuid }) => uuid);
    const pasts = await Promise.all(
      uuids.map((uuid) => pastOf(uuid, this.store.keys, wide.from, wide.to)),
    );
    const store = new LineStore(this.store.keys);
    store.watch(uuids);
    pasts.forEach(({ t, columns }, at) => store.fill(uuids[at], t, columns));
    this.store = store;
    // The last seconds may be on their way yet, and are asked for again.
    this.loaded = { from: wide.from, to: Math.max(to, wide.to - LOOK_BACK_S) };
  }

  note() {
    if (this.at === null) return;
    this.bar.say(
      this.gpusThen().every(({ values }) => Object.keys(values).length === 0)
        ? "no samples at that time"
        : "",
    );
  }

  /**
   * Returns the GPUs in the API's shape, with their last samples before the moment.
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
      const there = isThere
        ? [...values]
            .map(([key, column]) => [key, column[row]])
            .filter(([, value]) => value !== null && value !== undefined)
        : [];
      return {
        uuid,
        at,
        facts,
        state: "ok",
        values: Object.fromEntries(there),
        missing: {},
        tasks: null,
        isThen: true,
      };
    });
  }

  /** @type {(alerts: Hub.AlertView[]) => void} */
  mark(alerts) {
    this.bar.mark(
      alerts
        .filter((one) => one.severity !== "info" && !isSilenced(one))
        .map((alert) => ({
          at: alert.fired_at,
          kind: /** @type {const} */ ("alert"),
          severity: alert.severity,
          words: `${withWhat(alert)} · ${placeOf(alert)}`,
        })),
    );
  }
}
