// The card beside the pointer: what the map knows at once, the exact numbers a moment later.

/** @import { FleetState } from "../live/fleet_state.mjs" */

import { metricOf } from "../parts/metric_catalogue.mjs";
import { isSilenced, withWhat } from "../alerts/alert_words.mjs";
import { get, single } from "../parts/api.mjs";
import { byId, make, show } from "../parts/dom.mjs";
import { age, capital, clock, plural, secondsSince } from "../parts/format.mjs";
import { stateWords, valueWords } from "./gpu_words.mjs";
import { awayWords } from "./sites.mjs";

const REST_MS = 90;
const MOST_ALERTS = 3;
const ROWS = ["util_pct", "sm_active_pct", "mem_used_bytes", "temp_c", "power_w", "sm_clock_mhz"];

export class Hover {
  /** @type {number | null} */
  slot = null;
  /** @type {ShownGpu | null} */
  gpu = null;
  /** @type {number | undefined} */
  timer;
  /**
   * Returns a GPU at the past moment that is shown.
   * @type {(slot: number) => Promise<ShownGpu | null>}
   */
  then = async () => null;

  /**
   * @param {FleetState} picture
   * @param {MetricBook} book
   * @param {FiredAlerts} firing
   */
  constructor(picture, book, firing) {
    this.picture = picture;
    this.book = book;
    this.firing = firing;
    this.card = byId("hover");
  }

  /**
   * slot null: the pointer is over no GPU.
   * @type {(spot: { slot: number | null, x?: number, y?: number }) => void}
   */
  move({ slot, x = 0, y = 0 }) {
    if (slot !== this.slot) this.enter(slot);
    if (slot !== null) this.place(x, y);
  }

  /** @type {(slot: number | null) => void} */
  enter(slot) {
    this.slot = slot;
    this.gpu = null;
    clearTimeout(this.timer);
    show(this.card, slot !== null);
    if (slot === null) return;
    this.draw(slot);
    this.timer = setTimeout(() => this.load(slot), REST_MS);
  }

  /** New cells have come: the card follows while it is open. */
  refresh() {
    if (this.slot !== null && this.gpu !== null) this.load(this.slot);
  }

  /** @type {(slot: number) => Promise<void>} */
  async load(slot) {
    const gpu = await this.ask(slot).catch(() => null);
    if (slot !== this.slot) return;
    this.gpu = gpu;
    this.draw(slot);
  }

  /** @type {(slot: number) => Promise<ShownGpu | null>} */
  ask(slot) {
    return this.picture.isThen ? this.then(slot) : single("gpus", this.picture.uuids[slot], get);
  }

  /** @type {(slot: number) => void} */
  draw(slot) {
    const { picture, gpu } = this;
    const state = gpu?.state ?? picture.state(slot);
    this.card.replaceChildren(
      make(
        "header",
        {},
        make("strong", {}, `${picture.host(slot)} · GPU ${picture.placeName(slot)}`),
        make(
          "span",
          { class: `pill ${state}` },
          picture.code(slot) === 254 ? "offline" : stateWords(gpu ? state : "…"),
        ),
      ),
      make("p", { class: "hover-model" }, picture.modelName(slot)),
      ...lease(siteWords(picture, slot)),
      ...lease(picture.serviceWords(slot)),
      ...lease(picture.leaseWords(slot)),
      ...this.alerts(slot),
      make("dl", {}, ...this.rows()),
      make(
        "footer",
        {},
        make("span", {}, ownerLine(picture, slot, gpu)),
        make("span", {}, gpu ? ageWords(gpu) : ""),
      ),
    );
  }

  /** @type {(slot: number) => HTMLElement[]} */
  alerts(slot) {
    /** @type {Hub.AlertView[]} */
    const alerts = this.firing.of(this.picture.uuids[slot], this.picture.nodeId(slot));
    const lines = alerts
      .slice(0, MOST_ALERTS)
      .map((alert) =>
        make(
          "p",
          { class: `hover-alert ${isSilenced(alert) ? "info" : alert.severity}` },
          withWhat(alert),
          make(
            "small",
            {},
            `for ${age(secondsSince(alert.since, this.picture.isThen ? (this.picture.at ?? undefined) : undefined))}`,
          ),
        ),
      );
    return alerts.length > MOST_ALERTS
      ? [
          ...lines,
          make(
            "p",
            { class: "hover-more" },
            `and ${plural(alerts.length - MOST_ALERTS, "alert")} more`,
          ),
        ]
      : lines;
  }

  rows() {
    const current = this.picture.metric;
    const keys = [current ?? "", ...ROWS.filter((key) => key !== current)].slice(
      0,
      ROWS.length + 1,
    );
    return keys
      .filter((key) => this.book.metrics.has(key))
      .map((key) => this.row(metricOf(this.book, key), key === current));
  }

  /** @type {(metric: Metric, isChosen: boolean) => HTMLElement} */
  row(metric, isChosen) {
    const words =
      this.gpu === null
        ? { text: "", unit: "", isMissing: false }
        : valueWords(this.gpu, metric, this.book);
    return make(
      "div",
      { class: isChosen ? "chosen" : null },
      make("dt", {}, metric.label),
      make(
        "dd",
        { class: words.isMissing ? "missing" : null },
        words.text,
        make("small", {}, words.unit),
      ),
    );
  }

  /** @type {(x: number, y: number) => void} */
  place(x, y) {
    const { offsetWidth: w, offsetHeight: h } = this.card;
    const left = x + 18 + w > innerWidth ? x - 18 - w : x + 18;
    const top = Math.min(Math.max(8, y + 14), innerHeight - h - 8);
    this.card.style.transform = `translate(${Math.max(8, left)}px, ${top}px)`;
  }
}

/** @type {(picture: FleetState, slot: number) => string} */
function siteWords(picture, slot) {
  const name = picture.siteName(slot);
  if (name === null) return "";
  const away = awayWords(picture.sites.get(name));
  return `site ${name}${away === "" ? "" : `, ${away}`}`;
}

/** @type {(words: string) => HTMLElement[]} */
const lease = (words) =>
  words === "" ? [] : [make("p", { class: "hover-lease" }, capital(words))];

/** @type {(gpu: ShownGpu) => string} */
const ageWords = (gpu) => (gpu.isThen ? `Past: ${clock(gpu.at)}` : `${age(gpu.age_s)} old`);

/** @type {(picture: FleetState, slot: number, gpu: ShownGpu | null) => string} */
function ownerLine(picture, slot, gpu) {
  if (picture.isThen) return picture.isKnownThen ? picture.ownerName(slot) : "";
  const count = gpu?.tasks?.length ?? 0;
  const owner = picture.ownerName(slot);
  return count > 1 ? `${owner} · ${count} tasks` : owner;
}
