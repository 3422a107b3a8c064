// The Fleet page at a past moment: brings what the time bar asks for into the picture.

/** @import Fleet from "./fleet.mjs" */

import { placeOf, withWhat } from "../alerts/alert_words.mjs";
import { itemsOf, look } from "../parts/api.mjs";
import { Blocks } from "./past_blocks.mjs";
import { byId, messageOf, say, targetOf } from "../parts/dom.mjs";
import { amount, clock, plural } from "../parts/format.mjs";
import { FiringThen } from "../alerts/firing.mjs";
import { FleetLoad } from "./fleet_load.mjs";
import { GpuThen } from "./gpu_at_time.mjs";
import { momentOf } from "./past_moment.mjs";
import { momentIn, TimeBar } from "./time_bar.mjs";
import { drawSummaryThen } from "./attention.mjs";

const TOTALS_WAIT_MS = 250;
const TOTALS_EVERY_MS = 500; // while it plays
const SETTLED_MS = 400;
const SLOW_MS = 150;
const AGAIN_MS = 3_000;
const MARKS_EVERY_MS = 60_000;
const MOST_COMMANDS = 500;

export class Past {
  isIn = false; // a moment of the past
  isComing = false;
  isWaiting = false;
  /** @type {number | null} */
  shown = null; // the one that is drawn
  /** @type {number | null} */
  marked = null; // the start of the span whose marks are there
  /** @type {number | undefined} */
  settling;
  /** @type {number | undefined} */
  totalling;
  /** @type {number | undefined} */
  timer;

  /** @param {Fleet} fleet */
  constructor(fleet) {
    this.fleet = fleet;
    this.blocks = new Blocks();
    this.bar = new TimeBar();
    this.gpus = new GpuThen(fleet.book, fleet.picture);
    this.firing = new FiringThen(fleet.firing);
    this.load = new FleetLoad(this.bar);

    this.bar.isDrawn = () => this.shown === this.bar.at;
    fleet.hover.then = (slot) => this.gpus.read(slot);
    fleet.drawer.then = (slot, body) =>
      this.gpus.fill(slot, body, (uuid) => uuid === fleet.drawer.uuid);
    this.listen();
    this.goToAddress(false);
    this.loadMarks();
    setInterval(() => this.loadMarks(), MARKS_EVERY_MS);
  }

  listen() {
    this.bar.addEventListener("move", ({ detail }) => this.move(detail.at));
    this.bar.addEventListener("range", () => this.loadMarks());
    this.bar.addEventListener("play", () => this.onPlay());
    const link = () => this.bar.link(this.fleet.live.state === "live");
    this.fleet.live.addEventListener("state", link);
    link();
    addEventListener("popstate", () => this.goToAddress(true));
    byId("drawer-then").addEventListener("click", (event) => {
      if (targetOf(event).closest(".go-live") !== null) this.bar.goLive();
    });
  }

  get at() {
    return this.bar.at;
  }

  onPlay() {
    this.fleet.root.classList.toggle("playing", this.bar.isPlaying);
    this.settleSoon();
  }

  /**
   * Goes to the moment that the address names.
   * @type {(isBack: boolean) => void}
   */
  goToAddress(isBack) {
    const text = new URLSearchParams(location.search).get("at") ?? "";
    const at = momentIn(text);
    this.isComing = true;
    if (at !== null) this.bar.goTo(at);
    else if (isBack || this.fleet.isThen) this.bar.goLive();
    this.isComing = false;
    if (text !== "" && at === null)
      say(this.fleet.heatmap.spoken, "The link has no valid time; showing live data.");
  }

  /** @type {(at: number | null) => void} */
  move(at) {
    if (at === null) {
      if (this.fleet.isThen) this.leave();
      return;
    }
    if (!this.isIn) this.enter();
    else if (!this.bar.isPlaying) drawSummaryThen(null);
    this.settleSoon();
    this.draw();
  }

  enter() {
    this.isIn = true;
    this.fleet.isThen = true;
    this.fleet.wordsAt = 0;
    this.fleet.root.classList.add("then");
    // One step back leads to live again; from moment to moment the address is only replaced.
    if (!this.isComing) history.pushState(history.state, "");
    this.fleet.setFiring(this.firing);
    this.fleet.attention.showThen(this.firing);
    this.fleet.drawChips();
    drawSummaryThen(null);
  }

  leave() {
    this.isIn = false;
    this.shown = null;
    this.firing.goTo(null);
    clearTimeout(this.settling);
    say(byId("time-spoken"), "Live");
    this.fleet.root.classList.remove("then", "waiting");
    this.bar.say("");
    this.fleet.goLive();
    if (!this.isComing) this.fleet.choose({ at: "" });
    else this.fleet.view.at = "";
  }

  settleSoon() {
    clearTimeout(this.settling);
    if (this.at === null) return;
    // While it plays, the address would change more often than browsers let it.
    if (!this.bar.isPlaying) this.settling = setTimeout(() => this.settle(), SETTLED_MS);
    if (this.totalling === undefined)
      this.totalling = setTimeout(
        () => this.total(),
        this.bar.isPlaying ? TOTALS_EVERY_MS : TOTALS_WAIT_MS,
      );
  }

  settle() {
    if (this.at === null) return;
    this.fleet.choose({ at: String(this.at) });
    this.fleet.settleThen();
    if (this.marked !== this.bar.start) this.loadMarks(); // the bar is over another time
    say(byId("time-spoken"), `Past: ${clock(this.at)}. ${this.bar.note}`);
  }

