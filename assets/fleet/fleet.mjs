// The Fleet page: the picture on one side, the controls on the other, and what joins them.

/** @import { Holds } from "../actions/holds.mjs" */
/** @import { Live } from "../live/live.mjs" */
/** @import { Past } from "./fleet_past.mjs" */

import { keepFleetAddress, readView, writeView } from "../parts/address.mjs";
import { byId, isTyping, onTheme, say, show, targetOf } from "../parts/dom.mjs";
import { metricOf, readMetricCatalogue } from "../parts/metric_catalogue.mjs";
import { FilterBox } from "../parts/filter_box.mjs";
import { drawEmpty } from "./empty_state.mjs";
import { Attention, drawChips, drawSummary } from "./attention.mjs";
import { followOwnPaused } from "./own_paused.mjs";
import { Drawer } from "./drawer.mjs";
import { Firing } from "../alerts/firing.mjs";
import { EventsPanel } from "../live/events.mjs";
import { amount, clock, plural } from "../parts/format.mjs";
import { cellText, describeSlot } from "./gpu_words.mjs";
import { SitesLine } from "./sites.mjs";
import { Heatmap, partsOf } from "./heatmap.mjs";
import { Hover } from "./hover.mjs";
import { FleetState } from "../live/fleet_state.mjs";
import { TableView } from "./gpu_table.mjs";
import { tabTotals } from "../parts/tab.mjs";
import { explain } from "../parts/tips.mjs";
import { drawLegend, drawSwatches } from "./legend.mjs";
import { me } from "../parts/account.mjs";

const USUAL = { sort: "name", filter: "", gpu: "", view: "map", at: "" };
const ALLOWED = { group: ["node", "none", "model", "owner", "state", "site"], sort: ["name", "high", "low"], view: ["map", "table"] };
const FILTER_WAIT_MS = 120;
const WORDS_EVERY_S = 0.95; // cells come several times a second; nobody reads that fast
const MOST_COMPARED = 16;
const CHOICES = /** @type {const} */ (["metric", "group", "sort"]);

/** @type {(id: string) => HTMLSelectElement} */
const choiceOf = (id) => byId(id);

export default class Fleet {
  goodFilter = "";
  wordsAt = 0;
  siteStates = "";
  /** @type {{ error: string | null, at: number | null } | null} */
  filterError = null;
  /** @type {Past | null} */
  past = null;
  isComing = false; // the past is
  /** @type {Hub.Cells | null} */
  lastCells = null; // what is live, while a moment of the past is shown
  /** @type {Hub.Totals | undefined} */
  lastTotals;
  /** @type {Person | null} */
  person = null;

  /**
   * @param {HTMLElement} root
   * @param {Live} live
   * @param {Holds} holds
   */
  constructor(root, live, holds) {
    this.root = root;
    this.live = live;
    this.picture = new FleetState();

    this.book = readMetricCatalogue();
    const { metric = "", group = "" } = byId("heatmap").dataset;
    /** @type {FleetView} */
    this.usual = { ...USUAL, metric, group };
    this.view = readView(this.usual, { ...ALLOWED, metric: [...choiceOf("metric").options].map(({ value }) => value) });
    this.firing = new Firing(live);
    this.heatmap = new Heatmap(this.picture, this.view, (slot) => this.describe(slot), this.firing, partsOf(byId("heatmap")));
    this.hover = new Hover(this.picture, this.book, this.firing);
    this.drawer = new Drawer(this.picture, this.book, holds);
    this.events = new EventsPanel(this.picture, live);
    this.sites = new SitesLine();
    this.attention = new Attention(this.picture, live, this.firing);
    followOwnPaused();
    this.table = new TableView(byId("table-view"), this.picture, (slot) => this.describe(slot), (slot) => this.open(slot));
    this.isThen = this.view.at !== "";
    this.hover.then = (slot) => this.gpuThen(slot);
    this.drawer.then = (slot, body) => this.drawThen(slot, body);
    this.filter = new FilterBox(root, "filter", { popover: "filter-popover", words: "filter-words", placeholder: "util<5 & mem>50%", waitMs: FILTER_WAIT_MS }, (filter) => this.choose({ filter }));
    me().then((person) => { this.person = person; this.drawChips(); }, () => {});
    this.listen();
    this.listenLive();
    this.restore();
    addEventListener("pagehide", keepFleetAddress);
  }

