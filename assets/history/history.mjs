// The History page: a figure of the past that one zooms, sends to somebody and takes away as a file.

import { writeQuery } from "../parts/address.mjs";
import { readMetricCatalogue } from "../parts/metric_catalogue.mjs";
import { alertsOf, spansOf } from "../alerts/firing.mjs";
import { itemsOf } from "../parts/api.mjs";
import { AlertLane } from "../charts/alert_lane.mjs";
import { metricsOf } from "../charts/chart_plan.mjs";
import { pageColours, strokeOf } from "../charts/chart.mjs";
import { sentence } from "../parts/dialog.mjs";
import { byId, isShortcut, make, onTheme, say, sayOrHide, settle, show, theme } from "../parts/dom.mjs";
import { amount, plural } from "../parts/format.mjs";
import { eventsOf, knownSpan, loadPath, moved, seriesOf, seriesPath, stepFor, usagePath } from "./history_data.mjs";
import { figureOfGpus, plain } from "./history_figure.mjs";
import { Subject } from "./history_subject.mjs";
import { Graph } from "../charts/graph.mjs";
import { plotly } from "../charts/plotly.mjs";
import { HOUR_S, Moments, boundsOf, localText, nowS, readSpan, stepWords, writeSpan, zoneOffset } from "../parts/time_ranges.mjs";
import { nameTab } from "../parts/tab.mjs";
import { toast } from "../parts/toast.mjs";

const STANDARD = ["util_pct", "mem_used_bytes", "power_w", "temp_c"];
// Their highest is the band of what they are the highest of; of counters and masks there is no mean.
const NOT_DRAWN = new Set(["util_max_pct", "power_max_w", "energy_j", "throttle_bits"]);
const MOST_METRICS = 6;
const SETTLE_MS = 250;
const ELSE = "Choose the fleet, a group, a model, a node, a GPU or an owner above.";
const LEAST_S = 10;
const LEAST_SUMMED_S = 120; // sums are of whole minutes: in less there may be none
const MUCH = 0.7; // with less data than this share of the span, a closer look is offered
const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false, scrollZoom: false, showTips: false };

export default class History {
  constructor(root, live) {
    const query = new URLSearchParams(location.search);
    Object.assign(this, { root, live, whole: null, data: null, facts: null, events: { items: [], isAll: true }, alerts: [], number: 0, isPan: false, hasBand: true, isHeld: false });
    this.attended = new Set();
    this.book = readMetricCatalogue();
    this.lines = byId("past-lines");
    this.graph = new Graph("past-graph");
    this.lane = new AlertLane(byId("past-lane"));
    this.figure = null; // the one of them that is shown
    this.metrics = query.getAll("metric").filter((key) => this.choices().includes(key)).slice(0, MOST_METRICS);
    if (this.metrics.length === 0) this.metrics = STANDARD;
    this.subject = new Subject(query, byId("past-what-place"), byId("past-gpus"), () => this.reset());
    this.span = readSpan(query, this.subject.kind === "fleet" ? "24h" : "1h");
    this.isOpening = !["last", "start", "end"].some((name) => query.has(name));
    this.moments = new Moments(root, "past", (start, end) => this.choose({ start, end }));
    this.listen();
    this.begin();
  }

  choices() {
    return this.book.columns.filter((key) => !NOT_DRAWN.has(key));
  }

