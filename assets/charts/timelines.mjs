// The GPU, Node and Compare pages: live timelines with one cursor and one span for all.

/** @import { Live } from "../live/live.mjs" */

import { ApiError } from "../parts/api.mjs";
import { readMetricCatalogue } from "../parts/metric_catalogue.mjs";
import { AlertLane } from "./alert_lane.mjs";
import { ChartList } from "./chart_list.mjs";
import { labelsOf } from "./chart_plan.mjs";
import {
  byId,
  isShortcut,
  messageOf,
  onTheme,
  sayOrHide,
  settle,
  show,
  targetOf,
} from "../parts/dom.mjs";
import { sentence } from "../parts/dialog.mjs";
import { LineStore } from "./line_store.mjs";
import { LinesPast } from "./lines_past.mjs";
import { findMachines, idOf, properAddress, readPlace } from "./machine_address.mjs";
import { drawHead, drawNever, drawUnknown, pastAddress } from "./page_head.mjs";
import { idleOf } from "../fleet/idle_gpus.mjs";
import { pastOf } from "../fleet/past_series.mjs";
import { GpuTiles } from "./gpu_tiles.mjs";
import { troubleOf } from "./gpu_trouble.mjs";
import { MachineSide } from "./side_panel.mjs";
import { drawSpans, pressSpan, readSpan, shift, stretch, writeSpan } from "./spans.mjs";
import { fleetAddress } from "../parts/address.mjs";

const REFRESH_MS = 2_000;
const SETTLE_MS = 2_500; // then the page is seen, whether its side is there or not
const SIDE_MS = 10_000; // the side panel comes whole, or as it is by then; the charts do not wait for it
/** @type {Record<string, string>} */
const EMPTY = {
  node: "This node reports no GPU at the moment. The state of its reader is shown in the side panel.",
  compare: "These GPUs are unknown. Select some on the Fleet page.",
};

export default class Timelines {
  /** @type {Hub.GpuView[]} */
  gpus = [];
  /** @type {Hub.NodeView | null} */
  node = null;
  /** @type {TimeRange | null} */
  zoom = null;
  /** @type {LinesPast | null} */
  past = null;
  /** @type {Map<string, string>} */
  owners = new Map();
  /** @type {Map<string, ChartLabel>} */
  labels = new Map();

  /**
   * @param {HTMLElement} root
   * @param {Live} live
   */
  constructor(root, live) {
    this.root = root;
    this.live = live;

    this.book = readMetricCatalogue();
    this.place = readPlace(location);
    show(byId("lines-now"), this.place.kind === "node");
    this.store = new LineStore(this.book.columns);
    this.side = new MachineSide(this, byId("lines-side"));
    setTimeout(() => settle(this.side.root), SIDE_MS);
    this.tiles = new GpuTiles(byId("lines-gpus"), this.book, this.place.kind === "node", (uuid) =>
      this.charts.light(uuid),
    );
    this.lane = new AlertLane(byId("lines-lane"));
    this.charts = new ChartList(byId("lines-charts"), this.book, {
      isQuiet: this.place.kind === "node",
      onZoom: (span) => this.zoomTo(span),
      contentOf: (plan) => this.contentOf(plan),
    });
    this.spanS = readSpan(location.search);
    drawSpans(byId("lines-spans"), this.spanS);
    byId("lines-back").setAttribute("href", fleetAddress());
    this.listen();
    this.load();
  }

  listen() {
    byId("lines-spans").addEventListener("click", (event) => {
      const { span } = targetOf(event).dataset;
      if (span !== undefined) this.chooseSpan(Number(span));
    });
    byId("lines-live").addEventListener("click", () => this.zoomTo(null));
    this.live.addEventListener("lines", ({ detail }) => this.take(detail));
    this.live.addEventListener("state", () =>
      this.root.classList.toggle("frozen", this.live.state !== "live"),
    );
    document.addEventListener("keydown", (event) => this.onKey(event));
    onTheme(() => this.recolour());
    addEventListener("gpudeck-print", ({ detail }) => this.print(detail));
    this.charts.place.addEventListener("dblclick", () => this.zoomTo(null));
  }

