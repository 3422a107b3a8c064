// LiveTimeline: a metric of some GPUs, or each of theirs, over the last minutes.

import { Chart, joinLines } from "../charts/chart.mjs";
import { pageColours } from "../parts/page_colours.mjs";
import { chartsOf, wordsOf } from "../charts/chart_plan.mjs";
import { LineStore } from "../charts/line_store.mjs";
import { pastOf } from "../fleet/past_series.mjs";
import { lines } from "../live/feeds.mjs";
import { several } from "../parts/api.mjs";
import { make, onTheme, sayOrHide } from "../parts/dom.mjs";
import { metricOf, readMetricCatalogue } from "../parts/metric_catalogue.mjs";

const MOST = 16;

export default class LiveTimeline {
  key = "";
  spanS = 0;
  /** @type {{ rows: ChartRow[], chart: Chart }[]} */
  charts = [];

  /** @param {HTMLElement} place */
  constructor(place) {
    this.place = place;
    this.book = readMetricCatalogue();
    this.over = new AbortController();
    this.store = new LineStore(this.book.columns);
    this.said = make("p", { class: "site-said", role: "status", hidden: "" });
    this.holder = make("div", {});
    place.append(this.holder, this.said);
    lines.addEventListener(
      "lines",
      ({ detail }) => {
        this.store.take(detail, this.book.absenceWords);
        this.redraw();
      },
      { signal: this.over.signal },
    );
    onTheme(() => {
      if (!this.over.signal.aborted) this.charts.forEach(({ chart }) => chart.draw(pageColours()));
    });
    this.resized = new ResizeObserver(() => this.resize());
    this.resized.observe(place);
  }

  /** @type {(properties: { gpus: string[], metric?: string | null, minutes: number }) => void} */
  draw({ gpus, metric = null, minutes }) {
    this.spanS = 60 * Math.min(60, minutes);
    const uuids = gpus.slice(0, MOST);
    const key = JSON.stringify([uuids, metric]);
    if (key === this.key) {
      this.redraw();
      return;
    }
    this.key = key;
    this.store.watch(uuids);
    lines.want(this, uuids);
    this.build(uuids, metric, key);
  }

  /** @type {(uuids: string[], metric: string | null, key: string) => Promise<void>} */
  async build(uuids, metric, key) {
    const gpus = uuids.length === 0 ? [] : await several("gpus", uuids).catch(() => []);
    if (key !== this.key) return;
    /** @type {(row: ChartRow) => boolean} */
    const isWanted = (row) => metric === null || row.key === metric;
    const plans = chartsOf(gpus, this.book, (gpu) => ({ label: `${gpu.host}:${gpu.place}` }))
      .map((plan) => ({ ...plan, rows: plan.rows.filter(isWanted) }))
      .filter(({ rows }) => rows.length > 0)
      .slice(0, metric === null ? Infinity : 1);
    this.clear();
    sayOrHide(
      this.said,
      plans.length > 0
        ? ""
        : uuids.length === 0
          ? "No GPU selected."
          : "None of these GPUs reports this metric.",
    );
    this.charts = plans.map((plan) => ({
      rows: plan.rows,
      chart: new Chart({
        ...plan,
        colours: pageColours(),
        onZoom: () => {},
        lines: plan.rows.map(({ key: of, label, short, meaning }) => ({
          label,
          short,
          meaning,
          read: wordsOf(metricOf(this.book, of), this.book.reasons),
        })),
      }),
    }));
    this.holder.append(...this.charts.map(({ chart }) => chart.root));
    this.resize();
    const keys = [...new Set(plans.flatMap(({ rows }) => rows.map((row) => row.key)))];
    const to = Date.now() / 1000;
    await Promise.all(
      uuids.map(async (uuid) => {
        const past = await pastOf(uuid, keys, to - this.spanS, to).catch(() => null);
        if (past !== null) this.store.fill(uuid, past.t, past.columns);
      }),
    );
    this.redraw();
  }

  redraw() {
    const newest = Math.max(
      ...this.charts.flatMap(({ rows }) =>
        rows.map(({ uuid }) => this.store.newest(uuid) ?? -Infinity),
      ),
    );
    const to = Number.isFinite(newest) ? newest : Date.now() / 1000;
    for (const { rows, chart } of this.charts) {
      const tracks = rows.map(({ uuid, key }) => {
        const { t, values } = this.store.track(uuid);
        return { t, values: values.get(key) ?? [] };
      });
      chart.show(
        tracks.length > 1 ? joinLines(tracks) : [tracks[0].t, tracks[0].values],
        { from: to - this.spanS, to },
        { bands: [], marks: [], alerts: [] },
      );
    }
  }

  resize() {
    this.charts.forEach(({ chart }) => chart.resize());
  }

  clear() {
    this.charts.forEach(({ chart }) => chart.destroy());
    this.charts = [];
    this.holder.replaceChildren();
  }

  end() {
    this.over.abort();
    this.resized.disconnect();
    lines.want(this, []);
    this.clear();
  }
}