  listen() {
    byId("past-ranges").addEventListener("click", ({ target }) => target.dataset.last && this.choose({ last: target.dataset.last }));
    byId("past-metrics").addEventListener("click", ({ target }) => target.dataset.key && this.toggle(target.dataset.key));
    byId("past-back").addEventListener("click", () => this.back());
    byId("past-fit").addEventListener("click", () => this.fit());
    byId("past-busiest").addEventListener("click", () => this.goToBusiest());
    byId("past-pan").addEventListener("click", () => this.turn("isPan", "past-pan"));
    byId("past-band").addEventListener("click", () => this.turn("hasBand", "past-band"));
    byId("past-png").addEventListener("click", () => this.savePicture());
    onTheme(() => this.redraw());
    document.addEventListener("keydown", (event) => this.onKey(event));
    document.addEventListener("visibilitychange", () => this.follow());
    // What somebody drags is not drawn anew under their hand.
    byId("past-place").addEventListener("pointerdown", () => { this.isHeld = true; }, true);
    addEventListener("pointerup", () => { this.isHeld = false; });
    this.live.addEventListener("state", () => { if (this.live.state === "live" && this.isOld) this.look(); });
  }

  async begin() {
    this.drawChips();
    try {
      await this.subject.find();
    } catch (error) {
      if (error.status === 404) { this.fail("This node does not exist, or you do not have access to it."); this.drawNone(ELSE); settle(this.root); return; }
      this.fail(`${sentence(error.message)} Retrying …`);
      setTimeout(() => this.begin(), 2_000);
      return;
    }
    this.reset();
  }

  /** Of something else, or of other metrics. */
  reset() {
    this.data = this.facts = null;
    this.events = { items: [], isAll: true };
    this.alerts = [];
    this.drawHead();
    this.look();
    settle(this.root);
  }

  choose(span) {
    this.whole = null;
    this.span = span;
    this.look();
  }

