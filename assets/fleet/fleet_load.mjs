// The ground of the time bar: the utilization of the fleet, or of some GPUs, over its span.

import { look } from "../parts/api.mjs";
import { byId, contextOf, onTheme, say, show, theme } from "../parts/dom.mjs";
import { amount, clock } from "../parts/format.mjs";
import { FULL, palette } from "../parts/gauges.mjs";

const STEPS = 120;
const MINUTE_S = 60;

export class FleetLoad {
  /**
   * `uuidsOf`: of which GPUs; null: of all.
   * @param {TimeSpan} bar
   * @param {(() => string[]) | null} uuidsOf
   */
  constructor(bar, uuidsOf = null) {
    this.bar = bar;
    this.uuidsOf = uuidsOf;
    /** @type {HTMLCanvasElement} */
    this.canvas = byId("time-load");
    /** @type {Hub.FleetLoadView | null} */
    this.load = null;
    this.hover = byId("time-hover");
    const track = this.canvas.parentElement ?? this.canvas;
    track.addEventListener("pointermove", ({ clientX }) =>
      this.point(track.getBoundingClientRect(), clientX),
    );
    for (const kind of ["pointerleave", "pointercancel"])
      track.addEventListener(kind, () => show(this.hover, false));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    onTheme(() => this.draw());
  }

  async look() {
    if (this.uuidsOf?.().length === 0) return;
    const step = Math.max(MINUTE_S, Math.ceil(this.bar.rangeS / STEPS / MINUTE_S) * MINUTE_S);
    const query = new URLSearchParams({
      start: String(Math.floor(this.bar.start)),
      end: String(Math.ceil(this.bar.end)),
      step: String(step),
    });
    if (this.uuidsOf !== null) query.set("gpus", this.uuidsOf().join());
    const load = await look(`load?${query}`).catch(() => null);
    if (load !== null) this.load = load;
    this.draw();
  }

  /**
   * Says which time is pointed at, and what the load was then.
   * @type {(track: DOMRect, clientX: number) => void}
   */
  point({ left, width }, clientX) {
    const share = Math.min(1, Math.max(0, (clientX - left) / width));
    const at = this.bar.start + share * (this.bar.end - this.bar.start);
    const pct =
      this.load === null
        ? undefined
        : this.load.util_mean_pct[Math.floor((at - this.load.start) / this.load.step)];
    say(
      this.hover,
      `${clock(at)} · ${pct === null || pct === undefined ? "load unknown" : `average utilization ${amount(pct)} %`}`,
    );
    this.hover.style.left = `${100 * share}%`;
    this.hover.style.transform = `translateX(-${100 * share}%)`;
    show(this.hover, true);
  }

  draw() {
    const { canvas, bar, load } = this;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (width === 0 || load === null) return;
    Object.assign(canvas, { width: width * ratio, height: height * ratio });
    const context = contextOf(canvas);
    context.scale(ratio, ratio);
    const look = palette(theme()).live;
    /** @type {(at: number) => number} */
    const x = (at) => (width * (at - bar.start)) / (bar.end - bar.start);
    /** @type {(pct: number) => number} */
    const y = (pct) => height - 1 - (pct / 100) * (height - 7);
    for (const run of runs(load)) {
      const last = run[run.length - 1];
      const [from, to] = [x(run[0].at), x(last.at + load.step)];
      const line = new Path2D();
      line.moveTo(from, y(run[0].pct));
      for (const { at, pct } of run) line.lineTo(x(at + load.step / 2), y(pct));
      line.lineTo(to, y(last.pct));
      const area = new Path2D(line);
      area.lineTo(to, height);
      area.lineTo(from, height);
      context.fillStyle = look.css[Math.round(FULL * 0.4)];
      context.fill(area);
      context.strokeStyle = look.css[FULL];
      context.lineWidth = 1.2;
      context.stroke(line);
    }
  }
}

/**
 * Steps that follow each other without a hole.
 * @type {(load: Hub.FleetLoadView) => { at: number, pct: number }[][]}
 */
function runs({ start, step, util_mean_pct: values }) {
  /** @type {{ at: number, pct: number }[][]} */
  const lines = [];
  values.forEach((pct, place) => {
    if (pct === null) return;
    const at = start + place * step;
    const line = lines.at(-1);
    if (line === undefined || line[line.length - 1].at !== at - step) lines.push([{ at, pct }]);
    else line.push({ at, pct });
  });
  return lines;
}
