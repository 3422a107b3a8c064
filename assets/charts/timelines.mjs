// The GPU, Node and Compare pages: live timelines with one cursor and one span for all.

/** @import { Holds } from "../actions/holds.mjs" */
/** @import { Live } from "../live/live.mjs" */

import { ApiError } from "../parts/api.mjs";
import { metricOf, readMetricCatalogue } from "../parts/metric_catalogue.mjs";
import { AlertLane } from "./alert_lane.mjs";
import { Chart, joinLines } from "./chart.mjs";
import { pageColours } from "../parts/page_colours.mjs";
import { bandsOf, chartsOf, neverOf, togetherOf, wordsOf } from "./chart_plan.mjs";
import { allWithin, byId, isShortcut, make, messageOf, onTheme, redraw, say, sayOrHide, settle, show, targetOf } from "../parts/dom.mjs";
import { sentence } from "../parts/dialog.mjs";
import { plural } from "../parts/format.mjs";
import { grouped } from "../parts/grouped.mjs";
import { LineStore } from "./line_store.mjs";
import { LinesPast } from "./lines_past.mjs";
import { findMachines, idOf, properAddress, readPlace } from "./machine_address.mjs";
import { pastOf } from "../fleet/past_series.mjs";
import { nodeAddress } from "../parts/missing.mjs";
import { nameMetrics } from "../fleet/gpu_metrics.mjs";
import { GpuTiles } from "./gpu_tiles.mjs";
import { troubleOf } from "./gpu_trouble.mjs";
import { nameTab } from "../parts/tab.mjs";
import { MachineSide } from "./side_panel.mjs";
import { fleetAddress, writeQuery } from "../parts/address.mjs";
import { explainedList, settleList } from "../parts/tips.mjs";

const REFRESH_MS = 2_000;
// What a frame may take for drawing: a timeline that comes a frame later is not seen to.
const DRAW_MS = 8;
const PAPER_WIDTH = 320;
const SIDE_MS = 10_000; // the side panel comes whole, or as it is by then; the charts do not wait for it
/** @type {Record<string, string>} */
const EMPTY = { node: "This node reports no GPU at the moment. The state of its reader is shown in the side panel.", compare: "These GPUs are unknown. Select some on the Fleet page." };
const SPANS = [["300", "5 min"], ["900", "15 min"], ["3600", "1 h"]];

export default class Timelines {
  /** @type {Hub.GpuView[]} */
  gpus = [];
  /** @type {Hub.NodeView | null} */
  node = null;
  /** @type {ShownChart[]} */
  charts = [];
  /** @type {TimeRange | null} */
  zoom = null;
  /** @type {LinesPast | null} */
  past = null;
  /** @type {Set<ShownChart>} */
  dirty = new Set();
  /** @type {Map<string, string>} */
  owners = new Map();
  /** @type {Map<string, ChartLabel>} */
  labels = new Map();
  /** @type {number | null} */
  frame = null;

  /**
   * @param {HTMLElement} root
   * @param {Live} live
   * @param {Holds} holds
   */
  constructor(root, live, holds) {
    this.root = root;
    this.live = live;
    this.holds = holds;

    this.book = readMetricCatalogue();
    this.place = readPlace(location);
    this.store = new LineStore(this.book.columns);
    this.side = new MachineSide(this, byId("lines-side"));
    setTimeout(() => settle(this.side.root), SIDE_MS);
    this.tiles = new GpuTiles(byId("lines-gpus"), this.book, this.place.kind === "node", (uuid) => this.light(uuid));
    this.lane = new AlertLane(byId("lines-lane"));
    this.chartPlace = byId("lines-charts");
    this.spanS = Number(readSpan(location.search));
    this.seen = new IntersectionObserver((entries) => entries.forEach((entry) => this.onSeen(entry)), { rootMargin: "200px" });
    this.putSpans();
    this.listen();
    this.load();
  }

  putSpans() {
    byId("lines-spans").replaceChildren(...SPANS.map(([seconds, words]) =>
      make("button", { type: "button", "data-span": seconds, "aria-pressed": String(Number(seconds) === this.spanS) }, words)));
    byId("lines-back").setAttribute("href", fleetAddress());
  }