  /** @type {(slot: number) => SlotWords} */
  describe(slot) {
    return describeSlot(this.picture, slot, { group: this.view.group, metric: this.metric(), reasons: this.book.reasons, alerts: this.alertsOf(slot) });
  }

  /** @type {(slot: number) => Hub.AlertView[]} */
  alertsOf(slot) {
    return (this.heatmap?.firing ?? this.firing).of(this.picture.uuids[slot], this.picture.nodeId(slot));
  }

  /**
   * The metric that is drawn; the chosen one may still be on its way.
   * @type {() => Metric}
   */
  metric() {
    return metricOf(this.book, this.picture.metric ?? this.view.metric);
  }

  listen() {
    for (const name of CHOICES) choiceOf(name).addEventListener("change", () => this.choose({ [name]: choiceOf(name).value }));
    byId("view-map").addEventListener("click", () => this.choose({ view: "map" }));
    byId("view-table").addEventListener("click", () => this.choose({ view: "table" }));
    this.root.addEventListener("click", (event) => this.onClick(event));
    document.addEventListener("keydown", (event) => this.onKey(event));
    this.heatmap.addEventListener("open", ({ detail }) => this.open(detail.slot));
    this.heatmap.addEventListener("hover", ({ detail }) => this.hover.move(detail));
    this.heatmap.addEventListener("selection", () => this.drawSelection());
    const open = (/** @type {CustomEvent<{ uuid: string }>} */ { detail }) => this.openUuid(detail.uuid);
    const seek = (/** @type {CustomEvent<{ filter: string }>} */ { detail }) => this.filter.put(detail.filter);
    this.events.addEventListener("open", open);
    this.events.addEventListener("seek", seek);
    this.attention.addEventListener("open", open);
    this.attention.addEventListener("seek", seek);
    this.drawer.addEventListener("closed", () => this.onDrawerClosed());
    this.drawer.addEventListener("said", ({ detail }) => say(this.heatmap.spoken, detail));
    addEventListener("gpudeck-print", ({ detail }) => { this.drawTheme(); this.heatmap.print(detail); });
    onTheme(() => this.drawTheme());
  }

  listenLive() {
    const { live } = this;
    live.addEventListener("layout", ({ detail }) => this.onLayout(detail));
    live.addEventListener("owners", ({ detail }) => { this.picture.takeOwners(detail); this.heatmap.refresh(); });
    live.addEventListener("leases", ({ detail }) => { this.picture.takeLeases(detail); this.heatmap.refresh(); });
    live.addEventListener("cells", ({ detail }) => this.onCells(detail));
    live.addEventListener("totals", ({ detail }) => this.onTotals(detail));
    live.addEventListener("filter", ({ detail }) => this.onFilter(detail));
    live.addEventListener("state", () => this.onLink());
  }

  restore() {
    const { view } = this;
    for (const name of CHOICES) choiceOf(name).value = view[name];
    this.filter.field.value = view.filter;
    this.drawTheme();
    this.drawView();
    this.live.watch(view.metric, view.filter);
    if (view.gpu !== "") this.drawer.open(view.gpu);
  }

  /** The time bar: not needed for the first paint. */
  async bringPast() {
    if (this.past !== null || this.isComing) return;
    this.isComing = true;
    const module = await import("./fleet_past.mjs").catch(() => null); // then the next layout tries again
    this.isComing = false;
    this.past = module === null ? null : new module.Past(this);
  }

  /** @type {(firing: FiredAlerts) => void} */
  setFiring(firing) {
    this.heatmap.firing = this.hover.firing = firing;
  }

  /** @type {(change: Partial<FleetView>) => void} */
  choose(change) {
    Object.assign(this.view, change);
    writeView(this.view, this.usual);
    // With a mistaken filter the hub keeps the whole former watch: a new metric goes with the last good one.
    if ("filter" in change) this.live.watch(this.view.metric, this.view.filter);
    else if ("metric" in change) this.live.watch(this.view.metric, this.filterError ? this.goodFilter : this.view.filter);
    if ("metric" in change) this.past?.redo(false);
    if ("filter" in change) this.drawChips();
    if ("group" in change || "sort" in change) this.heatmap.rearrange();
    if ("view" in change) this.drawView();
  }

  /** @type {(message: Hub.Layout) => void} */
  onLayout(message) {
    const { epoch } = this.picture;
    if (this.picture.takeLayout(message)) this.heatmap.rearrange();
    if (this.isThen && this.picture.epoch !== epoch) this.past?.redo(true);
    if (this.isThen) this.bringPast();
    this.drawNotice();
    this.repin();
  }

