// Needs attention: four numbers over the map, each with its list.

/** @import { FleetState } from "../live/fleet_state.mjs" */
/** @import { Live } from "../live/live.mjs" */
/** @import { Firing, FiringThen } from "../alerts/firing.mjs" */

import { Teller, allWithin, byId, say, within } from "../parts/dom.mjs";
import { itemsOf } from "../parts/api.mjs";
import { age, amount, bytesWords, oneWord, plural, watts } from "../parts/format.mjs";
import { grouped } from "../parts/grouped.mjs";
import { isSilenced, placeOf, withWhat } from "../alerts/alert_words.mjs";
import { AttentionLists } from "./attention_lists.mjs";
import { shortModel } from "./gpu_words.mjs";
import { placesWords } from "../pool/pool_model.mjs";

const QUEUE_EVERY_MS = 30_000;
const LOUD = ["crit", "warn"];
/** @type {(alert: Hub.AlertView) => boolean} */
const isHeard = (alert) => !isSilenced(alert);
const CARDS = /** @type {const} */ (["wasted", "free", "attention", "queue"]);

/** @extends {Teller<{ open: { uuid: string }, seek: { filter: string } }>} */
export class Attention extends Teller {
  /** @type {Hub.Totals | null} */
  totals = null;
  /** @type {Hub.ClaimView[] | null} */
  queue = null;
  /** @type {FiredAlerts | null} */
  firingThen = null; // of a past moment, while one is shown
  /** @type {ShownMoment | null} */
  moment = null;
  /** @type {number | undefined} */
  timer;

  /**
   * @param {FleetState} picture
   * @param {Live} live
   * @param {Firing} firing
   */
  constructor(picture, live, firing) {
    super();

    this.picture = picture;
    this.live = live;
    this.firing = firing;

    this.redraw = () => this.draw();
    this.lists = new AttentionLists(this);
    firing.addEventListener("change", () => this.draw());
    live.addEventListener("claim", () => this.askQueue());
    live.addEventListener("back", () => this.askQueue());
    live.opened().then(() => this.askQueue());
  }

