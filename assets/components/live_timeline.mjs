// LiveTimeline: one metric of some GPUs over the last minutes.

import { Chart, joined, pageColours } from "../charts/chart.mjs";
import { chartsOf, wordsOf } from "../charts/chart_plan.mjs";
import { LineStore } from "../charts/line_store.mjs";
import { pastOf } from "../charts/past_series.mjs";
import { lines } from "../live/feeds.mjs";
import { several } from "../parts/api.mjs";
import { make, onTheme, sayOrHide } from "../parts/dom.mjs";
import { readMetricCatalogue } from "../parts/metric_catalogue.mjs";

const MOST = 16;

export default class LiveTimeline {
  constructor(place) {
    Object.assign(this, { place, book: readMetricCatalogue(), key: "", chart: null, over: new AbortController() });
    this.store = new LineStore(this.book.columns);
    this.said = make("p", { class: "site-said", role: "status", hidden: "" });
    this.holder = make("div", {});
    place.append(this.holder, this.said);
    lines.addEventListener("lines", ({ detail }) => { this.store.take(detail, this.book.absenceWords); this.redraw(); }, { signal: this.over.signal });
    onTheme(() => this.over.signal.aborted || this.chart?.draw(pageColours()));
    this.resized = new ResizeObserver(() => this.chart?.resize());
    this.resized.observe(place);
  }

  draw({ gpus, metric, minutes }) {
    this.spanS = 60 * Math.min(60, minutes);
    const uuids = gpus.slice(0, MOST);
    const key = JSON.stringify([uuids, metric]);
    if (key === this.key) { this.redraw(); return; }
    this.key = key;
    this.store.watch(uuids);
    lines.want(this, uuids);
    this.build(uuids, metric, key);
  }

  async build(uuids, metric, key) {
    const gpus = uuids.length === 0 ? [] : await several("gpus", uuids).catch(() => []);
    if (key !== this.key) return;
    const plan = chartsOf(gpus, this.book, (gpu) => ({ label: `${gpu.host}:${gpu.place}` })).find(({ rows }) => rows.some((row) => row.key === metric));
    this.chart?.destroy();
    this.chart = null;
    this.holder.replaceChildren();
    sayOrHide(this.said, plan !== undefined ? "" : uuids.length === 0 ? "No GPU selected." : "None of these GPUs reports this metric.");
    if (plan === undefined) return;
    this.rows = plan.rows.filter((row) => row.key === metric);
    const read = wordsOf(this.book.metrics.get(metric), this.book.reasons);
    this.chart = new Chart({ ...plan, lines: this.rows.map(({ label, short, meaning }) => ({ label, short, meaning, read })), colours: pageColours(), onZoom: () => {} });
    this.holder.append(this.chart.root);
    this.chart.resize();
    const to = Date.now() / 1000;
    await Promise.all(uuids.map(async (uuid) => {
      const past = await pastOf(uuid, [metric], to - this.spanS, to).catch(() => null);
      if (past !== null) this.store.fill(uuid, past.t, past.columns);
    }));
    this.redraw();
  }

  redraw() {
    if (this.chart === null) return;
    const newest = Math.max(...this.rows.map(({ uuid }) => this.store.newest(uuid) ?? -Infinity));
    const to = Number.isFinite(newest) ? newest : Date.now() / 1000;
    const tracks = this.rows.map(({ uuid, key }) => { const { t, values } = this.store.track(uuid); return { t, values: values.get(key) ?? [] }; });
    this.chart.show(tracks.length > 1 ? joined(tracks) : [tracks[0].t, tracks[0].values], { from: to - this.spanS, to }, { bands: [], marks: [], alerts: [] });
  }

  end() {
    this.over.abort();
    this.resized.disconnect();
    lines.want(this, []);
    this.chart?.destroy();
  }
}
