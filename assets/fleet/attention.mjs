// What needs a person, and what one may use: four numbers over the map, each with its list.

import { Teller, byId, say } from "../parts/dom.mjs";
import { itemsOf } from "../parts/api.mjs";
import { age, amount, bytesWords, oneWord, plural, watts } from "../parts/format.mjs";
import { grouped } from "../parts/grouped.mjs";
import { isSilenced, placeOf, withWhat } from "../alerts/alert_words.mjs";
import { AttentionLists } from "./attention_lists.mjs";
import { shortModel } from "./gpu_words.mjs";
import { placesWords } from "../pool/pool_model.mjs";

const QUEUE_EVERY_MS = 30_000;
const LOUD = ["crit", "warn"];

/** Tells `open` {uuid} and `seek` {filter}. */
export class Attention extends Teller {
  constructor(picture, live, firing) {
    super();
    // `firingThen`, `moment`: of a moment that is over, while one is shown.
    Object.assign(this, { picture, live, firing, totals: null, queue: null, firingThen: null, moment: null });
    this.redraw = () => this.draw();
    this.lists = new AttentionLists(this);
    firing.addEventListener("change", () => this.draw());
    for (const name of ["claim", "back"]) live.addEventListener(name, () => this.askQueue());
    live.opened().then(() => this.askQueue());
  }

  async askQueue() {
    clearTimeout(this.timer);
    if (!document.hidden) this.queue = await itemsOf("claims", this.queue);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.askQueue(), QUEUE_EVERY_MS);
    this.draw();
  }

  take(totals) {
    this.totals = totals;
    this.draw();
  }

  /** What fired at moments that are over; null: live again. */
  showThen(firingThen) {
    this.firingThen?.removeEventListener("change", this.redraw);
    Object.assign(this, { firingThen, moment: null });
    firingThen?.addEventListener("change", this.redraw);
    this.lists.close(false);
    this.draw();
  }

  takeThen(moment) {
    this.moment = moment;
    this.draw();
  }

  get isThen() {
    return this.firingThen !== null;
  }

  /** Of the moment that is shown; null: it is not loaded. */
  get shown() {
    if (!this.isThen) return this.totals;
    return this.picture.isKnownThen && this.moment?.at === this.picture.at ? this.moment.totals : null;
  }

  /** Those that count; the silenced ones are named at the end of their list. */
  alerts(isCounted = (one) => !isSilenced(one)) {
    return (this.firingThen ?? this.firing).listed.filter(isCounted).filter((one) => LOUD.includes(one.severity))
      .sort((one, other) => LOUD.indexOf(one.severity) - LOUD.indexOf(other.severity) || one.since - other.since);
  }

  /** The worst first: memory times time. */
  wasted() {
    const now = this.shown.at;
    return [...this.picture.wasted.values()].sort((one, other) => (now - other.since) * other.bytes - (now - one.since) * one.bytes);
  }

  waiting() {
    return (this.queue ?? []).filter(({ starts_at: at }) => at === null || at * 1000 <= Date.now());
  }

  draw() {
    if (this.totals === null || this.picture.epoch !== this.totals.epoch) return;
    const isLoaded = this.shown !== null;
    const words = { wasted: () => this.wastedWords(), free: () => this.freeWords(), attention: () => this.alertWords(), queue: () => this.queueWords() };
    for (const [key, of] of Object.entries(words)) put(key, isLoaded ? of() : { figure: "–", detail: "…" });
    this.lists.refresh();
  }

  wastedWords() {
    const { wasted: { gpus, mem_bytes: bytes, gpu_hours_today: hours }, at } = this.shown;
    const today = hours === null ? "" : `${amount(hours, 1)} idle GPU-hours today`;
    if (gpus === 0) return { figure: "none", detail: today };
    const rows = this.wasted();
    const worst = rows.filter(({ slot }) => this.nameOf(slot) === this.nameOf(rows[0].slot));
    const more = gpus > worst.length ? `and ${gpus - worst.length} more` : "";
    return { tone: "waste", figure: plural(gpus, "GPU"), detail: [`${this.nameOf(rows[0].slot)} ${this.gpusWords(worst)}, idle ${age(at - rows[0].since)}`, more, `${bytesWords(bytes)} held`, today].filter(Boolean).join(" · ") };
  }

  nameOf(slot) {
    return `${this.picture.ownerName(slot)} on ${this.picture.host(slot)}`;
  }

  gpusWords(rows) {
    return `GPU ${placesWords(rows.map(({ slot }) => this.picture.placeName(slot)))}`;
  }

  freeWords() {
    const gpus = { total: this.totals.gpus.total, ...this.shown.gpus };
    const models = [...grouped(this.picture.freeSlots(), (slot) => this.picture.modelName(slot))].sort(([, one], [, other]) => other.length - one.length);
    return { figure: gpus.free === 0 ? "none" : amount(gpus.free), detail: [this.isThen ? "" : `of ${amount(gpus.total)}`, ...models.map(([model, slots]) => `${slots.length} × ${shortModel(model)}`)].filter(Boolean).join(" · ") };
  }

  alertWords() {
    if (!this.isThen && !this.firing.isKnown) return { figure: "–", detail: "…" };
    const alerts = this.alerts();
    if (alerts.length === 0) return { figure: "none", detail: "no alert is firing" };
    const critical = alerts.filter(({ severity }) => severity === "crit").length;
    const kinds = [[critical, "critical"], [alerts.length - critical, alerts.length - critical === 1 ? "warning" : "warnings"]];
    return { tone: critical > 0 ? "critical" : "waste", figure: amount(alerts.length), detail: `${kinds.filter(([count]) => count > 0).map(([count, word]) => `${count} ${word}`).join(", ")} · ${withWhat(alerts[0])}: ${placeOf(alerts[0])}` };
  }

  queueThen() {
    const { queue } = this.moment;
    if (queue === null) return { figure: "–", detail: "not known" };
    if (queue.waiting === 0) return { figure: "none", detail: "no one waiting" };
    return { figure: `${amount(queue.waiting)} waiting`, detail: `next: ${queue.owner}, ${plural(queue.gpus, "GPU")}` };
  }

  queueWords() {
    if (this.isThen) return this.queueThen();
    const waiting = this.waiting();
    if (this.queue === null) return { figure: "–", detail: "not known" };
    if (waiting.length === 0) return { figure: "none", detail: "no one waiting" };
    const [{ owner, gpus, estimate }] = waiting;
    return { figure: `${amount(waiting.length)} waiting`, detail: `next: ${owner}, ${plural(gpus, "GPU")}${estimate === "" ? "" : `, ${estimate}`}` };
  }
}