  zoomTo(start, end) {
    const latest = nowS();
    const length = Math.max(this.leastS, end - start);
    const until = Math.min(end, Math.max(latest, start + length));
    this.whole ??= this.span;
    this.span = { start: Math.max(0, until - length), end: until };
    this.drawSpan();
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.look(), SETTLE_MS);
  }

  get leastS() {
    return this.subject.hasLines ? LEAST_S : LEAST_SUMMED_S;
  }

  goToBusiest() {
    const busiest = this.facts?.busiest ?? null;
    if (busiest !== null) this.zoomTo(busiest.start, busiest.end);
  }

  fit() {
    const [from, to] = this.known ?? [];
    if (from !== undefined) this.zoomTo(from, to);
  }

  back() {
    if (this.whole !== null) this.choose(this.whole);
  }

  toggle(key) {
    const has = this.metrics.includes(key);
    if (has && this.metrics.length === 1) return;
    if (!has && this.metrics.length === MOST_METRICS) { toast(`${MOST_METRICS} charts at most: remove one first`); return; }
    this.metrics = this.choices().filter((one) => (one === key ? !has : this.metrics.includes(one)));
    this.drawChips();
    this.look();
  }

  async look() {
    clearTimeout(this.timer);
    const number = (this.number += 1);
    this.drawSpan();
    if (this.subject.isEmpty) { this.drawNone(this.subject.emptyWords()); return; }
    const bounds = boundsOf(this.span);
    const step = stepFor(this.subject, this.metrics, bounds[1] - bounds[0]);
    this.drawNone("");
    this.root.setAttribute("aria-busy", "true");
    try {
      const found = await this.ask(bounds, step);
      if (number !== this.number || this.opensOn(found, bounds)) return;
      // Of long ago the hub may have coarser steps alone.
      Object.assign(this, found, { bounds, step: (found.data ?? found.facts).step, isOld: false });
      this.fail("");
      this.drawFiles();
      await this.draw();
    } catch (error) {
      if (number !== this.number) return;
      this.isOld = true;
      this.fail(sentence(error.message));
      if (error.status === 404) this.drawNone(ELSE);
    } finally {
      if (number === this.number) this.root.removeAttribute("aria-busy");
    }
    this.follow();
  }

  /** Opened without a span, where there is less than the usual one shows: from the first data on. */
  opensOn({ data, facts }, [start, end]) {
    const known = this.subject.hasLines ? knownSpan(data) : facts.known;
    const isShort = this.isOpening && known !== null && end - known[0] < MUCH * (end - start);
    this.isOpening = false;
    if (isShort) this.choose({ since: Math.min(known[0], end - this.leastS) });
    return isShort;
  }

  /** `whole`: in which alerts are looked for. */
  async ask(bounds, step, whole = bounds) {
    const { subject } = this;
    if (!subject.hasLines) {
      const [start, end] = bounds.map(Math.round);
      const facts = await this.graph.ask({ ...subject.asked, start, end, step }, { height: this.room(), isPan: this.isPan, at: end });
      return { facts, alerts: facts.alerts === null ? null : spansOf(facts.alerts) };
    }
    const [data, events, alerts] = await Promise.all([seriesOf(subject, this.metrics, bounds, step), eventsOf(subject.gpus, subject.nodes, bounds), this.alertsIn(whole)]);
    return { data, events, alerts };
  }

  async alertsIn(bounds) {
    const [found, rules] = await Promise.all([alertsOf(this.subject.gpus, ...bounds), itemsOf("rules")]).catch(() => [[], null]);
    const metricsBy = new Map((rules ?? []).map(({ rule }) => [rule.id, metricsOf(rule.signal)]));
    return spansOf(found.filter(({ ended_at: to }) => to === null || to > bounds[0])).map((span) => ({ ...span, metrics: metricsBy.get(span.rule) }));
  }

  /** While the end is now: the newest buckets come after what is there, from the same history. */
  follow() {
    clearTimeout(this.timer);
    if (this.span.end !== undefined || document.hidden || this.subject.isEmpty) return;
    const wait = Math.min(60, Math.max(2, this.step ?? 2)) * 1000;
    // A slow machine is not kept busy with drawing.
    this.timer = setTimeout(() => this.move(), Math.max(wait, 10 * (this.drawMs ?? 0)));
  }

  async move() {
    const { number, data, step, subject } = this;
    if (this.isHeld || data === null || !subject.hasLines) { if (!this.isHeld) this.look(); else this.follow(); return; }
    const bounds = boundsOf(this.span);
    try {
      const from = Math.max(bounds[0], (data.t.at(-1) ?? bounds[0]) - 2 * step);
      const { data: tail, events, alerts } = await this.ask([from, bounds[1]], step, bounds);
      if (number !== this.number) return;
      const known = new Set(events.items.map(({ id }) => id));
      this.alerts = alerts;
      this.data = moved(data, tail, bounds[0]);
      this.events = { isAll: this.events.isAll, items: [...events.items, ...this.events.items.filter(({ id, at }) => !known.has(id) && at >= bounds[0])] };
      this.bounds = bounds;
      this.moments.show(...bounds);
      if (!this.isHeld) await this.draw();
    } catch { this.isOld = true; /* the banner says how we stand with the hub */ }
    this.follow();
  }

  room() {
    return byId("past-place").clientHeight - 2;
  }

  /** Sums of many GPUs are a figure of the hub's; lines of GPUs are drawn here, as they go on each second. */
  async draw() {
    if ((this.data ?? this.facts) === null) return;
    const { hasLines } = this.subject;
    show(this.lines, hasLines);
    show(this.graph.place, !hasLines);
    show(byId("past-lane"), this.alerts !== null);
    this.lane.draw(this.alerts ?? [], { from: this.bounds[0], to: this.bounds[1] });
    this.figure = await (hasLines ? this.drawLines() : this.graph.plot()).catch((error) => { this.fail(error.message); return null; });
    if (this.figure === null) return;
    this.offset = zoneOffset(this.bounds[1]);
    this.attend();
    this.known = hasLines ? knownSpan(this.data) : this.facts.known;
    show(byId("past-fit"), this.known !== null && (this.known[1] - this.known[0]) < MUCH * (this.bounds[1] - this.bounds[0]));
    this.drawWords();
  }

  async drawLines() {
    const Plotly = await plotly();
    const { subject, bounds, events, lines } = this;
    const made = figureOfGpus({ data: this.data, metrics: this.metrics.map((key) => this.book.metrics.get(key)), gpus: subject.gpus, labelOf: (uuid) => subject.label(uuid), events: events.items, alerts: this.alerts, hasBand: this.hasBand, bounds, colours: pageColours(), whyOf: (key) => subject.why(key), room: this.room() });
    made.layout.dragmode = this.isPan ? "pan" : "zoom";
    const began = performance.now();
    await Plotly.react(lines, made.data, made.layout, CONFIG);
    this.drawMs = this.attended.has(lines) ? performance.now() - began : 0;
    return lines;
  }

  redraw() {
    if (this.subject.hasLines) this.draw();
    else this.look();
  }

  attend() {
    if (this.attended.has(this.figure)) return;
    this.attended.add(this.figure);
    this.figure.on("plotly_relayout", (change) => {
      const [from, to] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (from !== undefined && to !== undefined) this.zoomTo(this.seconds(from), this.seconds(to));
    });
    this.figure.on("plotly_doubleclick", () => this.back());
  }

  seconds(shown) {
    const ms = typeof shown === "number" ? shown : Date.parse(`${String(shown).replace(" ", "T")}Z`);
    return ms / 1000 + this.offset;
  }

  drawHead() {
    const { title, subtitle } = this.subject;
    say(byId("past-title"), title);
    say(byId("past-subtitle"), subtitle);
    nameTab(`${title}, history`);
    const address = this.subject.liveAddress;
    show(byId("past-live"), address !== null);
    if (address !== null) byId("past-live").href = address;
    show(byId("past-metrics").parentElement, this.subject.hasLines);
    show(byId("past-band"), this.subject.hasLines);
    show(byId("past-busiest"), this.subject.kind === "fleet");
  }

  drawChips() {
    byId("past-metrics").replaceChildren(...this.choices().map((key) => {
      const { label, meaning } = this.book.metrics.get(key);
      return make("button", { type: "button", class: "chip", "data-key": key, title: meaning, "aria-pressed": String(this.metrics.includes(key)) }, label);
    }));
  }

  drawSpan() {
    for (const button of byId("past-ranges").children) button.setAttribute("aria-pressed", String(button.dataset.last === this.span.last));
    this.moments.show(...boundsOf(this.span));
    show(byId("past-back"), this.whole !== null);
    this.subject.draw((at) => strokeOf(theme(), at));
    const query = this.subject.write(new URLSearchParams());
    if (this.subject.hasLines && this.metrics.join() !== STANDARD.join()) this.metrics.forEach((key) => query.append("metric", key));
    writeSpan(query, this.span);
    writeQuery(query);
  }

  drawFiles() {
    const { subject, bounds, step } = this;
    const path = subject.hasLines ? seriesPath(subject, this.metrics, bounds, step) : subject.kind === "fleet" ? loadPath(subject, bounds, step) : usagePath(subject, bounds, step);
    for (const form of ["csv", "parquet"]) byId(`past-${form}`).href = `/api/v1/${path}&format=${form}`;
  }

  drawWords() {
    const { subject } = this;
    const words = subject.kind === "fleet" ? wordsOfFleet(this.facts) : subject.hasLines ? this.wordsOfGpus() : wordsOfOwner(this.facts);
    say(byId("past-words"), words.join(" · "));
  }

  wordsOfGpus() {
    const { alerts, events } = this;
    const isEmpty = [...this.data.lines.values()].every((metrics) => [...metrics.values()].every(({ mean }) => mean.every((value) => value === null)));
    const words = isEmpty ? ["No data in this time."] : [wordsOfStep(this.step)];
    if (alerts.length > 0) words.push(plural(alerts.length, "alert"));
    if (events.items.length > 0) words.push(events.isAll ? plural(events.items.length, "event") : `the newest ${plural(events.items.length, "event")}; zoom in to see all`);
    return words;
  }

  /** In place of a figure and of what one does with it. */
  drawNone(words) {
    sayOrHide(byId("past-none"), words);
    for (const part of [byId("past-place"), byId("past-words").parentElement]) show(part, words === "");
    show(byId("past-lane"), words === "" && this.alerts !== null);
  }

  fail(words) {
    sayOrHide(byId("past-problem"), words);
  }

  /** `what`: isPan or hasBand, by its button. */
  turn(what, id) {
    this[what] = !this[what];
    byId(id).setAttribute("aria-pressed", String(this[what]));
    this.redraw();
  }

  async savePicture() {
    if (this.figure === null) return;
    const Plotly = await plotly();
    const { data, layout } = this.figure;
    const words = { text: `${plain(this.subject.title)} · ${this.moments.zone.textContent}`, x: 0.01, xanchor: "left", y: 0.985, yanchor: "top", font: { size: 14 } };
    const margin = { ...layout.margin, t: layout.margin.t + 56 };
    const legend = { orientation: "h", xref: "container", x: 0.99, xanchor: "right", yref: "container", y: 0.99, yanchor: "top" };
    const href = await Plotly.toImage({ data, layout: { ...layout, margin, height: layout.height + 56, title: words, showlegend: this.subject.hasLines && this.subject.gpus.length > 1, legend } }, { format: "png", width: Math.max(900, this.figure.clientWidth), height: layout.height + 56, scale: 2 });
    const stretch = this.bounds.map((t) => new Date(t * 1000).toISOString().slice(0, 16).replaceAll(/[-:]/g, "")).join("_");
    make("a", { href, download: `gpudeck_history_${stretch}Z.png` }).click();
  }

  onKey(event) {
    if (!isShortcut(event)) return;
    const [start, end] = boundsOf(this.span);
    const length = end - start;
    const keys = {
      ArrowLeft: () => this.zoomTo(start - length / 4, end - length / 4), ArrowRight: () => this.zoomTo(start + length / 4, end + length / 4),
      "+": () => this.zoomTo(start + length / 4, end - length / 4), "-": () => this.zoomTo(start - length / 2, end + length / 2),
      Escape: () => this.back(), f: () => this.fit(), u: () => this.goToBusiest(), b: () => this.turn("hasBand", "past-band"), p: () => this.turn("isPan", "past-pan"),
    };
    const isOfButton = event.key.startsWith("Arrow") && event.target.closest("a, button") !== null;
    if (Object.hasOwn(keys, event.key) && !isOfButton) { event.preventDefault(); keys[event.key](); }
  }

  /** What is drawn, for tests and for the curious: [[second, mean, min, max]]. */
  line(uuid, key) {
    const band = this.data?.lines.get(uuid)?.get(key);
    return band === undefined ? null : this.data.t.map((t, at) => [t, band.mean[at], band.min[at], band.max[at]]);
  }
}

const wordsOfStep = (step) => (step === 1 ? "every second" : `steps of ${stepWords(step)}`);

function wordsOfOwner({ step, known, hours, idle_hours: idleHours, kwh }) {
  if (known === null) return ["No GPU was held in this time, or no data was recorded."];
  return [wordsOfStep(step), `${amount(hours, 1)} GPU-hours, ${amount(idleHours, 1)} of them idle`, ...(kwh === null ? [] : [`${amount(kwh, 1)} kWh`])];
}

function wordsOfFleet({ step, busiest }) {
  if (busiest === null) return ["No data in this time."];
  const { start, end, util_mean_pct: util } = busiest;
  const what = end - start === HOUR_S ? "busiest hour" : `busiest ${stepWords(end - start)}`;
  return [wordsOfStep(step), `${what} ${localText(start).slice(0, 16).replace("T", " ")} to ${localText(end).slice(11, 16)}, ${amount(util, 1)} % on average`];
}
