// AlertLane: the alerts of the last minutes, on a page of the site's own.

import { LATE_MS } from "../parts/api.mjs";
import { alertsOf, spansOf } from "../alerts/firing.mjs";
import { AlertLane as Lane } from "../charts/alert_lane.mjs";

const EVERY_MS = 15_000;

export default class AlertLane {
  /** @type {AlertSpan[]} */
  alerts = [];
  minutes = 0;
  dueAt = -Infinity;

  /** @param {HTMLElement} place */
  constructor(place) {
    this.lane = new Lane(place);
    this.timer = setInterval(() => performance.now() > this.dueAt && this.look(), EVERY_MS);
  }

  /** @type {(properties: { minutes: number }) => void} */
  draw({ minutes }) {
    const isNew = minutes !== this.minutes;
    this.minutes = minutes;
    if (isNew) this.look();
  }

  async look() {
    if (document.hidden) return;
    this.dueAt = performance.now() + LATE_MS; // or once the hub has answered
    const to = Date.now() / 1000;
    const span = { from: to - 60 * this.minutes, to };
    /** @type {any} */
    const alerts = await alertsOf(null, span.from, span.to).then(spansOf, () => this.alerts);
    this.dueAt = -Infinity;
    this.alerts = alerts;
    this.lane.draw(this.alerts, span);
  }

  end() {
    clearInterval(this.timer);
  }
}
