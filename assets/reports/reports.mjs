// The Reports page: who held how much, how busy it was, what it cost. All of it stands in the address.

import { strokeOf } from "../charts/chart.mjs";
import { Graph } from "../charts/graph.mjs";
import { readView, writeView } from "../parts/address.mjs";
import { look } from "../parts/api.mjs";
import { sentence } from "../parts/dialog.mjs";
import { afterPause, byId, make, onTheme, say, sayOrHide, settle, show, theme } from "../parts/dom.mjs";
import { amount, capital, moment, plural } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";
import { HEADS, ReportTable, fine, largestOf, moneyWords, mostIdle, unknownWords } from "./reports_table.mjs";
import { DAY_S, HOUR_S, Moments, nowS, secondsOf, zoneWords } from "../parts/time_ranges.mjs";

const PERIODS = ["today", "7d", "30d", "month", "before", "custom"];
const FIELDS = { price_gpu_hour: { type: "number", min: "0", max: "999999999", step: "any", inputmode: "decimal", placeholder: "none" }, price_kwh: { type: "number", min: "0", max: "999999999", step: "any", inputmode: "decimal", placeholder: "none" }, co2_g_per_kwh: { type: "number", min: "0", max: "999999999", step: "any", inputmode: "decimal", placeholder: "none" }, currency: { type: "text", maxlength: "8", placeholder: "EUR", autocomplete: "off" } };
const TYPED_MS = 400;
const EVERY_MS = 60_000;
const TOP = 8;
const TIME_PX = 216;
const NONE = "–";
const SHOWN = { idle: ["idle_hours", "idle GPU-hours"], held: ["gpu_hours", "GPU-hours"] };
const PARTS = ["job", "launch", "slurm_job", "container", "pod", "namespace", "unit"];

export default class Reports extends Looker {
  constructor(root, live) {
    super(live, EVERY_MS, { problem: byId("reports-problem"), what: "report" });
    Object.assign(this, { root, report: null });
    this.graph = new Graph("reports-graph");
    onTheme(() => { if (this.report !== null) this.drawTop(); this.drawTime(); });
    this.view = viewNow();
    this.fields = Object.fromEntries(Object.entries(FIELDS).map(([name, traits]) => {
      const field = make("input", { id: `reports-${name}`, ...traits });
      root.querySelector(`[data-price="${name}"]`).append(field);
      field.value = this.view[name];
      return [name, field];
    }));
    this.moments = new Moments(root, "reports", (start, end) => this.choose({ start: Math.floor(start), end: Math.ceil(end) }));
    this.table = new ReportTable(byId("reports-place"), (sort, order) => { Object.assign(this.view, { sort, order }); this.write(); this.draw(); });
    this.listen();
    this.look();
  }

  get isDue() { return this.isOld; }

  listen() {
    byId("reports-period").value = this.view.period;
    byId("reports-period").addEventListener("change", ({ target }) => this.choosePeriod(target.value));
    byId("reports-by").addEventListener("change", ({ target }) => this.choose({ by: target.value }));
    byId("reports-show").addEventListener("click", ({ target }) => target.dataset.show && this.showHours(target.dataset.show));
    byId("reports-print").addEventListener("click", () => print());
    for (const [name, field] of Object.entries(this.fields)) {
      field.addEventListener("input", afterPause(TYPED_MS, () => { if (field.validity.valid) this.choose({ [name]: field.value.trim() }); }));
    }
  }

  choosePeriod(period) {
    const [start, end] = this.bounds();
    this.choose(period === "custom" ? { period, start, end } : { period });
  }

  choose(change) {
    Object.assign(this.view, change);
    this.write();
    this.look();
  }

  showHours(show) {
    this.view.show = show;
    this.write();
    if (this.report === null) return;
    this.draw();
    this.drawTime();
  }

  write() {
    const { period, start, end } = this.view;
    writeView(this.view, USUAL, period === "custom" ? [["start", start], ["end", end]] : []);
  }

  bounds() {
    const { period, start, end } = this.view;
    return period === "custom" ? [start, end] : boundsOf(period, new Date());
  }

  query() {
    const [start, end] = this.bounds();
    const query = new URLSearchParams({ by: this.view.by, start: Math.floor(start), end: Math.ceil(end) });
    for (const name of ["price_gpu_hour", "price_kwh", "co2_g_per_kwh"]) {
      // As people type it: "1e3" and "2." are no plain decimals.
      const price = this.view[name] === "" ? NaN : Number(this.view[name]);
      if (Number.isFinite(price) && price >= 0) query.set(name, price.toFixed(9).replace(/\.?0+$/, ""));
    }
    return query;
  }