  /** @type {(totals: Hub.Totals) => void} */
  onTotals(totals) {
    tabTotals(totals);
    this.lastTotals = totals;
    if (!this.isThen) drawSummary(totals);
    this.takeSites(totals.sites ?? []);
    this.picture.takeTotals(totals);
    this.attention.take(totals);
    this.drawChips();
    if (this.picture.metric !== null) this.heatmap.refresh();
  }

  /**
   * Takes the sites of a hub that views others: a grouping, and in headings which one is away.
   * @type {(sites: Hub.SiteCounts[]) => void}
   */
  takeSites(sites) {
    this.sites.draw(sites);
    const states = sites.map(({ name, state, since }) => `${name} ${state} ${since}`).join();
    if (states === this.siteStates) return;
    this.siteStates = states;
    const group = choiceOf("group");
    if (!group.querySelector("[value=site]")) group.append(new Option("site", "site"));
    group.value = this.view.group;
    if (this.view.group === "site") this.heatmap.plan = null;
  }

  drawChips() {
    drawChips(this.attention.shown, this.view.filter, this.person);
  }

  /**
   * Instead of what is live.
   * @type {(moment: PastCells) => void}
   */
  showThen(moment) {
    const { metric, retired } = this.picture;
    this.picture.takeThen(moment);
    const isNewMetric = metric !== moment.metric;
    if (isNewMetric) this.drawScale();
    if (isNewMetric || this.picture.retired !== retired) this.heatmap.plan = null;
    this.heatmap.redraw();
    this.drawMatches();
    this.drawNotice();
    const now = performance.now() / 1000;
    if (isNewMetric || now - this.wordsAt >= WORDS_EVERY_S) this.drawWords(now);
  }

  /** A moment that is looked at longer: sorted again, and all words are of it. */
  settleThen() {
    if (this.view.sort !== "name" || this.view.group !== "node") this.heatmap.rearrange();
    this.drawWords(performance.now() / 1000);
  }

  goLive() {
    this.isThen = false;
    this.wordsAt = 0;
    this.picture.leaveThen();
    this.setFiring(this.firing);
    this.heatmap.plan = null;
    if (this.lastTotals !== undefined) drawSummary(this.lastTotals);
    this.attention.showThen(null);
    if (this.lastCells !== null) this.onCells(this.lastCells);
    else this.heatmap.redraw();
    this.drawWords(0);
    this.drawMatches();
  }

  /** @type {(slot: number) => Promise<GpuOfThen | null>} */
  gpuThen(slot) {
    const { picture, past } = this;
    if (past === null || picture.at === null) return Promise.resolve(null);
    return past.gpus.at(picture.uuids[slot], picture.at, { state: picture.state(slot), grainS: picture.grainS });
  }

  /** @type {(slot: number, body: HTMLElement) => Promise<void>} */
  async drawThen(slot, body) {
    const { at, uuids } = this.picture;
    const whose = this.whoseThen(slot);
    const key = `${uuids[slot]} ${at} ${whose}`;
    if (body.dataset.drawn === key) return;
    const gpu = await this.gpuThen(slot).catch(() => null);
    if (gpu === null || at === null || this.past === null || this.picture.at !== at || !this.picture.isThen || this.drawer.uuid !== gpu.uuid) return;
    body.dataset.drawn = key;
    this.past.gpus.draw(body, gpu, clock(at), whose);
  }

  /**
   * "Owner: kavya · idle with memory held since 14:16 · leased to kavya"
   * @type {(slot: number) => string}
   */
  whoseThen(slot) {
    const { picture } = this;
    if (!picture.isKnownThen) return "";
    const wasted = picture.wasted.get(slot);
    return [picture.hasTask(slot) ? `Owner: ${picture.ownerName(slot)}` : "No task", wasted === undefined ? "" : `idle with memory held since ${clock(wasted.since)}`, picture.leaseWords(slot)].filter(Boolean).join(" · ");
  }

  /**
   * Owners, leases and waste of the moment that is shown.
   * @type {(moment: ShownMoment) => void}
   */
  showMoment(moment) {
    if (!this.picture.takeMoment(moment)) return;
    this.attention.takeThen(moment);
    this.drawChips();
    if (this.view.group === "owner") this.heatmap.rearrange();
    this.heatmap.redraw();
    requestAnimationFrame(() => this.drawWords(performance.now() / 1000)); // the legend, of what is drawn then
  }

