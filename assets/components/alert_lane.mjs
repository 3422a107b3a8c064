// AlertLane: the alerts of the last minutes, on a page of the site's own.

import { alertsOf, spansOf } from "../alerts/firing.mjs";
import { AlertLane as Lane } from "../charts/alert_lane.mjs";

const EVERY_MS = 15_000;

export default class AlertLane {
  /** @type {AlertSpan[]} */
  alerts = [];
  minutes = 0;

  /** @param {HTMLElement} place */
  constructor(place) {
    this.lane = new Lane(place);
    this.timer = setInterval(() => this.look(), EVERY_MS);
  }

  /** @type {(properties: { minutes: number }) => void} */
  draw({ minutes }) {
    const isNew = minutes !== this.minutes;
    this.minutes = minutes;
    if (isNew) this.look();
  }

  async look() {
    if (document.hidden) return;
    const to = Date.now() / 1000;
    const span = { from: to - 60 * this.minutes, to };
    /** @type {any} */
    const alerts = await alertsOf(null, span.from, span.to).then(spansOf, () => this.alerts);
    this.alerts = alerts;
    this.lane.draw(this.alerts, span);
  }

  end() {
    clearInterval(this.timer);
  }
}