  /** @type {(at: number) => BlockWish} */
  wish(at) {
    const metric = this.fleet.view.metric;
    return {
      metric,
      at,
      step: this.bar.step,
      size: this.fleet.picture.size,
      isSeldom: !this.fleet.book.columns.includes(metric),
    };
  }

  /**
   * Something else than the moment has changed: the metric, or the layout.
   * @type {(isNewLayout: boolean) => void}
   */
  redo(isNewLayout) {
    if (this.at === null) return;
    if (isNewLayout) this.blocks.forget();
    this.shown = null;
    this.draw();
  }

  /** The newest wish; those that it overtook are not drawn. */
  async draw() {
    if (this.at === null) return;
    const ready = this.blocks.ready(this.wish(this.at));
    if (ready !== undefined) {
      this.put(ready);
      return;
    }
    this.shown = null;
    const slow = setTimeout(() => this.isWaiting && this.wait(), SLOW_MS);
    if (this.isWaiting) return;
    this.isWaiting = true;
    try {
      while (this.at !== null && this.shown !== this.at) await this.bring(this.wish(this.at));
    } finally {
      this.isWaiting = false;
      clearTimeout(slow);
      this.fleet.root.classList.remove("waiting");
    }
  }

  /** @type {(wish: BlockWish) => Promise<void>} */
  async bring(wish) {
    const isWanted = () => this.at === wish.at && this.fleet.view.metric === wish.metric;
    await this.blocks.fetch(wish).then(
      (moment) => {
        if (isWanted()) this.put(moment);
      },
      (error) => {
        if (isWanted()) this.fail(error, wish);
      },
    );
  }

  wait() {
    this.fleet.root.classList.add("waiting");
    this.bar.say("loading …");
  }

  /** @type {(moment: BlockMoment) => void} */
  put(moment) {
    const { fleet } = this;
    if (moment.epoch !== fleet.picture.epoch) {
      this.misfit();
      return;
    }
    this.shown = this.at;
    this.firing.goTo(this.at);
    fleet.root.classList.remove("waiting");
    fleet.showThen(moment);
    this.bar.say(noteOf(moment));
    if (this.bar.isPlaying && this.at !== null) this.blocks.prefetch(this.wish(this.at));
  }

  /** The hub has another layout than the page, or the page none yet: the socket will bring it. */
  misfit() {
    this.shown = this.at;
    this.blocks.forget();
    this.wait();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.redo(true), SETTLED_MS);
  }

  /**
   * Shows nothing after a failure: numbers of another moment would be wrong.
   * @type {(error: unknown, wish: BlockWish) => void}
   */
  fail(error, { metric, at }) {
    this.shown = at;
    this.bar.pause();
    this.fleet.showThen({
      at,
      metric,
      cells: new Uint8Array(this.fleet.picture.size).fill(255),
      exact: null,
    });
    this.bar.say(`not loaded: ${messageOf(error)}`);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.redo(false), AGAIN_MS);
  }

  async total() {
    const at = this.at;
    if (at === null) {
      this.totalling = undefined;
      return;
    }
    const moment = this.bar.isPlaying
      ? null
      : look(`moment?at=${at}`)
          .then(momentOf)
          .catch(() => null);
    const totals = await look(`totals?at=${at}`).catch(() => null);
    this.totalling = undefined;
    if (this.at === null) return;
    moment?.then((found) => {
      if (found !== null && this.at === at) this.fleet.showMoment(found);
    });
    if (this.at === at || this.bar.isPlaying) drawSummaryThen(totals);
    if (this.at !== at) this.settleSoon();
  }

  async loadMarks() {
    if (document.hidden) return;
    this.marked = this.bar.start;
    this.load.look();
    const [start, end] = [this.bar.start, Math.max(this.bar.end, Date.now() / 1000)];
    const span = `start=${start}&end=${end.toFixed(0)}`;
    const [ended, commands] = await Promise.all([
      itemsOf(`alerts?state=ended&${span}`),
      itemsOf(`commands?limit=${MOST_COMMANDS}`),
    ]);
    if (this.marked !== start) return;
    this.firing.ended = /** @type {any} */ (ended ?? []);
    const { alerts } = this.firing;
    this.firing.goTo(this.at);
    /** @type {TimeMark[]} */
    const fired = alerts
      .filter(({ severity }) => severity !== "info")
      .map((alert) => ({
        at: alert.fired_at,
        kind: "alert",
        severity: alert.severity,
        words: `${withWhat(alert)} · ${placeOf(alert)}`,
      }));
    /** @type {TimeMark[]} */
    const orders = (commands ?? [])
      .filter(({ requested_at: at }) => at >= start)
      .map(({ action, host, requested_at: at, by }) => ({
        at,
        kind: "command",
        words: `${action} on ${host}, by ${by.name}`,
      }));
    this.bar.mark([...fired, ...orders]);
  }
}

/** @type {(moment: BlockMoment) => string} */
function noteOf({ seen, count, gone, grainS }) {
  const parts = [
    seen === 0 ? "no samples at that time" : `${amount(seen)} of ${plural(count, "GPU")} reported`,
  ];
  if (gone > 0) parts.push(`${amount(gone)} more not on this map`);
  if ((grainS ?? 1) > 1) parts.push("minute averages");
  return parts.join(" · ");
}