  async ask() {
    this.drawControls();
    this.root.setAttribute("aria-busy", "true");
    const query = this.query();
    return { query, report: await look(`reports?${query}`) };
  }

  take({ query, report }) {
    this.report = report;
    for (const form of ["csv", "parquet"]) byId(`reports-${form}`).href = `/api/v1/reports?${query}&format=${form}`;
    this.draw();
    this.drawTime();
    this.stand();
  }

  fail(error) {
    super.fail(error);
    this.stand();
  }

  stand() {
    this.root.removeAttribute("aria-busy");
    settle(this.root);
  }

  drawControls() {
    byId("reports-by").value = this.view.by;
    byId("reports-period").value = this.view.period;
    show(byId("reports-custom"), this.view.period === "custom");
    this.moments.show(...this.bounds());
  }

  draw() {
    const { report, view } = this;
    const { start, end } = report;
    say(byId("reports-words"), `${moment(start)} to ${moment(Math.min(end, nowS()))} (${zoneWords(end)}), in whole hours`);
    sayOrHide(byId("reports-coverage"), coverageWords(report));
    this.drawLead();
    this.drawTop();
    this.table.draw(report, view, { span: `start=${start}&end=${end}` });
    byId("reports-notes").replaceChildren(...notesOf(report).map((words) => make("span", {}, words)));
  }

  /** Idle hours where there are any, unless all are asked for. */
  get shown() {
    return this.view.show === "idle" && (this.report.total.idle_hours ?? 0) > 0 ? "idle" : "held";
  }

  get largest() {
    const { items } = this.report;
    return this.shown === "held" ? largestOf(items, "gpu_hours", TOP) : largestOf(items.filter(({ idle_hours: idle }) => idle > 0), "idle_hours", TOP);
  }

  drawLead() {
    const { report, view } = this;
    const { total, items } = report;
    const isKnown = total.idle_hours !== null;
    const hasIdle = isKnown && total.idle_hours > 0;
    drawCard("idle", hasIdle, isKnown ? (hasIdle ? fine(total.idle_hours) : "none") : NONE, items.length === 0 ? "" : `of ${fine(total.gpu_hours)} GPU-hours${hasIdle ? `, ${share(total.idle_share)}` : ""}`);
    drawCard("cost", hasIdle && total.idle_cost !== null, total.idle_cost === null ? NONE : moneyWords(total.idle_cost, view.currency), report.price_gpu_hour === null && total.idle_cost === null ? "Enter a price per GPU-hour above" : total.cost === null ? "" : `of ${moneyWords(total.cost, view.currency)}`);
    const most = hasIdle ? mostIdle(items) : null;
    drawCard("most", hasIdle, most === null ? "none" : most.name ?? unknownWords(report.by),
      most === null ? "" : `${[`${fine(most.idle_hours)} idle GPU-hours`, `${share(most.idle_hours / total.idle_hours)} of all`, ...(most.idle_cost === null ? [] : [moneyWords(most.idle_cost, view.currency)])].join(" · ")}`);
  }

  /** When the hours were: the largest, stacked, and all others above them. */
  async drawTime() {
    const { report } = this;
    if (report === null) return;
    const names = Object.fromEntries(this.largest.filter(({ of }) => of !== null).map((item) => [item.of, item.name ?? unknownWords(report.by)]));
    say(byId("reports-time-title"), `${capital(SHOWN[this.shown][1])} over time`);
    try {
      await this.graph.ask({ by: report.by, start: Math.floor(Math.max(report.start, report.since ?? 0)), end: Math.ceil(Math.min(report.end, nowS())), names, show: this.shown }, { height: TIME_PX, at: report.end });
      sayOrHide(byId("reports-time-problem"), "");
    } catch (error) {
      sayOrHide(byId("reports-time-problem"), sentence(error.message));
    }
  }