  listen() {
    byId("lines-spans").addEventListener("click", (event) => {
      const { span } = targetOf(event).dataset;
      if (span !== undefined) this.chooseSpan(Number(span));
    });
    byId("lines-live").addEventListener("click", () => this.zoomTo(null));
    this.live.addEventListener("lines", ({ detail }) => this.take(detail));
    this.live.addEventListener("state", () => this.root.classList.toggle("frozen", this.live.state !== "live"));
    document.addEventListener("keydown", (event) => this.onKey(event));
    onTheme(() => this.recolour());
    addEventListener("gpudeck-print", ({ detail }) => this.print(detail));
    new ResizeObserver(() => this.charts.forEach(({ chart }) => chart.resize())).observe(this.chartPlace);
    this.chartPlace.addEventListener("dblclick", () => this.zoomTo(null));
  }

  async load() {
    try {
      await this.find();
      this.fail(this.gpus.length === 0 ? EMPTY[this.place.kind] : "");
      this.root.classList.toggle("nowhere", this.place.kind === "compare" && this.gpus.length === 0);
    } catch (error) {
      if (error instanceof ApiError && [404, 409].includes(error.status)) this.drawMissing(error);
      else this.fail(`${messageOf(error)} Retrying …`);
      setTimeout(() => this.load(), REFRESH_MS); // after a restart of the hub its nodes come one by one
      return;
    }
    show(byId("lines-nearest"), false);
    this.build();
    this.settleAddress();
    setInterval(() => this.refresh(), REFRESH_MS);
  }

  /** Finds the machines; later requests go by ids, so that another node of the same name does not slip in. */
  async find() {
    const { node, gpus } = await findMachines(this.place);
    this.node = node;
    this.gpus = gpus;
    this.place = idOf(this.place, node, gpus);
  }

  async settleAddress() {
    const address = await properAddress(this.place, this.node?.host ?? this.gpus[0]?.host ?? "", this.gpus[0]);
    if (address !== null) history.replaceState(history.state, "", `${address}${location.search}`);
  }

  /** @type {(error: LinkedError) => void} */
  drawMissing({ status, message, links = [] }) {
    const what = this.place.kind === "node" ? "node" : "GPU";
    const title = status === 409 ? `Which ${what}?` : `Unknown ${what}`;
    say(byId("lines-title"), title);
    say(byId("lines-subtitle"), this.place.name ?? "");
    nameTab(title);
    this.root.classList.add("nowhere");
    this.live.lines([]);
    this.stand();
    this.fail(sentence(message));
    show(byId("lines-nearest"), links.length > 0);
    redraw(byId("lines-nearest"), links.map(({ textContent }) => textContent), () => links);
  }

  /** @type {(words: string) => void} */
  fail(words) {
    sayOrHide(byId("lines-problem"), words);
  }

  build() {
    const labels = this.labels = labelsOf(this.gpus);
    this.drawTitle();
    const plans = chartsOf(this.gpus, this.book, (gpu) => labels.get(gpu.uuid) ?? { label: gpu.place });
    const colours = pageColours();
    this.charts = plans.map((plan) => ({ plan, isSeen: false, chart: new Chart({
      ...plan, lines: plan.rows.map(({ label, short, key, meaning }) => ({ label, short, meaning, read: wordsOf(metricOf(this.book, key), this.book.reasons) })),
      colours, onZoom: (span) => this.zoomTo(span), together: this.gpus.length > 1 ? togetherOf(plan.metric, this.book.reasons) : null, isQuiet: this.place.kind === "node",
    }) }));
    this.chartPlace.replaceChildren(...this.charts.map(({ chart }) => chart.root));
    this.charts.forEach((entry) => { entry.chart.resize(); Object.assign(entry.chart.root, { entry }); this.seen.observe(entry.chart.root); });
    this.drawTiles();
    this.drawNever();
    const uuids = this.gpus.map((gpu) => gpu.uuid);
    this.store.watch(uuids);
    this.live.lines(uuids);
    this.side.draw().finally(() => { this.stand(); this.bringPast(); });
    this.remember(uuids);
  }

  stand() {
    settle(this.root);
    settle(this.side.root);
  }

