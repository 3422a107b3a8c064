// The card beside the pointer: what the map knows at once, the exact numbers a moment later.

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
  constructor(picture, book, firing) {
    Object.assign(this, { picture, book, firing, slot: null, gpu: null });
    this.card = byId("hover");
  }

  /** slot null: the pointer is over no GPU. */
  move({ slot, x, y }) {
    if (slot !== this.slot) this.enter(slot);
    if (slot !== null) this.place(x, y);
  }

  enter(slot) {
    this.slot = slot;
    this.gpu = null;
    clearTimeout(this.timer);
    show(this.card, slot !== null);
    if (slot === null) return;
    this.draw();
    this.timer = setTimeout(() => this.load(slot), REST_MS);
  }

  /** New cells have come: the card follows while it is open. */
  refresh() {
    if (this.slot !== null && this.gpu !== null) this.load(this.slot);
  }

  async load(slot) {
    const gpu = await this.ask(slot).catch(() => null);
    if (slot !== this.slot) return;
    this.gpu = gpu;
    this.draw();
  }

  ask(slot) {
    return this.picture.isThen ? this.then(slot) : single("gpus", this.picture.uuids[slot], get);
  }

  draw() {
    const { picture, slot, gpu } = this;
    const state = gpu?.state ?? picture.state(slot);
    this.card.replaceChildren(
      make("header", {},
        make("strong", {}, `${picture.host(slot)} · GPU ${picture.placeName(slot)}`),
        make("span", { class: `pill ${state}` }, picture.code(slot) === 254 ? "offline" : stateWords(gpu ? state : "…"))),
      make("p", { class: "hover-model" }, picture.modelName(slot)),
      ...lease(siteWords(picture, slot)),
      ...lease(picture.serviceWords(slot)),
      ...lease(picture.leaseWords(slot)),
      ...this.alerts(),
      make("dl", {}, ...this.rows()),
      make("footer", {}, make("span", {}, ownerLine(picture, slot, gpu)), make("span", {}, gpu ? ageWords(gpu) : "")),
    );
  }

  alerts() {
    const alerts = this.firing.of(this.picture.uuids[this.slot], this.picture.nodeId(this.slot));
    const lines = alerts.slice(0, MOST_ALERTS).map((alert) => make("p", { class: `hover-alert ${isSilenced(alert) ? "info" : alert.severity}` }, withWhat(alert), make("small", {}, `for ${age(secondsSince(alert.since, this.picture.isThen ? this.picture.at : undefined))}`)));
    return alerts.length > MOST_ALERTS ? [...lines, make("p", { class: "hover-more" }, `and ${plural(alerts.length - MOST_ALERTS, "alert")} more`)] : lines;
  }

  rows() {
    const chosen = this.picture.metric;
    const keys = [chosen, ...ROWS.filter((key) => key !== chosen)].slice(0, ROWS.length + 1);
    return keys.filter((key) => this.book.metrics.has(key)).map((key) => this.row(this.book.metrics.get(key), key === chosen));
  }

  row(metric, isChosen) {
    const words = this.gpu === null ? { text: "", unit: "", isMissing: false } : valueWords(this.gpu, metric, this.book);
    return make("div", { class: isChosen ? "chosen" : null },
      make("dt", {}, metric.label),
      make("dd", { class: words.isMissing ? "missing" : null }, words.text, make("small", {}, words.unit)));
  }

  place(x, y) {
    const { offsetWidth: w, offsetHeight: h } = this.card;
    const left = x + 18 + w > innerWidth ? x - 18 - w : x + 18;
    const top = Math.min(Math.max(8, y + 14), innerHeight - h - 8);
    this.card.style.transform = `translate(${Math.max(8, left)}px, ${top}px)`;
  }
}

function siteWords(picture, slot) {
  const name = picture.siteName(slot);
  if (name === null) return "";
  const away = awayWords(picture.sites.get(name));
  return `site ${name}${away === "" ? "" : `, ${away}`}`;
}

const lease = (words) => (words === "" ? [] : [make("p", { class: "hover-lease" }, capital(words))]);

const ageWords = (gpu) => (gpu.isThen ? `Past: ${clock(gpu.at)}` : `${age(gpu.age_s)} old`);

function ownerLine(picture, slot, gpu) {
  if (picture.isThen) return picture.isKnownThen ? picture.ownerName(slot) : "";
  const count = gpu?.tasks?.length ?? 0;
  const owner = picture.ownerName(slot);
  return count > 1 ? `${owner} · ${count} tasks` : owner;
}