  /** The largest at a glance: what was held idle; of all hours also what was worked with. */
  drawTop() {
    const items = this.largest;
    const [key, words] = SHOWN[this.shown];
    const most = Math.max(0, ...items.map((item) => item[key]));
    show(byId("reports-top").parentElement, most > 0);
    for (const one of byId("reports-show").children) one.setAttribute("aria-pressed", String(one.dataset.show === this.shown));
    const isHeld = this.shown === "held";
    let colours = 0; // as many as the figure has: it has none for what is not known
    byId("reports-top").replaceChildren(
      make("h2", {}, `Top ${items.length} by ${words}`, isHeld ? make("span", { class: "top-key" }, make("i", { class: "top-idle" }), "idle", make("i", { class: "top-used" }), "in use") : null),
      ...items.map((item) => {
        const [used, idle] = [make("i", { class: "top-used" }), make("i", { class: "top-idle" })];
        const idleHours = item.idle_hours ?? 0;
        used.style.width = isHeld ? `${(100 * (item.gpu_hours - idleHours)) / most}%` : "0";
        idle.style.width = `${(100 * idleHours) / most}%`;
        return make("div", { class: "top-row" }, make("span", { class: "top-name" }, swatch(item.of === null ? null : colours++), item.name ?? unknownWords(this.view.by)),
          make("span", { class: "top-bar", role: "img", "aria-label": `${amount(item.gpu_hours, 1)} GPU-hours, ${amount(idleHours, 1)} idle` }, idle, used),
          make("span", { class: "top-hours" }, item[key] === null ? NONE : fine(item[key])));
      }));
  }
}

function drawCard(key, isWaste, figure, detail) {
  const card = byId(`reports-${key}`);
  card.dataset.tone = isWaste ? "waste" : "";
  say(card.children[1], figure);
  say(card.children[2], detail);
}

const USUAL = { period: "7d", by: "user", price_gpu_hour: "", price_kwh: "", co2_g_per_kwh: "", currency: "", sort: "idle_hours", order: "desc", show: "idle" };

function viewNow() {
  const view = readView(USUAL, { by: Object.keys(HEADS), order: ["asc", "desc"], show: Object.keys(SHOWN) });
  const query = new URLSearchParams(location.search);
  const [start, end] = [secondsOf(query.get("start")), secondsOf(query.get("end"))];
  if (start !== null && end !== null && start < end) Object.assign(view, { period: "custom", start, end });
  else if (!PERIODS.includes(view.period) || view.period === "custom") view.period = USUAL.period;
  view.currency = view.currency.slice(0, 8);
  return view;
}

/** The colour that they have in the figure beside it. */
function swatch(at) {
  const mark = make("i", { class: "top-swatch" });
  mark.style.background = at === null ? "transparent" : strokeOf(theme(), at).stroke;
  return mark;
}

const share = (part) => (part < 0.01 ? "less than 1 %" : `${Math.floor(100 * part)} %`);

/** Of the calendar on the wall. */
function boundsOf(period, now) {
  const day = (year, month, date) => new Date(year, month, date).getTime() / 1000;
  const [year, month, date] = [now.getFullYear(), now.getMonth(), now.getDate()];
  const end = now.getTime() / 1000;
  const found = { "today": [day(year, month, date), end], "7d": [end - 7 * DAY_S, end], "30d": [end - 30 * DAY_S, end], "month": [day(year, month, 1), end], "before": [day(year, month - 1, 1), day(year, month, 1)] }[period];
  return found[0] < found[1] ? found : [found[1] - HOUR_S, found[1]];
}

/** Above all numbers: how much of the span they are of. */
function coverageWords({ coverage, backfilling, start, end }) {
  if (coverage === null || coverage >= 0.995) return backfilling > 0 ? `Backfill under way: ${plural(backfilling, "node")} still ${backfilling === 1 ? "sends" : "send"} what was measured while the hub was away.` : "";
  const wholeS = Math.min(end, nowS()) - start;
  const [unit, words] = wholeS < 3 * HOUR_S ? [60, "min"] : wholeS < 3 * DAY_S ? [HOUR_S, "h"] : [DAY_S, "days"];
  const digits = unit === 60 ? 0 : 1;
  const found = `${amount((coverage * wholeS) / unit, digits)} of ${amount(wholeS / unit, digits)} ${words}`;
  return backfilling > 0 ? `This span is being filled: ${found}; backfill under way.` : `History covers ${found} (${share(coverage)}) of ${end > nowS() ? "this span until now" : "this span"}.`;
}

function notesOf({ items, since, start, by }) {
  const notes = ["A GPU-hour is an hour in which a task was on a GPU. Owners sharing a GPU each count it in full; its energy is divided among them."];
  if (by === "node" || by === "gpu" || by === "model") notes.push(`The GPU-hours of a ${HEADS[by]} are the total of its owners.`);
  if (PARTS.includes(by)) notes.push("Where jobs of one owner share a GPU, its hours are divided among them by their time; average memory is of each job on each GPU.");
  if (by === "team") notes.push("No owner is in two teams, as the table in Settings says now; a team that has a price is billed at it.");
  if (items.some(({ energy_kwh: energy, energy_share: share }) => energy !== null && share < 0.995)) notes.push("≥: power readings are incomplete; energy and cost are minimums.");
  if (since !== null && since > start + HOUR_S) notes.push(`Data starts on ${moment(since)}.`);
  return notes;
}

