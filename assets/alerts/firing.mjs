// What fires now, by the GPUs and nodes where it is marked; kept up to date by the live socket, and
// looked up now and then.

import { isExplained, isSilenced, placeOf, withWhat } from "./alert_words.mjs";
import { itemsOf, look } from "../parts/api.mjs";
import { Teller } from "../parts/dom.mjs";

const EVERY_MS = 30_000;
export const RANKS = { info: 0, warn: 1, crit: 2 };

/** The one list of alerts, for the map, the strip, lanes, panels and charts; without those that another alert explains. */
export const listed = (alerts) => alerts.filter((one) => !isExplained(one));

/** Alerts by the GPUs and nodes where they are marked. Tells `change`. */
class Marked extends Teller {
  byGpu = new Map();

  byNode = new Map();

  mark(alerts) {
    [this.byGpu, this.byNode] = [new Map(), new Map()];
    for (const alert of listed(alerts).sort(byWorst)) {
      if (alert.of === "node") put(this.byNode, alert.node, alert);
      else for (const uuid of alert.gpus) put(this.byGpu, uuid, alert);
    }
    this.tell("change");
  }

  /** Its own, those of who is on it, and those of its node; the worst first, what is silenced last. */
  of(uuid, node) {
    const [own, around] = [this.byGpu.get(uuid) ?? [], this.byNode.get(node) ?? []];
    return around.length === 0 ? own : [...own, ...around].sort(byWorst);
  }

  get isCalm() {
    return this.byGpu.size === 0 && this.byNode.size === 0;
  }
}

export class Firing extends Marked {
  /** Whether the hub has answered; until then nobody may say that nothing fires. */
  isKnown = false;

  constructor(live) {
    super();
    this.alerts = new Map();
    live.addEventListener("alert", ({ detail }) => this.take(detail));
    live.addEventListener("back", () => this.look());
    document.addEventListener("visibilitychange", () => this.look());
    live.opened().then(() => this.look());
  }

  async look() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    const found = await itemsOf("alerts"); // the banner says how we stand with the hub
    if (found !== null) {
      this.isKnown = true;
      this.alerts = new Map(found.map((alert) => [alert.id, alert]));
      this.mark([...this.alerts.values()]);
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), EVERY_MS);
  }

  take(alert) {
    if (alert.state === "ended") this.alerts.delete(alert.id);
    else this.alerts.set(alert.id, alert);
    this.mark([...this.alerts.values()]);
  }

  get listed() {
    return listed([...this.alerts.values()]);
  }
}

/** What fired at a moment that is over: of those that have ended since, and of those that fire. */
export class FiringThen extends Marked {
  at = null;

  ended = [];

  listed = [];

  constructor(firing) {
    super();
    this.firing = firing;
    firing.addEventListener("change", () => this.at !== null && this.goTo(this.at));
  }

  get alerts() {
    return [...this.ended, ...this.firing.alerts.values()];
  }

  /** Null: to none. */
  goTo(at) {
    this.at = at;
    if (at === null) return;
    this.listed = listed(this.alerts).filter(({ fired_at: from, ended_at: to }) => from <= at && (to === null || to > at));
    this.mark([...this.listed]);
  }
}

const byWorst = (one, other) => isSilenced(one) - isSilenced(other) || RANKS[other.severity] - RANKS[one.severity] || one.since - other.since;

function put(map, key, alert) {
  if (!map.has(key)) map.set(key, []);
  map.get(key).push(alert);
}

/** Of the one list, those that fire, or fired in this time, and are marked at these GPUs, null: at any; oldest first. */
export async function alertsOf(uuids, from, to) {
  const gpus = uuids === null ? "limit=1000" : `gpus=${uuids.slice(0, 20).map(encodeURIComponent).join(",")}`;
  const answers = await Promise.all([look(`alerts?${gpus}`), look(`alerts?state=ended&${gpus}&start=${from.toFixed(3)}&end=${to.toFixed(3)}`)]);
  return listed(answers.flatMap(({ items }) => items)).filter(({ since }) => since < to).sort((one, other) => one.since - other.since);
}

/** As a stretch of time, for timelines: to null is still so. */
export const spansOf = (alerts) => alerts.map((alert) => ({ id: alert.id, rule: alert.rule, name: alert.title, from: alert.since, to: alert.ended_at, title: withWhat(alert), severity: alert.severity, isSilenced: isSilenced(alert), place: placeOf(alert), gpu: alert.of === "node" ? "" : alert.place, uuids: alert.of === "node" ? [] : alert.gpus }));