  /** @type {(message: Hub.Cells) => void} */
  onCells(message) {
    this.lastCells = message;
    if (this.isThen) return;
    const isFirst = this.picture.metric === null;
    const isNewMetric = this.picture.metric !== message.metric;
    const { retired } = this.picture;
    if (!this.picture.takeCells(message)) return;
    if (isNewMetric) this.drawScale();
    // The first cells decide a sorted order; a new metric another one.
    if (isNewMetric || this.picture.retired !== retired) this.heatmap.plan = null;
    this.heatmap.refresh(isNewMetric || this.wordsAt === 0);
    this.drawMatches();
    this.drawNotice();
    if (isNewMetric || message.at - this.wordsAt >= WORDS_EVERY_S) this.drawWords(message.at);
    if (isFirst) (globalThis.requestIdleCallback ?? setTimeout)(() => this.bringPast());
  }

  /** @type {(at: number) => void} */
  drawWords(at) {
    this.wordsAt = at;
    if (this.heatmap.drawnFlags !== undefined) drawLegend(this.picture.cells, this.heatmap.drawnFlags);
    this.hover.refresh();
    this.drawer.refresh();
    this.drawSelection();
    this.drawTable();
  }

  /** @type {(reply: Hub.FilterReply) => void} */
  onFilter({ text, ok, error, at }) {
    if (ok) this.goodFilter = text;
    this.wordsAt = 0; // what matches now is to be seen at once
    // What came by an address may have blanks around it.
    if (text.trim() !== this.view.filter.trim()) return;
    this.filterError = ok ? null : { error, at };
    this.filter.markWrong(!ok);
    this.drawMatches();
  }

  onLink() {
    const isFrozen = this.live.state !== "live";
    if (this.heatmap.isFrozen !== isFrozen) {
      this.heatmap.isFrozen = isFrozen;
      this.heatmap.redraw();
    }
    this.drawNotice();
  }

  drawMatches() {
    const words = byId("filter-words");
    const { filterError, picture } = this;
    words.classList.toggle("wrong", Boolean(filterError));
    if (this.isThen) say(words, this.view.filter === "" ? "" : "Filters need live data");
    else if (filterError) say(words, errorWords(filterError, this.view.filter));
    else say(words, picture.mask === null ? "" : `${amount(picture.matched)} of ${amount(picture.count)} match`);
  }

  drawSelection() {
    const { selected } = this.heatmap;
    const compared = [...selected].slice(0, MOST_COMPARED);
    show(byId("compare"), selected.size > 1);
    byId("compare").setAttribute("href", `/compare?${new URLSearchParams(compared.map((slot) => ["gpu", this.picture.uuids[slot]]))}`);
    say(byId("compare"), selected.size > MOST_COMPARED ? `Compare the first ${MOST_COMPARED}` : "Compare");
    if (selected.size === 0) { say(byId("selection"), ""); return; }
    const values = [...selected].filter((slot) => this.picture.code(slot) < 249).map((slot) => this.picture.exact?.[slot] ?? (this.picture.code(slot) / 239) * 100);
    const unit = this.picture.exact === null || this.metric().key === "mem_used_bytes" ? "%" : this.metric().unit;
    const mean = values.length === 0 ? "" : ` · average ${this.metric().label} ${amount(values.reduce((sum, value) => sum + value, 0) / values.length)} ${unit}`;
    say(byId("selection"), `${plural(selected.size, "GPU")} selected${mean} · Esc clears`);
  }

  drawTable() {
    if (this.view.view !== "table") return;
    this.table.draw(this.metric(), this.heatmap.planned().listed);
  }

  drawView() {
    const isMap = this.view.view === "map";
    byId("view-map").setAttribute("aria-pressed", String(isMap));
    byId("view-table").setAttribute("aria-pressed", String(!isMap));
    show(byId("heatmap"), isMap);
    show(byId("table-view"), !isMap);
    this.heatmap.redraw();
    this.drawTable();
  }

  drawScale() {
    const metric = this.metric();
    const { low, high } = scaleWords(metric);
    say(byId("scale-low"), low);
    say(byId("scale-high"), high);
    say(byId("scale-name"), metric.label);
    for (const name of ["metric", "scale", "scale-name"]) explain(byId(name), metric.meaning);
    this.heatmap.place.setAttribute("aria-label", `Heatmap of the fleet: ${metric.label}`);
  }

