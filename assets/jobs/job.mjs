// The ranks of a job over time, painted: a row for each rank, in the colours of a metric; what is under the pointer in
// words. All metrics are here, so that another one shows at once. All else of the page is dashboard/pages/job.py.

import { byId, isShortcut, onTheme, say, theme } from "../parts/dom.mjs";
import { amount, clock, oneWord, valueOf } from "../parts/format.mjs";
import { FULL, palette } from "../parts/gauges.mjs";
import ReadPage from "../reading/read_page.mjs";
import { showView } from "../reading/view_controls.mjs";

const ROW = 20;
const GAP = 2;
const STEPS = { ArrowRight: 1, ArrowLeft: -1 };

export default class JobPage extends ReadPage {
  listen(store) {
    super.listen(store);
    Object.assign(this, { canvas: byId("job-canvas"), map: null });
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => say(byId("job-scale"), this.metric.legend));
    document.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.paint()).observe(this.canvas.parentElement);
    onTheme(() => this.paint());
  }

  get metric() { return this.map.metrics[this.view.metric]; }

  putParts(parts) {
    super.putParts(parts);
    const { ranks } = this.canvas.dataset;
    if (ranks !== undefined) this.map = JSON.parse(ranks);
    this.paint();
  }

  choose(fields, isStep) {
    if (this.map?.metrics[fields.metric] === undefined) return super.choose(fields, isStep);
    Object.assign(this.view, fields);
    this.writeAddress(false);
    showView(this.root, this.view);
    this.paint();
    return undefined;
  }

  step(event) {
    const step = STEPS[event.key];
    if (step === undefined || !isShortcut(event)) return;
    const buttons = [...byId("job-metric").children];
    const at = buttons.findIndex(({ dataset }) => dataset.value === this.view.metric);
    buttons.at((at + step) % buttons.length)?.click();
  }

  paint() {
    const width = this.canvas.parentElement.clientWidth;
    if (this.map === null || width === 0) return;
    const { map: { t }, metric: { rows, full, legend, label }, canvas } = this;
    const ratio = devicePixelRatio || 1;
    const height = Math.max(1, rows.length * ROW);
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    canvas.setAttribute("aria-label", label);
    say(byId("job-scale"), legend);
    const context = canvas.getContext("2d");
    const { css: scale } = palette(theme());
    // Whole pixels, without a gap: else rounding parts the columns here and there.
    const edge = (at) => Math.floor((at * canvas.width) / Math.max(1, t.length));
    rows.forEach((row, number) => row.forEach((value, at) => {
      if (value === null || full[number] === null) return;
      context.fillStyle = scale[Math.round(Math.min(1, Math.max(0, value / full[number])) * FULL)];
      context.fillRect(edge(at), number * ROW * ratio, edge(at + 1) - edge(at), (ROW - GAP) * ratio);
    }));
  }

  hover({ offsetX, offsetY }) {
    const { map, canvas } = this;
    const [row, at] = [Math.floor(offsetY / ROW), Math.floor((offsetX / canvas.clientWidth) * (map?.t.length ?? 0))];
    if (map?.names[row] === undefined || map.t[at] === undefined) return;
    const { rows, unit, per, digits } = this.metric;
    const value = rows[row][at];
    const words = unit.startsWith("B") ? oneWord(valueOf({ key: "", unit }, value)) : `${amount(value / per, digits)} ${unit}`;
    say(byId("job-scale"), `${map.names[row]}, ${clock(map.t[at])}: ${value === null ? "not running, or unknown" : words}`);
  }
}