  async load() {
    try {
      await this.find();
      this.fail(this.gpus.length === 0 ? EMPTY[this.place.kind] : "");
      this.root.classList.toggle(
        "nowhere",
        this.place.kind === "compare" && this.gpus.length === 0,
      );
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
    const address = await properAddress(
      this.place,
      this.node?.host ?? this.gpus[0]?.host ?? "",
      this.gpus[0],
    );
    if (address !== null) history.replaceState(history.state, "", `${address}${location.search}`);
  }

  /** @type {(error: LinkedError) => void} */
  drawMissing(error) {
    drawUnknown(this.place, error);
    this.root.classList.add("nowhere");
    this.live.lines([]);
    this.stand();
    this.fail(sentence(error.message));
  }

  /** @type {(words: string) => void} */
  fail(words) {
    sayOrHide(byId("lines-problem"), words);
  }

  build() {
    this.labels = labelsOf(this.gpus);
    drawHead(this.place, this.node, this.gpus);
    this.charts.build(this.gpus, this.labels);
    this.drawTiles();
    drawNever(this.gpus, this.book);
    const uuids = this.gpus.map((gpu) => gpu.uuid);
    this.store.watch(uuids);
    this.live.lines(uuids);
    this.side.draw().finally(() => {
      this.stand();
      this.bringPast();
    });
    // What is idle is said above the charts, with whose it is, so that these wait for it, but not for a hub that hangs; all else
    // that comes late has its place.
    const isIdle = idleOf(this.gpus).length > 0;
    setTimeout(() => settle(this.root), isIdle ? SIDE_MS : SETTLE_MS);
    this.remember(uuids);
  }

  stand() {
    settle(this.root);
    settle(this.side.root);
  }

  bringPast() {
    if (this.past !== null) {
      this.past.forget();
      return;
    }
    this.past = new LinesPast(this);
    this.past.goToAddress();
    this.past.mark(this.side.alertViews);
  }

  /** Draws the tiles as of now, or of the past moment that is shown. */
  drawTiles() {
    const at = this.past?.at ?? null;
    /** @type {ShownGpu[]} */
    const gpus = this.past === null || at === null ? this.gpus : this.past.gpusThen(); // what was idle then is not known
    const trouble =
      gpus.length > 1 ? troubleOf(gpus, this.side.alerts, at ?? Date.now() / 1000) : new Map();
    this.charts.setTones(trouble);
    this.tiles.draw(gpus, {
      labels: this.labels,
      trouble,
      owners: at === null ? this.owners : new Map(),
    });
  }

  /**
   * The past, once; afterwards the line grows by what is live.
   * @type {(uuids: string[], span?: Partial<TimeRange>) => Promise<void>}
   */
  async remember(
    uuids,
    { from = Date.now() / 1000 - Math.max(900, this.spanS), to = Date.now() / 1000 } = {},
  ) {
    await Promise.all(
      uuids.map(async (uuid) => {
        const past = await pastOf(uuid, this.store.keys, from, to).catch(() => null);
        if (past !== null) this.store.fill(uuid, past.t, past.columns);
      }),
    );
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
    setTimeout(
      () => this.remember([...new Set(holes.map(({ uuid }) => uuid))], { from, to }),
      1_500,
    );
  }

  /** @type {() => TimeRange} */
  span() {
    if (this.zoom !== null) return this.zoom;
    const newest = Math.max(...this.gpus.map((gpu) => this.store.newest(gpu.uuid) ?? -Infinity));
    const now = Date.now() / 1000;
    // Where a GPU is not read, time goes on without data: what fires since then is in it.
    const isBehind =
      now - newest < this.spanS &&
      (this.past?.at ?? null) === null &&
      this.gpus.some(({ state }) => state !== "ok");
    const to = Number.isFinite(newest) && !isBehind ? newest : now;
    return { from: to - this.spanS, to };
  }

  redrawAll() {
    if (this.past !== null && this.past.at !== null) this.drawTiles();
    this.lane.draw(this.side.alerts, this.span());
    this.charts.redraw();
  }

  shownStore() {
    return this.zoom === null || this.past === null ? this.store : this.past.sourceOf(this.zoom);
  }

  /** @type {(plan: ChartPlan) => ChartContent} */
  contentOf(plan) {
    return {
      span: this.span(),
      store: this.shownStore(),
      marks: this.side.marks,
      alerts: this.side.alertsOf(plan),
    };
  }

  /** @type {(seconds: number) => void} */
  chooseSpan(seconds) {
    const isLonger = seconds > this.spanS;
    this.spanS = seconds;
    pressSpan(byId("lines-spans"), seconds);
    writeSpan(seconds);
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
    this.zoomTo(shift(this.span(), share));
  }

  /** @type {(factor: number) => void} */
  scale(factor) {
    const span = stretch(this.span(), factor);
    if (span !== null) this.zoomTo(span);
  }

  /** @type {(event: KeyboardEvent) => void} */
  onKey(event) {
    if (!isShortcut(event)) return;
    /** @type {Record<string, () => unknown>} */
    const keys = {
      "ArrowLeft": () => this.pan(-0.25),
      "ArrowRight": () => this.pan(0.25),
      "+": () => this.scale(0.5),
      "-": () => this.scale(2),
      "End": () => this.zoomTo(null),
      "h": () => location.assign(pastAddress(this.place)),
      "b": () => byId("time-slider")?.focus(),
    };
    if (event.key === "Escape" && this.zoom !== null) this.zoomTo(null);
    else if (event.key === "Escape") location.assign(fleetAddress());
    else if (event.key in keys && targetOf(event).closest("a, button, input") === null) {
      event.preventDefault();
      keys[event.key]();
    }
  }

  recolour() {
    this.charts.recolour();
    this.drawTiles();
    this.redrawAll();
  }

  /** @type {(isOn: boolean) => void} */
  print(isOn) {
    this.charts.print(isOn);
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
      if (gpus.map((gpu) => gpu.uuid).join() !== this.gpus.map((gpu) => gpu.uuid).join()) {
        this.gpus = gpus;
        this.build();
        return;
      }
      this.gpus = gpus;
      this.drawTiles();
      this.charts.setLimits(gpus, this.labels);
      this.side.draw();
    } catch {
      /* the banner says how we stand with the hub */
    }
  }
}
