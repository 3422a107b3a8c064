// The list of a page's charts: one for each plan, drawn while it is in view, as many as a frame has time for.

import { Chart, joinLines } from "./chart.mjs";
import { bandsOf, chartsOf, togetherOf, wordsOf } from "./chart_plan.mjs";
import { windowOf } from "./line_store.mjs";
import { metricOf } from "../parts/metric_catalogue.mjs";
import { pageColours } from "../parts/page_colours.mjs";

// What a frame may take for drawing: a chart that comes a frame later is not seen to.
const DRAW_MS = 8;
const PAPER_WIDTH = 320;

export class ChartList {
  /** @type {ShownChart[]} */
  charts = [];
  /** @type {Set<ShownChart>} */
  dirty = new Set();
  /** @type {number | null} */
  frame = null;

  /**
   * `isQuiet`: lines without trouble are all grey. `contentOf`: what a chart of this plan shows now.
   * @param {HTMLElement} place
   * @param {MetricBook} book
   * @param {{ isQuiet: boolean, onZoom: (span: TimeRange) => void,
   *   contentOf: (plan: ChartPlan) => ChartContent }} how
   */
  constructor(place, book, { isQuiet, onZoom, contentOf }) {
    this.place = place;
    this.book = book;
    this.isQuiet = isQuiet;
    this.onZoom = onZoom;
    this.contentOf = contentOf;
    this.seen = new IntersectionObserver(
      (entries) => entries.forEach((entry) => this.onSeen(entry)),
      { rootMargin: "200px" },
    );
    new ResizeObserver(() => this.charts.forEach(({ chart }) => chart.resize())).observe(place);
  }

  /**
   * Builds the charts of these GPUs, in place of those that are there.
   * @type {(gpus: Hub.GpuView[], labels: Map<string, ChartLabel>) => void}
   */
  build(gpus, labels) {
    this.charts.forEach(({ chart }) => chart.destroy());
    const colours = pageColours();
    this.charts = this.plansOf(gpus, labels).map((plan) => ({
      plan,
      isSeen: false,
      chart: new Chart({
        ...plan,
        lines: plan.rows.map(({ label, short, key, meaning }) => ({
          label,
          short,
          meaning,
          read: wordsOf(metricOf(this.book, key), this.book.reasons),
        })),
        colours,
        onZoom: this.onZoom,
        together: gpus.length > 1 ? togetherOf(plan.metric, this.book.reasons) : null,
        isQuiet: this.isQuiet,
      }),
    }));
    this.place.replaceChildren(...this.charts.map(({ chart }) => chart.root));
    this.charts.forEach((entry) => {
      entry.chart.resize();
      Object.assign(entry.chart.root, { entry });
      this.seen.observe(entry.chart.root);
    });
  }

  /** @type {(gpus: Hub.GpuView[], labels: Map<string, ChartLabel>) => ChartPlan[]} */
  plansOf(gpus, labels) {
    return chartsOf(gpus, this.book, (gpu) => labels.get(gpu.uuid) ?? { label: gpu.place });
  }

  /**
   * Updates the limits: a power limit may be set at any time. The next point shows them.
   * @type {(gpus: Hub.GpuView[], labels: Map<string, ChartLabel>) => void}
   */
  setLimits(gpus, labels) {
    const plans = new Map(this.plansOf(gpus, labels).map((plan) => [plan.id, plan]));
    for (const { plan, chart } of this.charts)
      chart.setLimits(plans.get(plan.id)?.limits ?? plan.limits);
  }

  /**
   * Colours the lines of GPUs in trouble, by UUID.
   * @type {(trouble: Map<string, GpuTrouble>) => void}
   */
  setTones(trouble) {
    for (const { plan, chart } of this.charts) {
      /** @type {Map<number, Trouble>} */
      const tones = new Map();
      plan.rows.forEach(({ uuid }, row) => {
        const tone = trouble.get(uuid)?.tone;
        if (tone !== undefined) tones.set(row, tone);
      });
      chart.setTones(tones);
    }
  }

  /**
   * Highlights the lines of a GPU; null: of none.
   * @type {(uuid: string | null) => void}
   */
  light(uuid) {
    for (const { plan, chart } of this.charts)
      chart.light(uuid === null ? null : plan.rows.findIndex((row) => row.uuid === uuid));
  }

  /** Draws all charts with what they show now, in the next frames. */
  redraw() {
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
      if (!entry.isSeen) {
        this.dirty.delete(entry);
        entry.isOld = true;
        continue;
      }
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
    if (isIntersecting) {
      this.dirty.add(entry);
      this.schedule();
    }
  }

  /** @type {(shown: ShownChart) => void} */
  drawChart({ plan, chart }) {
    const { span, store, marks, alerts } = this.contentOf(plan);
    const tracks = plan.rows.map(({ uuid, key }) => windowOf(store.track(uuid), key, span));
    const data = tracks.length > 1 ? joinLines(tracks) : [tracks[0].t, tracks[0].values];
    const bands = plan.bands ? bandsOf(store.track(plan.rows[0].uuid), plan.bands) : [];
    chart.show(data, span, { bands, marks, alerts });
  }

  recolour() {
    const colours = pageColours();
    this.charts.forEach(({ chart }) => chart.draw(colours));
  }

  /**
   * Draws all charts at once, those out of sight as well; on paper two in a row on A4.
   * @type {(isOn: boolean) => void}
   */
  print(isOn) {
    const colours = pageColours();
    for (const entry of this.charts) {
      entry.chart.draw(colours, isOn ? PAPER_WIDTH : null);
      this.drawChart(entry);
    }
  }
}