  async askQueue() {
    clearTimeout(this.timer);
    if (!document.hidden) this.queue = (await itemsOf("claims")) ?? this.queue;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.askQueue(), QUEUE_EVERY_MS);
    this.draw();
  }

  /** @type {(totals: Hub.Totals) => void} */
  take(totals) {
    this.totals = totals;
    this.draw();
  }

  /**
   * Shows the alerts of past moments; null: live again.
   * @type {(firingThen: FiringThen | null) => void}
   */
  showThen(firingThen) {
    this.firingThen?.removeEventListener("change", this.redraw);
    this.firingThen = firingThen;
    this.moment = null;
    firingThen?.addEventListener("change", this.redraw);
    this.lists.close(false);
    this.draw();
  }

  /** @type {(moment: ShownMoment) => void} */
  takeThen(moment) {
    this.moment = moment;
    this.draw();
  }

  get isThen() {
    return this.firingThen !== null;
  }

  /**
   * Totals of the moment that is shown; null: they are not loaded.
   * @type {Hub.Totals | TotalsThen | null}
   */
  get shown() {
    if (!this.isThen) return this.totals;
    return this.picture.isKnownThen && this.moment?.at === this.picture.at
      ? (this.moment?.totals ?? null)
      : null;
  }

  /**
   * Returns the alerts that count; silenced ones are named at the end of their list.
   * @type {(isCounted?: (alert: Hub.AlertView) => boolean) => Hub.AlertView[]}
   */
  alerts(isCounted = isHeard) {
    /** @type {FiredAlerts} */
    const firing = this.firingThen ?? this.firing;
    return firing.listed
      .filter(isCounted)
      .filter(({ severity }) => LOUD.includes(severity))
      .sort(
        (one, other) =>
          LOUD.indexOf(one.severity) - LOUD.indexOf(other.severity) || one.since - other.since,
      );
  }

  /** The worst first: memory times time. */
  wasted() {
    const now = this.shown?.at ?? NaN;
    return [...this.picture.wasted.values()].sort(
      (one, other) => (now - other.since) * other.bytes - (now - one.since) * one.bytes,
    );
  }

  waiting() {
    return (this.queue ?? []).filter(({ starts_at: at }) => at === null || at * 1000 <= Date.now());
  }

  draw() {
    const { totals, shown } = this;
    if (totals === null || this.picture.epoch !== totals.epoch) return;
    const cards =
      shown === null
        ? null
        : {
            wasted: this.wastedWords(shown),
            free: this.freeWords(shown, totals),
            attention: this.alertWords(),
            queue: this.queueWords(),
          };
    for (const key of CARDS) put(key, cards === null ? { figure: "–", detail: "…" } : cards[key]);
    this.lists.refresh();
  }

  /** @type {(shown: Hub.Totals | TotalsThen) => CardWords} */
  wastedWords({ wasted: { gpus, mem_bytes: bytes, gpu_hours_today: hours }, at }) {
    const today = hours === null ? "" : `${amount(hours, 1)} idle GPU-hours today`;
    if (gpus === 0) return { figure: "none", detail: today };
    const rows = this.wasted();
    const worst = rows.filter(({ slot }) => this.nameOf(slot) === this.nameOf(rows[0].slot));
    const more = gpus > worst.length ? `and ${gpus - worst.length} more` : "";
    return {
      tone: "waste",
      figure: plural(gpus, "GPU"),
      detail: [
        `${this.nameOf(rows[0].slot)} ${this.gpusWords(worst)}, idle ${age(at - rows[0].since)}`,
        more,
        `${bytesWords(bytes)} held`,
        today,
      ]
        .filter(Boolean)
        .join(" · "),
    };
  }

  /** @type {(slot: number) => string} */
  nameOf(slot) {
    return `${this.picture.ownerName(slot)} on ${this.picture.host(slot)}`;
  }

  /** @type {(rows: WastedGpu[]) => string} */
  gpusWords(rows) {
    return `GPU ${placesWords(rows.map(({ slot }) => this.picture.placeName(slot)))}`;
  }

  /** @type {(shown: Hub.Totals | TotalsThen, totals: Hub.Totals) => CardWords} */
  freeWords(shown, totals) {
    const gpus = { total: totals.gpus.total, ...shown.gpus };
    const models = [
      ...grouped(this.picture.freeSlots(), (slot) => this.picture.modelName(slot)),
    ].sort(([, one], [, other]) => other.length - one.length);
    return {
      figure: gpus.free === 0 ? "none" : amount(gpus.free),
      detail: [
        this.isThen ? "" : `of ${amount(gpus.total)}`,
        ...models.map(([model, slots]) => `${slots.length} × ${shortModel(model)}`),
      ]
        .filter(Boolean)
        .join(" · "),
    };
  }

  /** @type {() => CardWords} */
  alertWords() {
    if (!this.isThen && !this.firing.isKnown) return { figure: "–", detail: "…" };
    const alerts = this.alerts();
    if (alerts.length === 0) return { figure: "none", detail: "no alert is firing" };
    const critical = alerts.filter(({ severity }) => severity === "crit").length;
    const warnings = alerts.length - critical;
    const kinds = [
      critical > 0 ? `${critical} critical` : "",
      warnings > 0 ? plural(warnings, "warning") : "",
    ];
    return {
      tone: critical > 0 ? "critical" : "waste",
      figure: amount(alerts.length),
      detail: `${kinds.filter(Boolean).join(", ")} · ${withWhat(alerts[0])}: ${placeOf(alerts[0])}`,
    };
  }

  /** @type {() => CardWords} */
  queueThen() {
    const queue = this.moment?.queue ?? null;
    if (queue === null) return { figure: "–", detail: "not known" };
    if (queue.waiting === 0) return { figure: "none", detail: "no one waiting" };
    return {
      figure: `${amount(queue.waiting)} waiting`,
      detail: `next: ${queue.owner}, ${plural(queue.gpus ?? 0, "GPU")}`,
    };
  }

  /** @type {() => CardWords} */
  queueWords() {
    if (this.isThen) return this.queueThen();
    const waiting = this.waiting();
    if (this.queue === null) return { figure: "–", detail: "not known" };
    if (waiting.length === 0) return { figure: "none", detail: "no one waiting" };
    const [{ owner, gpus, estimate }] = waiting;
    return {
      figure: `${amount(waiting.length)} waiting`,
      detail: `next: ${owner}, ${plural(gpus, "GPU")}${estimate === "" ? "" : `, ${estimate}`}`,
    };
  }
}