  drawTheme() {
    drawSwatches();
    this.heatmap.redraw();
  }

  drawNotice() {
    const { isKnown, count, nodes } = this.picture;
    const isEmpty = isKnown && count === 0;
    this.root.classList.toggle("loading", !isKnown);
    show(byId("skeleton"), !isKnown);
    show(byId("notice"), isEmpty);
    show(byId("heatmap"), !isEmpty && this.view.view === "map");
    if (isEmpty) drawEmpty(byId("notice"), nodes.size);
  }

  /** @type {(slot: number) => void} */
  open(slot) {
    this.hover.move({ slot: null });
    this.openUuid(this.picture.uuids[slot]);
  }

  /** @type {(uuid: string) => void} */
  openUuid(uuid) {
    this.drawer.open(uuid);
    this.choose({ gpu: uuid });
    this.repin();
  }

  repin() {
    const slot = this.picture.slotOf.get(this.view.gpu);
    if (this.drawer.isOpen && slot !== undefined) this.heatmap.pin(slot);
  }

  onDrawerClosed() {
    this.heatmap.pin(null);
    this.choose({ gpu: "" });
    if (this.view.view === "map") this.heatmap.place.focus({ preventScroll: true });
  }

  /** @type {(event: MouseEvent) => void} */
  onClick(event) {
    /** @type {HTMLElement | null} */
    const chip = targetOf(event).closest("[data-seek]");
    const query = chip?.dataset.seek;
    if (query !== undefined) this.filter.put(this.view.filter === query ? "" : query);
  }

  /** @type {(event: KeyboardEvent) => void} */
  onKey(event) {
    if (event.key === "Escape") { this.escape(event); return; }
    if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { event.preventDefault(); this.filter.focus(); }
    if (event.key === "o" && this.drawer.isOpen) byId("drawer-lines").click();
    if (event.key === "c" && !byId("compare").hidden) byId("compare").click();
    if (event.key === "b") byId("time-slider")?.focus();
    if (event.key === "v") this.choose({ view: this.view.view === "map" ? "table" : "map" });
  }

  /** @type {(event: KeyboardEvent) => void} */
  escape(event) {
    if (document.querySelector("dialog[open]") !== null) return; // it closes itself, and nothing behind it
    const isInFilter = event.target === this.filter.field;
    if (this.filter.isOpen) this.filter.close();
    else if (this.attention.lists.isOpen) this.attention.lists.close();
    else if (this.events.isOpen) this.events.close();
    else if (isInFilter && this.filter.field.value === "") this.heatmap.place.focus();
    else if (!isInFilter && this.drawer.isOpen) this.drawer.close();
    else if (!isInFilter && this.heatmap.selected.size > 0) this.heatmap.clearSelection();
    else this.filter.put("");
  }

  /**
   * Returns what is drawn for a GPU; null: there is no such GPU.
   * @type {(uuid: string) => object | null}
   */
  cell(uuid) {
    const slot = this.picture.slotOf.get(uuid);
    if (slot === undefined) return null;
    const code = this.picture.code(slot);
    return {
      text: cellText(this.picture, slot, this.metric(), this.book.reasons).text,
      level: code <= 239 ? code : null,
      state: this.picture.state(slot),
      matched: this.picture.isLit(slot),
      isWasted: this.picture.wasted.has(slot),
      isPaused: this.picture.isPaused(slot),
      alerts: this.alertsOf(slot).map(({ rule }) => rule),
    };
  }
}

/** @type {(mistake: { error: string | null, at: number | null }, text: string) => string} */
function errorWords({ error, at }, text) {
  if (at === null) return error ?? "";
  const near = text.slice(at, at + 12);
  return near === "" ? `${error} (at the end)` : `${error} (at ${at + 1}: “${near}”)`;
}

/** @type {(metric: Metric) => { low: string, high: string }} */
function scaleWords(metric) {
  if (metric.key === "throttle_bits") return { low: "none", high: "thermal or hardware" };
  if (metric.scale === "alarm") return { low: "well", high: "needs attention" };
  if (metric.scale === "count") return { low: "none", high: "a million" };
  if (metric.full !== null) return { low: `0 ${metric.unit}`, high: `${amount(metric.full)} ${metric.unit}` };
  if (metric.fullWords) return { low: "0", high: metric.fullWords };
  return { low: "", high: "no scale" };
}