  bringPast() {
    if (this.past !== null) { this.past.forget(); return; }
    this.past = new LinesPast(this);
    this.past.goToAddress();
    this.past.mark(this.side.alertViews);
  }

  drawTitle() {
    const [first] = this.gpus;
    const { kind } = this.place;
    const title = kind === "gpu" ? `${first.host} · GPU ${first.place}` : kind === "node" ? this.node?.host ?? "" : this.gpus.length === 0 ? "Nothing to compare" : `${plural(this.gpus.length, "GPU")} compared`;
    say(byId("lines-title"), title);
    say(byId("lines-subtitle"), kind === "gpu" ? first.name : this.node !== null && kind === "node" ? nodeWords(this.node, this.gpus) : "");
    nameTab(title);
    const node = byId("lines-node");
    show(node, kind === "gpu");
    byId("lines-past").setAttribute("href", pastAddress(this.place));
    if (kind === "gpu") { node.setAttribute("href", nodeAddress(first.node)); say(node, first.host); }
  }

  drawNever() {
    const { unsupported, denied } = neverOf(this.gpus, this.book);
    const place = byId("lines-never");
    /** @type {[string, Metric[]][]} */
    const parts = [["Not supported here: ", unsupported], ["Denied by the driver (agent lacks permission): ", denied]];
    place.replaceChildren(...parts.filter(([, metrics]) => metrics.length > 0).flatMap(([words, metrics]) => {
      const names = make("span", {});
      nameMetrics(names, metrics);
      return [words, names];
    }));
    explainedList(place);
    settleList(place);
  }

  /** Draws the tiles as of now, or of the past moment that is shown. */
  drawTiles() {
    const at = this.past?.at ?? null;
    /** @type {ShownGpu[]} */
    const gpus = this.past === null || at === null ? this.gpus : this.past.gpusThen(); // what was idle then is not known
    const trouble = gpus.length > 1 ? troubleOf(gpus, this.side.alerts, at ?? Date.now() / 1000) : new Map();
    for (const { plan, chart } of this.charts) {
      /** @type {Map<number, Trouble>} */
      const tones = new Map();
      plan.rows.forEach(({ uuid }, row) => { const tone = trouble.get(uuid)?.tone; if (tone !== undefined) tones.set(row, tone); });
      chart.setTones(tones);
    }
    this.tiles.draw(gpus, { labels: this.labels, trouble, owners: at === null ? this.owners : new Map() });
  }

  /**
   * The GPU whose tile is pointed at; null: none.
   * @type {(uuid: string | null) => void}
   */
  light(uuid) {
    for (const { plan, chart } of this.charts) chart.light(uuid === null ? null : plan.rows.findIndex((row) => row.uuid === uuid));
  }

  /**
   * The past, once; afterwards the line grows by what is live.
   * @type {(uuids: string[], span?: Partial<TimeRange>) => Promise<void>}
   */
  async remember(uuids, { from = Date.now() / 1000 - Math.max(900, this.spanS), to = Date.now() / 1000 } = {}) {
    await Promise.all(uuids.map(async (uuid) => {
      const past = await pastOf(uuid, this.store.keys, from, to).catch(() => null);
      if (past !== null) this.store.fill(uuid, past.t, past.columns);
    }));
    this.redrawAll();
  }

  /** @type {(message: Hub.Lines) => void} */
  take(message) {
    const holes = this.store.take(message, this.book.absenceWords);
    if (holes.length > 0) this.mend(holes);
    this.redrawAll();
  }

  /**
   * Fills holes after a break from history. It may not be there yet.
   * @type {(holes: Hole[]) => void}
   */
  mend(holes) {
    const from = Math.min(...holes.map((hole) => hole.from));
    const to = Math.max(...holes.map((hole) => hole.to));
    setTimeout(() => this.remember([...new Set(holes.map(({ uuid }) => uuid))], { from, to }), 1_500);
  }

  /** @type {() => TimeRange} */
  span() {
    if (this.zoom !== null) return this.zoom;
    const newest = Math.max(...this.gpus.map((gpu) => this.store.newest(gpu.uuid) ?? -Infinity));
    const now = Date.now() / 1000;
    // Where a GPU is not read, time goes on without data: what fires since then is in it.
    const isBehind = now - newest < this.spanS && (this.past?.at ?? null) === null && this.gpus.some(({ state }) => state !== "ok");
    const to = Number.isFinite(newest) && !isBehind ? newest : now;
    return { from: to - this.spanS, to };
  }

