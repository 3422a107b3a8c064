// Firing alerts, by the GPUs and nodes where they are marked; kept up to date by the live socket, and
// asked for now and then.

import { isExplained, isSilenced, placeOf, withWhat } from "./alert_words.mjs";
import { get, itemsOf, look } from "../parts/api.mjs";
import { Teller } from "../parts/dom.mjs";

const EVERY_MS = 30_000;
export const RANKS = { info: 0, warn: 1, crit: 2 };

/**
 * The one list of alerts, for the map, the strip, lanes, panels and charts; without those that another alert explains.
 * @type {(alerts: Hub.AlertView[]) => Hub.AlertView[]}
 */
export const listed = (alerts) => alerts.filter((one) => !isExplained(one));

/**
 * Alerts by the GPUs and nodes where they are marked. Tells `change`.
 * @extends {Teller<{ change: object }>}
 */
class Marked extends Teller {
  /** @type {Map<string, Hub.AlertView[]>} */
  byGpu = new Map();
  /** @type {Map<string, Hub.AlertView[]>} */
  byNode = new Map();

  /** @type {(alerts: Hub.AlertView[]) => void} */
  mark(alerts) {
    [this.byGpu, this.byNode] = [new Map(), new Map()];
    for (const alert of listed(alerts).sort(byWorst)) {
      if (alert.of === "node") put(this.byNode, alert.node, alert);
      else for (const uuid of alert.gpus) put(this.byGpu, uuid, alert);
    }
    this.tell("change");
  }

  /**
   * A GPU's alerts, those of its tasks and those of its node; the worst first, silenced ones last.
   * @type {(uuid: string, node: string | null) => Hub.AlertView[]}
   */
  of(uuid, node) {
    const [own, around] = [this.byGpu.get(uuid) ?? [], this.byNode.get(node ?? "") ?? []];
    return around.length === 0 ? own : [...own, ...around].sort(byWorst);
  }

  get isCalm() {
    return this.byGpu.size === 0 && this.byNode.size === 0;
  }
}

export class Firing extends Marked {
  /** The hub has answered; until then nobody may say that nothing fires. */
  isKnown = false;
  /** @type {Map<string, Hub.AlertView>} */
  alerts = new Map();
  /** @type {number | undefined} */
  timer;

  /** @param {LiveLink} live */
  constructor(live) {
    super();
    live.addEventListener("alert", ({ detail }) => this.take(detail));
    live.addEventListener("back", () => this.look());
    document.addEventListener("visibilitychange", () => this.look());
    live.opened().then(() => this.look());
  }

  async look() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    const alerts = await itemsOf("alerts"); // if it does not answer, the banner says so
    if (alerts !== null) {
      this.isKnown = true;
      this.alerts = new Map(alerts.map((alert) => [alert.id, alert]));
      this.mark([...this.alerts.values()]);
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), EVERY_MS);
  }

  /** @type {(alert: Hub.AlertView) => void} */
  take(alert) {
    if (alert.state === "ended") this.alerts.delete(alert.id);
    else this.alerts.set(alert.id, alert);
    this.mark([...this.alerts.values()]);
  }

  get listed() {
    return listed([...this.alerts.values()]);
  }
}

/** Alerts that fired at a moment of the past: of those that have ended since, and of those that fire. */
export class FiringThen extends Marked {
  /** @type {number | null} */
  at = null;
  /** @type {Hub.AlertView[]} */
  ended = [];
  /** @type {Hub.AlertView[]} */
  listed = [];

  /** @param {Firing} firing */
  constructor(firing) {
    super();
    this.firing = firing;
    firing.addEventListener("change", () => this.at !== null && this.goTo(this.at));
  }

  get alerts() {
    return [...this.ended, ...this.firing.alerts.values()];
  }

  /**
   * Goes to this moment; null: to none.
   * @type {(at: number | null) => void}
   */
  goTo(at) {
    this.at = at;
    if (at === null) return;
    this.listed = listed(this.alerts).filter(
      ({ fired_at: from, ended_at: to }) => from <= at && (to === null || to > at),
    );
    this.mark([...this.listed]);
  }
}

/** @type {(one: Hub.AlertView, other: Hub.AlertView) => number} */
const byWorst = (one, other) =>
  Number(isSilenced(one)) - Number(isSilenced(other)) ||
  RANKS[other.severity] - RANKS[one.severity] ||
  one.since - other.since;

/** @type {(map: Map<string, Hub.AlertView[]>, key: string, alert: Hub.AlertView) => void} */
function put(map, key, alert) {
  const alerts = map.get(key);
  if (alerts === undefined) map.set(key, [alert]);
  else alerts.push(alert);
}

/**
 * Reads alerts that fire, or fired in this time, and are marked at these GPUs, null: at any; oldest first.
 * @type {(uuids: string[] | null, from: number, to: number) => Promise<Hub.AlertView[]>}
 */
export async function alertsOf(uuids, from, to) {
  const gpus =
    uuids === null ? "limit=1000" : `gpus=${uuids.slice(0, 20).map(encodeURIComponent).join(",")}`;
  const answers = await Promise.all([
    get(`alerts?${gpus}`),
    look(`alerts?state=ended&${gpus}&start=${from.toFixed(3)}&end=${to.toFixed(3)}`),
  ]);
  return listed(answers.flatMap(({ items }) => items))
    .filter(({ since }) => since < to)
    .sort((one, other) => one.since - other.since);
}

/**
 * Alerts as stretches of time, for timelines.
 * @type {(alerts: Hub.AlertView[]) => AlertSpan[]}
 */
export const spansOf = (alerts) =>
  alerts.map((alert) => ({
    id: alert.id,
    rule: alert.rule,
    name: alert.title,
    from: alert.since,
    to: alert.ended_at,
    title: withWhat(alert),
    severity: alert.severity,
    isSilenced: isSilenced(alert),
    place: placeOf(alert),
    gpu: alert.of === "node" ? "" : alert.place,
    uuids: alert.of === "node" ? [] : alert.gpus,
  }));