// One text in each: were the unit an element of its own, it would jump with every digit more.
/** @type {(key: string, words: CardWords) => void} */
function put(key, { figure, detail, tone = "calm" }) {
  const card = byId(`card-${key}`);
  const [, first, second] = card.children;
  card.dataset.tone = tone;
  say(first, figure);
  say(second, detail);
}

/**
 * Draws the quiet line: what is well.
 * @type {(totals: Hub.Totals) => void}
 */
export function drawSummary({
  simulated,
  healthy,
  nodes,
  gpus,
  util_mean_pct: util,
  power_w: power,
  mem_used_bytes: used,
  mem_total_bytes: total,
  tasks,
}) {
  const all = nodes.live + nodes.suspect + nodes.silent;
  const share = used === null || !total ? "" : ` (${amount((100 * used) / total)} %)`;
  const invented =
    simulated === 0
      ? []
      : [
          simulated === all
            ? "Simulated fleet"
            : `${amount(simulated)} of ${plural(all, "node")} simulated`,
        ];
  say(
    byId("summary"),
    [
      ...invented,
      `${amount(healthy)} of ${plural(all, "node")} healthy`,
      `${amount(gpus.ok)} of ${plural(gpus.total, "GPU")}`,
      ...figures(util, power, used === null ? null : `${bytesWords(used)}${share} in use`),
      plural(tasks, "task"),
    ].join(" · "),
  );
}

/**
 * Value of a past moment; null: not known yet.
 * @type {(totals: Hub.PastTotalsView | null) => void}
 */
export function drawSummaryThen(totals) {
  if (totals === null) {
    say(byId("summary"), "…");
    return;
  }
  const {
    nodes,
    gpus_ok: ok,
    gpus_seen: seen,
    util_mean_pct: util,
    power_w: power,
    mem_used_bytes: used,
  } = totals;
  say(
    byId("summary"),
    [
      plural(nodes, "node"),
      `${amount(ok)} of ${plural(seen, "GPU")}`,
      ...figures(util, power, used === null ? null : `${bytesWords(used)} in use`),
    ].join(" · "),
  );
}

/** @type {(util: number | null, power: number | null, memory: string | null) => string[]} */
const figures = (util, power, memory) =>
  [
    util === null ? null : `average utilization ${amount(util)} %`,
    power === null ? null : oneWord(watts(power)),
    memory,
  ].filter((words) => words !== null);

/**
 * Returns the count of each ready filter; null: not known.
 * @type {(totals: Hub.Totals | TotalsThen | null) => Record<string, number | null>}
 */
function countsOf(totals) {
  if (totals === null) return {};
  const { gpus, wasted } = totals;
  const counts = { wasted: wasted.gpus, free: gpus.free };
  return "throttled" in totals
    ? { ...counts, throttled: totals.throttled, failed: totals.gpus.lost + totals.gpus.error }
    : counts;
}

/**
 * Draws the ready filters, with their counts at that moment and which is pressed.
 * @type {(totals: Attention["shown"], filter: string, person: Person | null) => void}
 */
export function drawChips(totals, filter, person) {
  const mine = (person?.unix_names ?? []).map((name) => `user:${name}`).join(" | ");
  Object.assign(byId("chip-mine"), {
    disabled: mine === "",
    title: mine === "" ? "Your account has no Unix name. An admin can add one in Settings" : "",
  });
  byId("chip-mine").dataset.seek = mine;
  const counts = countsOf(totals);
  for (const chip of allWithin(byId("chips"), ":scope > *")) {
    const count = counts[chip.id.slice("chip-".length)] ?? 0;
    if (chip.id !== "chip-mine")
      say(within(chip, ":scope > :last-child"), count > 0 ? amount(count) : "");
    chip.setAttribute("aria-pressed", String(filter !== "" && filter === chip.dataset.seek));
  }
}