  redrawAll() {
    if (this.past !== null && this.past.at !== null) this.drawTiles();
    this.lane.draw(this.side.alerts, this.span());
    this.charts.forEach((entry) => this.dirty.add(entry));
    this.schedule();
  }

  schedule() {
    this.frame ??= requestAnimationFrame(() => this.drawSome());
  }

  drawSome() {
    this.frame = null;
    const end = performance.now() + DRAW_MS;
    for (const entry of this.dirty) {
      if (!entry.isSeen) { this.dirty.delete(entry); entry.isOld = true; continue; }
      this.drawChart(entry);
      this.dirty.delete(entry);
      if (performance.now() > end) break;
    }
    if (this.dirty.size > 0) this.schedule();
  }

  /** @type {(seen: IntersectionObserverEntry) => void} */
  onSeen({ target, isIntersecting }) {
    const { entry } = /** @type {Element & { entry?: ShownChart }} */ (target);
    if (entry === undefined) return;
    entry.isSeen = isIntersecting;
    if (isIntersecting) { this.dirty.add(entry); this.schedule(); }
  }

  shownStore() {
    return this.zoom === null || this.past === null ? this.store : this.past.sourceOf(this.zoom);
  }

  /** @type {(shown: ShownChart) => void} */
  drawChart({ plan, chart }) {
    const span = this.span();
    const store = this.shownStore();
    const tracks = plan.rows.map(({ uuid, key }) => windowOf(store.track(uuid), key, span));
    const data = tracks.length > 1 ? joinLines(tracks) : [tracks[0].t, tracks[0].values];
    const bands = plan.bands ? bandsOf(store.track(plan.rows[0].uuid), plan.bands) : [];
    chart.show(data, span, { bands, marks: this.side.marks, alerts: this.side.alertsOf(plan) });
  }

  /** @type {(seconds: number) => void} */
  chooseSpan(seconds) {
    const isLonger = seconds > this.spanS;
    this.spanS = seconds;
    for (const button of allWithin(byId("lines-spans"), ":scope > *")) button.setAttribute("aria-pressed", String(Number(button.dataset.span) === seconds));
    const query = new URLSearchParams(location.search);
    query.set("span", String(seconds));
    writeQuery(query);
    const at = this.past?.at ?? null;
    this.zoomTo(at === null ? null : { from: at - seconds, to: at });
    if (isLonger) this.remember(this.gpus.map((gpu) => gpu.uuid));
  }

  /** @type {(span: TimeRange | null) => void} */
  zoomTo(span) {
    this.zoom = span;
    show(byId("lines-live"), span !== null);
    this.past?.follow(span);
    this.drawTiles();
    this.redrawAll();
  }

  /** @type {(share: number) => void} */
  pan(share) {
    const { from, to } = this.span();
    const shift = share * (to - from);
    this.zoomTo({ from: from + shift, to: to + shift });
  }

  /** @type {(factor: number) => void} */
  scale(factor) {
    const { from, to } = this.span();
    const [middle, half] = [(from + to) / 2, ((to - from) / 2) * factor];
    if (half >= 2) this.zoomTo({ from: middle - half, to: middle + half });
  }

  /** @type {(event: KeyboardEvent) => void} */
  onKey(event) {
    if (!isShortcut(event)) return;
    /** @type {Record<string, () => unknown>} */
    const keys = { ArrowLeft: () => this.pan(-0.25), ArrowRight: () => this.pan(0.25), "+": () => this.scale(0.5), "-": () => this.scale(2), End: () => this.zoomTo(null), h: () => location.assign(pastAddress(this.place)), b: () => byId("time-slider")?.focus() };
    if (event.key === "Escape" && this.zoom !== null) this.zoomTo(null);
    else if (event.key === "Escape") location.assign(fleetAddress());
    else if (event.key in keys && targetOf(event).closest("a, button, input") === null) { event.preventDefault(); keys[event.key](); }
  }