// One text in each: were the unit an element of its own, it would jump with every digit more.
function put(key, { figure, detail, tone = "calm" }) {
  const card = byId(`card-${key}`);
  const [, first, second] = card.children;
  card.dataset.tone = tone;
  say(first, figure);
  say(second, detail);
}

/** What is well, in one quiet line. */
export function drawSummary({ simulated, healthy, nodes, gpus, util_mean_pct: util, power_w: power, mem_used_bytes: used, mem_total_bytes: total, tasks }) {
  const all = nodes.live + nodes.suspect + nodes.silent;
  const share = used === null || !total ? "" : ` (${amount((100 * used) / total)} %)`;
  const invented = simulated === 0 ? [] : [simulated === all ? "Simulated fleet" : `${amount(simulated)} of ${plural(all, "node")} simulated`];
  say(byId("summary"), [...invented, `${amount(healthy)} of ${plural(all, "node")} healthy`, `${amount(gpus.ok)} of ${plural(gpus.total, "GPU")}`, ...figures(util, power, used === null ? null : `${bytesWords(used)}${share} in use`), plural(tasks, "task")].join(" · "));
}

/** Of a moment that is over; null: not known yet. */
export function drawSummaryThen(totals) {
  const { nodes, gpus_ok: ok, gpus_seen: seen, util_mean_pct: util, power_w: power, mem_used_bytes: used } = totals ?? {};
  say(byId("summary"), totals === null ? "…" : [plural(nodes, "node"), `${amount(ok)} of ${plural(seen, "GPU")}`, ...figures(util, power, used === null ? null : `${bytesWords(used)} in use`)].join(" · "));
}

const figures = (util, power, memory) => [
  util === null ? null : `average utilization ${amount(util)} %`, power === null ? null : oneWord(watts(power)), memory].filter((words) => words !== null);

/** How many each ready filter finds, as far as it is known of that moment, and which is pressed. */
export function drawChips(totals, filter, person) {
  const mine = (person?.unix_names ?? []).map((name) => `user:${name}`).join(" | ");
  Object.assign(byId("chip-mine"), { disabled: mine === "", title: mine === "" ? "Your account has no Unix name. An admin can add one in Settings" : "" });
  byId("chip-mine").dataset.seek = mine;
  const { gpus, wasted, throttled } = totals ?? { gpus: null };
  const counts = gpus === null ? {} : { wasted: wasted.gpus, free: gpus.free, throttled, failed: gpus.lost + gpus.error };
  for (const chip of byId("chips").children) {
    const count = counts[chip.id.slice("chip-".length)];
    if (chip.id !== "chip-mine") say(chip.lastElementChild, count > 0 ? amount(count) : "");
    chip.setAttribute("aria-pressed", String(filter !== "" && filter === chip.dataset.seek));
  }
}
