// What fires now, by what it fires on; kept up to date by the live socket, and looked up now and then.

import { look } from "./api.mjs";

const EVERY_MS = 30_000;
const RANKS = { info: 0, warn: 1, crit: 2 };

/** Tells `change`. */
export class Firing extends EventTarget {
  constructor(live) {
    super();
    this.alerts = new Map();
    this.byTarget = new Map();
    live.addEventListener("alert", ({ detail }) => this.take(detail));
    live.addEventListener("state", () => { if (live.state === "live") this.look(); });
    document.addEventListener("visibilitychange", () => this.look());
    this.look();
  }

  async look() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    const found = await look("alerts").catch(() => null); // the banner says how we stand with the hub
    if (found !== null) {
      this.alerts = new Map(found.items.map((alert) => [alert.id, alert]));
      this.sort();
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), EVERY_MS);
  }

  take(alert) {
    if (alert.state === "ended") this.alerts.delete(alert.id);
    else this.alerts.set(alert.id, alert);
    this.sort();
  }

  sort() {
    this.byTarget = new Map();
    for (const alert of this.alerts.values()) {
      if (alert.silenced_by.length > 0) continue; // it is known, and not to catch the eye
      if (!this.byTarget.has(alert.target)) this.byTarget.set(alert.target, []);
      this.byTarget.get(alert.target).push(alert);
    }
    for (const alerts of this.byTarget.values()) alerts.sort((one, other) => RANKS[other.severity] - RANKS[one.severity] || one.since - other.since);
    this.dispatchEvent(new CustomEvent("change"));
  }

  /** The worst first. */
  of(target) {
    return this.byTarget.get(target) ?? [];
  }
}

/** Those of these Gpus that fire, or fired in this time, oldest first. */
export async function alertsOf(uuids, from, to) {
  const targets = uuids.slice(0, 20).map(encodeURIComponent).join(",");
  const answers = await Promise.all([look(`alerts?targets=${targets}`), look(`alerts?state=ended&targets=${targets}&start=${from.toFixed(3)}&end=${to.toFixed(3)}`)]);
  return answers.flatMap(({ items }) => items).filter(({ since }) => since < to).sort((one, other) => one.since - other.since);
}

/** As a stretch of time, for timelines: to null is still so. */
export const spansOf = (alerts) => alerts.map(({ id, since, ended_at: to, title, severity, host, place }) => ({ id, from: since, to, title, severity, host, place }));