  recolour() {
    const colours = pageColours();
    this.charts.forEach(({ chart }) => chart.draw(colours));
    this.drawTiles();
    this.redrawAll();
  }

  /**
   * Two in a row on A4; those out of sight as well.
   * @type {(isOn: boolean) => void}
   */
  print(isOn) {
    const colours = pageColours();
    for (const entry of this.charts) {
      entry.chart.draw(colours, isOn ? PAPER_WIDTH : null);
      this.drawChart(entry);
    }
    this.drawTiles();
  }

  /**
   * Returns what is drawn of a metric: [[second, value or null]].
   * @type {(uuid: string, key: string) => [number, number | null][]}
   */
  line(uuid, key) {
    const { t, values } = this.shownStore().track(uuid);
    return t.map((time, at) => [time, values.get(key)?.[at] ?? null]);
  }

  /**
   * A power limit may be set at any time; the next point draws it.
   * @type {(gpus: Hub.GpuView[]) => void}
   */
  limit(gpus) {
    const plans = new Map(chartsOf(gpus, this.book, (gpu) => this.labels.get(gpu.uuid) ?? { label: gpu.place }).map((plan) => [plan.id, plan]));
    for (const { plan, chart } of this.charts) chart.setLimits(plans.get(plan.id)?.limits ?? plan.limits);
  }

  /**
   * Shows the owners of each GPU, by UUID.
   * @type {(owners: Map<string, string>) => void}
   */
  nameOwners(owners) {
    this.owners = owners;
    this.drawTiles();
  }

  async refresh() {
    if (document.hidden) return;
    try {
      const { node, gpus } = await findMachines(this.place);
      this.node = node;
      if (gpus.map((gpu) => gpu.uuid).join() !== this.gpus.map((gpu) => gpu.uuid).join()) { this.gpus = gpus; this.charts.forEach(({ chart }) => chart.destroy()); this.build(); return; }
      this.gpus = gpus;
      this.drawTiles();
      this.limit(gpus);
      this.side.draw();
    } catch { /* the banner says how we stand with the hub */ }
  }
}

/**
 * "8 × H100 80GB HBM3 · driver 580.95.05 · CUDA 13.0 · agent 0.1.0".
 * @type {(node: Hub.NodeView, gpus: Hub.GpuView[]) => string}
 */
function nodeWords({ driver_version: driver, cuda_version: cuda, agent_version: agent }, gpus) {
  const boards = [...grouped(gpus, ({ name }) => name.replace(/^NVIDIA /, ""))].map(([name, those]) => `${those.length} × ${name}`);
  const versions = [["driver", driver], ["CUDA", cuda], ["agent", agent]].filter(([, version]) => version).map((words) => words.join(" "));
  return [...boards, ...versions].join(" · ");
}

/** @type {(search: string) => string} */
function readSpan(search) {
  const chosenSpan = new URLSearchParams(search).get("span") ?? "";
  return SPANS.some(([seconds]) => seconds === chosenSpan) ? chosenSpan : "300";
}

/** @type {(place: MachinePlace) => string} */
function pastAddress({ kind, id, uuids }) {
  const query = new URLSearchParams();
  if (kind === "compare") for (const uuid of uuids ?? []) query.append("gpu", uuid);
  else query.append(kind, id ?? "");
  return `/history?${query}`;
}

/**
 * Returns the shortest labels that distinguish the GPUs.
 * @type {(gpus: Hub.GpuView[]) => Map<string, ChartLabel>}
 */
function labelsOf(gpus) {
  const hosts = new Set(gpus.map((gpu) => gpu.host));
  return new Map(gpus.map((gpu) => [gpu.uuid, hosts.size > 1
    ? { label: `${gpu.host}:${gpu.place}` } : { label: `GPU ${gpu.place}`, short: gpu.place }]));
}

/** @type {(track: Track, key: string, span: TimeRange) => TrackWindow} */
function windowOf(track, key, { from, to }) {
  const first = Math.max(0, lowerBound(track.t, from) - 1);
  const last = lowerBound(track.t, to) + 1;
  return { t: track.t.slice(first, last), values: track.values.get(key)?.slice(first, last) ?? [] };
}

/** @type {(sorted: number[], wanted: number) => number} */
function lowerBound(sorted, wanted) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low;
}
