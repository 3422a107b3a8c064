// The ranks of a job over time, painted: a row for each rank, in the colours of a metric; the value under the pointer in
// words. All metrics are here, so that another one shows at once. All else of the page is dashboard/pages/job.py.

/** @import { CommandStore } from "../actions/commands_store.mjs" */

import { allWithin, byId, contextOf, isShortcut, onTheme, say, theme } from "../parts/dom.mjs";
import { amount, bytesWords, clock, oneWord, perSecond } from "../parts/format.mjs";
import { FULL, palette } from "../parts/gauges.mjs";
import ReadPage from "../reading/read_page.mjs";
import { showView } from "../reading/view_controls.mjs";

const ROW = 20;
const GAP = 2;
/** @type {Record<string, number | undefined>} */
const STEPS = { ArrowRight: 1, ArrowLeft: -1 };

export default class JobPage extends ReadPage {
  /**
   * Data of the canvas; null: none has come yet.
   * @type {Hub.RankMapData | null}
   */
  map = null;

  /** @type {(store: CommandStore) => void} */
  listen(store) {
    super.listen(store);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () =>
      say(byId("job-scale"), this.metric?.legend ?? ""),
    );
    document.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.paint()).observe(this.place);
    onTheme(() => this.paint());
  }

  /** @type {HTMLCanvasElement} */
  get canvas() {
    return byId("job-canvas");
  }

  get place() {
    return /** @type {HTMLElement} */ (this.canvas.parentElement);
  }

  get metric() {
    return this.map?.metrics[this.view.metric];
  }

  /** @type {(parts: Record<string, WrittenNodes>) => void} */
  putParts(parts) {
    super.putParts(parts);
    const { ranks } = this.canvas.dataset;
    if (ranks !== undefined) this.map = JSON.parse(ranks);
    this.paint();
  }

  /** @type {(fields: Values, isStep?: boolean) => void} */
  choose(fields, isStep) {
    if (this.map?.metrics[fields.metric] === undefined) {
      super.choose(fields, isStep);
      return;
    }
    Object.assign(this.view, fields);
    this.writeAddress(false);
    showView(this.root, this.view);
    this.paint();
  }

  /** @type {(event: KeyboardEvent) => void} */
  step(event) {
    const step = STEPS[event.key];
    if (step === undefined || !isShortcut(event)) return;
    const buttons = allWithin(byId("job-metric"), "button");
    const at = buttons.findIndex(({ dataset }) => dataset.value === this.view.metric);
    buttons.at((at + step) % buttons.length)?.click();
  }

  paint() {
    const {
      map,
      metric,
      canvas,
      place: { clientWidth: width },
    } = this;
    if (map === null || metric === undefined || width === 0) return;
    const { rows, full, legend, label } = metric;
    const ratio = devicePixelRatio || 1;
    const height = Math.max(1, rows.length * ROW);
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    canvas.setAttribute("aria-label", label);
    say(byId("job-scale"), legend);
    const context = contextOf(canvas);
    const { css: scale } = palette(theme());
    // Whole pixels, without a gap: else rounding parts the columns here and there.
    /** @type {(at: number) => number} */
    const edge = (at) => Math.floor((at * canvas.width) / Math.max(1, map.t.length));
    rows.forEach((row, number) =>
      row.forEach((value, at) => {
        const most = full[number];
        if (value === null || most === null) return;
        context.fillStyle = scale[Math.round(Math.min(1, Math.max(0, value / most)) * FULL)];
        context.fillRect(
          edge(at),
          number * ROW * ratio,
          edge(at + 1) - edge(at),
          (ROW - GAP) * ratio,
        );
      }),
    );
  }

  /** @type {(event: PointerEvent) => void} */
  hover({ offsetX, offsetY }) {
    const { map, metric, canvas } = this;
    const [row, at] = [
      Math.floor(offsetY / ROW),
      Math.floor((offsetX / canvas.clientWidth) * (map?.t.length ?? 0)),
    ];
    if (map?.names[row] === undefined || map.t[at] === undefined || metric === undefined) return;
    const value = metric.rows[row][at];
    const words = value === null ? "not running, or unknown" : valueWords(metric, value);
    say(byId("job-scale"), `${map.names[row]}, ${clock(map.t[at])}: ${words}`);
  }
}

/** @type {(metric: Hub.RankMetricData, value: number) => string} */
function valueWords({ unit, per, digits }, value) {
  if (unit === "B") return bytesWords(value);
  return unit === "B/s" ? oneWord(perSecond(value)) : `${amount(value / per, digits)} ${unit}`;
}
