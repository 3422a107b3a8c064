// The Fleet page: the picture on one side, the controls on the other, and what joins them.

/** @import { Live } from "../live/live.mjs" */
/** @import { Past } from "./fleet_past.mjs" */

import { keepFleetAddress } from "../parts/address.mjs";
import { byId, isTyping, onTheme, say, targetOf } from "../parts/dom.mjs";
import { metricOf, readMetricCatalogue } from "../parts/metric_catalogue.mjs";
import { drawNotice } from "./empty_state.mjs";
import { FleetFilter } from "./fleet_filter.mjs";
import { Attention, drawChips, drawSummary } from "./attention.mjs";
import { followOwnPaused } from "./own_paused.mjs";
import { Drawer } from "./drawer.mjs";
import { Firing } from "../alerts/firing.mjs";
import { EventsPanel } from "../live/events.mjs";
import { cellText, describeSlot } from "./gpu_words.mjs";
import { SitesLine } from "./sites.mjs";
import { Heatmap, partsOf } from "./heatmap.mjs";
import { Hover } from "./hover.mjs";
import { FleetState } from "../live/fleet_state.mjs";
import { TableView } from "./gpu_table.mjs";
import { tabTotals } from "../parts/tab.mjs";
import { drawLegend, drawScale, drawSwatches } from "./legend.mjs";
import { drawSelection } from "./selection.mjs";
import { ViewChoices } from "./view_choices.mjs";
import { me } from "../parts/account.mjs";

const WORDS_EVERY_S = 0.95; // cells come several times a second; nobody reads that fast

export default class Fleet {
  wordsAt = 0;
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
   */
  constructor(root, live) {
    this.root = root;
    this.live = live;
    this.picture = new FleetState();

    this.book = readMetricCatalogue();
    this.choices = new ViewChoices((change) => this.choose(change));
    this.view = this.choices.read();
    this.firing = new Firing(live);
    this.heatmap = new Heatmap(
      this.picture,
      this.view,
      (slot) => this.describe(slot),
      this.firing,
      partsOf(byId("heatmap")),
    );
    this.hover = new Hover(this.picture, this.book, this.firing);
    this.drawer = new Drawer(this.picture, this.book, live);
    this.events = new EventsPanel(this.picture, live);
    this.sites = new SitesLine();
    this.attention = new Attention(this.picture, live, this.firing);
    followOwnPaused();
    this.table = new TableView(
      byId("table-view"),
      this.picture,
      (slot) => this.describe(slot),
      (slot) => this.open(slot),
    );
    this.isThen = this.view.at !== "";
    this.filter = new FleetFilter(root, (filter) => this.choose({ filter }));
    me().then(
      (person) => {
        this.person = person;
        this.drawChips();
      },
      () => {},
    );
    this.listen();
    this.listenLive();
    this.restore();
    addEventListener("pagehide", keepFleetAddress);
  }

  /** @type {(slot: number) => SlotWords} */
  describe(slot) {
    return describeSlot(this.picture, slot, {
      group: this.view.group,
      metric: this.metric(),
      reasons: this.book.reasons,
      alerts: this.alertsOf(slot),
    });
  }

  /** @type {(slot: number) => Hub.AlertView[]} */
  alertsOf(slot) {
    return (this.heatmap?.firing ?? this.firing).of(
      this.picture.uuids[slot],
      this.picture.nodeId(slot),
    );
  }

  /**
   * The metric that is drawn; the chosen one may still be on its way.
   * @type {() => Metric}
   */
  metric() {
    return metricOf(this.book, this.picture.metric ?? this.view.metric);
  }

  listen() {
    this.root.addEventListener("click", (event) => this.onClick(event));
    document.addEventListener("keydown", (event) => this.onKey(event));
    this.heatmap.addEventListener("open", ({ detail }) => this.open(detail.slot));
    this.heatmap.addEventListener("hover", ({ detail }) => this.hover.move(detail));
    this.heatmap.addEventListener("selection", () => this.drawSelection());
    const open = (/** @type {CustomEvent<{ uuid: string }>} */ { detail }) =>
      this.openUuid(detail.uuid);
    const seek = (/** @type {CustomEvent<{ filter: string }>} */ { detail }) =>
      this.filter.put(detail.filter);
    this.events.addEventListener("open", open);
    this.events.addEventListener("seek", seek);
    this.attention.addEventListener("open", open);
    this.attention.addEventListener("seek", seek);
    this.drawer.addEventListener("closed", () => this.onDrawerClosed());
    this.drawer.addEventListener("said", ({ detail }) => say(this.heatmap.spoken, detail));
    addEventListener("gpudeck-print", ({ detail }) => {
      this.drawTheme();
      this.heatmap.print(detail);
    });
    onTheme(() => this.drawTheme());
  }

  listenLive() {
    const { live } = this;
    live.addEventListener("layout", ({ detail }) => this.onLayout(detail));
    live.addEventListener("owners", ({ detail }) => {
      this.picture.takeOwners(detail);
      this.heatmap.refresh();
      this.drawNotice();
    });
    live.addEventListener("leases", ({ detail }) => {
      this.picture.takeLeases(detail);
      this.heatmap.refresh();
    });
    live.addEventListener("cells", ({ detail }) => this.onCells(detail));
    live.addEventListener("totals", ({ detail }) => this.onTotals(detail));
    live.addEventListener("filter", ({ detail }) => this.onFilter(detail));
    live.addEventListener("state", () => this.onLink());
  }

  restore() {
    const { view } = this;
    this.choices.putLists(view);
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
    this.choices.write(this.view);
    if ("filter" in change) this.live.watch(this.view.metric, this.view.filter);
    else if ("metric" in change)
      this.live.watch(this.view.metric, this.filter.usable(this.view.filter));
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
    if (!this.sites.draw(sites)) return;
    this.choices.offerSites(this.view);
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
    if (this.heatmap.drawnFlags !== undefined)
      drawLegend(this.picture.cells, this.heatmap.drawnFlags);
    this.hover.refresh();
    this.drawer.refresh();
    this.drawSelection();
    this.drawTable();
  }

  /** @type {(reply: Hub.FilterReply) => void} */
  onFilter(reply) {
    this.wordsAt = 0; // what matches now is to be seen at once
    if (this.filter.take(reply, this.view.filter)) this.drawMatches();
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
    this.filter.draw(this.view.filter, this.picture, this.isThen);
  }

  drawSelection() {
    drawSelection(this.heatmap.selected, this.picture, this.metric());
  }

  drawTable() {
    if (this.view.view !== "table") return;
    this.table.draw(this.metric(), this.heatmap.planned().listed);
  }

  drawView() {
    this.choices.showView(this.view);
    this.heatmap.redraw();
    this.drawTable();
  }

  drawScale() {
    const metric = this.metric();
    drawScale(metric);
    this.heatmap.place.setAttribute("aria-label", `Heatmap of the fleet: ${metric.label}`);
  }

  drawTheme() {
    drawSwatches();
    this.heatmap.redraw();
  }

  drawNotice() {
    drawNotice(this.root, this.picture, this.view);
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
    if (event.key === "Escape") {
      this.escape(event);
      return;
    }
    if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      this.filter.focus();
    }
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
