// A timeline: axes, lines, limits, bands of throttling, marks of events, hairlines of alerts. The only uPlot.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { make, say } from "../parts/dom.mjs";
import { strokeAmong, strokeOf } from "../parts/page_colours.mjs";
import { explain } from "../parts/tips.mjs";

const AXIS_EMS = 6;
const NARROW = 400;
/** @type {{ info: "info", warn: "warning", crit: "critical" }} */
export const KINDS = { info: "info", warn: "warning", crit: "critical" };
const SYNC = uPlot.sync("lines");

export class Chart {
  /** @type {Band[]} */
  bands = [];
  /** @type {ChartMark[]} */
  marks = [];
  /** @type {AlertSpan[]} */
  alerts = [];
  /** @type {HTMLElement[]} */
  swatches = [];
  /** @type {Map<number, Trouble>} */
  tones = new Map();
  tonesText = "";
  /** @type {number | null} */
  lit = null;
  /** @type {TimeRange | undefined} */
  span;
  /** @type {number | null} */
  width = null; // in pixels, where it differs from its place's
  /** @type {any[]} */
  data = [[]];
  /** @type {any} */
  plot; // uPlot, whose types have no paths

  /**
   * `lines`: [{label, read(value) -> words}]; `span`: () -> {from, to}; `limits`: [{label, value}].
   * `together`: what a number of GPUs have in all, where their tiles are the legend; each line's
   * value then shows under the cursor alone. `isQuiet`: a line without trouble is grey.
   * @param {ChartTraits} traits
   */
  constructor({
    title,
    meaning,
    unit,
    lines,
    limits,
    hasLimits = false,
    range,
    increments,
    onZoom,
    colours,
    format,
    together = null,
    isQuiet = false,
  }) {
    // Of many lines each value stands without the unit, which the title has: one row of them.
    const briefUnit = unit && lines.length > 4 ? ` ${unit}` : "";
    this.lines = lines;
    this.range = range;
    this.increments = increments;
    this.onZoom = onZoom;
    this.format = format;
    this.briefUnit = briefUnit;
    this.limits = limits;
    this.colours = colours;
    this.together = together;
    this.isQuiet = isQuiet;
    this.place = make("div", { class: "chart-place" });
    this.values = lines.map(() => make("b", {}, "…"));
    this.legend = make(
      "ul",
      { class: "chart-legend" },
      ...lines.map((line, at) => this.entry(line, at)),
    );
    const heading = make("h2", { tabindex: "0" }, title, unit ? make("span", {}, unit) : null);
    explain(heading, meaning);
    this.sum = make("p", { class: "chart-sum" });
    this.root = make(
      "section",
      {
        "class": `chart${legendClass(lines)}${briefUnit ? " brief" : ""}${together ? " together" : ""}`,
        "aria-label": title,
      },
      make("header", {}, heading, together ? this.sum : null, this.legend),
      this.place,
    );
    this.limitWords = make("p", { class: "chart-limits", hidden: hasLimits ? null : "" });
    this.root.append(this.limitWords);
    this.setLimits(limits);
    this.draw(colours);
  }

  /**
   * Their words stand below: none lies on the data.
   * @type {(limits: ChartLimit[]) => void}
   */
  setLimits(limits) {
    this.limits = limits;
    say(
      this.limitWords,
      limits.map(({ label, value }) => `${label} ${this.lines[0].read(value)}`).join(" · "),
    );
  }

  /**
   * The rows of GPUs with which something is wrong, by tone: amber or red, and all others recede.
   * @type {(tones: Map<number, Trouble>) => void}
   */
  setTones(tones) {
    const text = [...tones].join();
    if (text === this.tonesText) return;
    this.tones = tones;
    this.tonesText = text;
    this.tone();
  }

  tone() {
    this.swatches.forEach((swatch, at) => {
      const { stroke, dash } = this.strokeOf(at);
      swatch.style.borderTop = `2px ${dash.length === 0 ? "solid" : dash[0] < 3 ? "dotted" : "dashed"} ${stroke}`;
    });
    this.plot?.series
      .slice(1)
      .forEach((/** @type {uPlot.Series} */ series, /** @type {number} */ at) =>
        Object.assign(series, { dash: this.strokeOf(at).dash }, this.weightOf(at)),
      );
  }

  /**
   * Highlights a row, so that all others recede; null: none.
   * @type {(at: number | null) => void}
   */
  light(at) {
    if (at === this.lit) return;
    this.lit = at;
    this.tone();
    this.plot.redraw(false);
  }

  /** @type {(at: number) => Stroke} */
  strokeOf(at) {
    const { theme } = this.colours;
    if (this.together === null) return strokeOf(theme, at);
    if (at === this.lit && this.isQuiet && !this.tones.has(at))
      return { stroke: this.colours.ink, dash: [] };
    return strokeAmong(theme, at, this.tones.get(at), this.colours, this.isQuiet);
  }

  /** @type {(at: number) => { width: number, alpha: number }} */
  weightOf(at) {
    if (this.lit !== null)
      return at === this.lit ? { width: 2, alpha: 1 } : { width: 1.1, alpha: 0.25 };
    const isMuted = this.tones.size > 0 && !this.tones.has(at);
    return {
      width: this.tones.has(at) ? 1.6 : isMuted || this.isQuiet ? 1.1 : 1.5,
      alpha: isMuted ? 0.75 : 1,
    };
  }

  /** @type {(line: ChartLine, at: number) => HTMLElement} */
  entry(line, at) {
    const swatch = make("span", { class: "swatch" });
    this.swatches.push(swatch);
    if (this.lines.length === 1) return make("li", {}, this.values[at]);
    const button = make(
      "button",
      {
        "type": "button",
        "class": "legend-line",
        "aria-pressed": "true",
        "onclick": (event) => this.toggle(at, /** @type {HTMLElement} */ (event.currentTarget)),
      },
      swatch,
      make("span", {}, line.short ?? line.label),
      this.values[at],
    );
    explain(button, `${line.meaning ?? line.label}\nClick to show or hide this line.`);
    return make("li", {}, button);
  }

  /** @type {(at: number, button: HTMLElement) => void} */
  toggle(at, button) {
    const isShown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(isShown));
    this.plot.setSeries(at + 1, { show: isShown });
  }

  /**
   * Draws it again in these colours: uPlot takes colours only once. `width`: other than its
   * place's.
   * @type {(colours: PageColours, width?: number | null) => void}
   */
  draw(colours, width = null) {
    this.colours = colours;
    this.width = width;
    const visible = this.plot?.series
      .slice(1)
      .map((/** @type {uPlot.Series} */ series) => series.show);
    this.plot?.destroy();
    this.plot = new uPlot(this.options(colours, visible), this.data, this.place);
    this.tone();
  }

  /** @type {(colours: PageColours, visible: (boolean | undefined)[] | undefined) => any} */
  options(colours, visible) {
    /** @type {any} */
    const options = {
      width: this.widthNow(),
      height: colours.heightPx,
      cursor: {
        sync: { key: SYNC.key, setSeries: false },
        drag: { x: true, y: false, setScale: false },
        points: { size: 6 },
        y: false,
      },
      legend: { show: false },
      scales: {
        x: { time: true, range: () => [this.span?.from ?? 0, this.span?.to ?? 1] },
        y: {
          range: (/** @type {uPlot} */ _, /** @type {number} */ low, /** @type {number} */ high) =>
            this.range(low, high, this.limits),
        },
      },
      axes: [
        axis(colours, {
          size: 2.4 * colours.textPx,
          space: (/** @type {uPlot} */ { width }) => (width < NARROW ? 44 : 76),
          values: (/** @type {uPlot} */ _, /** @type {number[]} */ ticks) => ticks.map(clock),
        }),
        axis(colours, {
          size: AXIS_EMS * colours.textPx,
          space: 34,
          incrs: this.increments,
          values: (/** @type {uPlot} */ _, /** @type {number[]} */ ticks) =>
            ticks.map((tick) => this.format(tick, ticks[1] - ticks[0])),
        }),
      ],
      series: [
        {},
        ...this.lines.map((line, at) => ({
          dash: this.strokeOf(at).dash,
          stroke: () => this.strokeOf(at).stroke,
          ...this.weightOf(at),
          show: visible?.[at] ?? true,
          points: { show: false },
          spanGaps: false,
        })),
      ],
      hooks: {
        drawClear: [(/** @type {uPlot} */ plot) => this.drawUnder(plot)],
        draw: [(/** @type {uPlot} */ plot) => this.drawOver(plot)],
        setSelect: [(/** @type {uPlot} */ plot) => this.selected(plot)],
        setCursor: [() => this.readOut()],
      },
    };
    return options;
  }

  widthNow() {
    return this.width ?? Math.max(200, this.place.clientWidth);
  }

  /** @type {(data: any[], span: TimeRange, overlay: ChartOverlay) => void} */
  show(data, span, { bands, marks, alerts }) {
    this.data = data;
    this.span = span;
    this.bands = bands;
    this.marks = marks;
    this.alerts = alerts;
    this.root.dataset.alerts = String(alerts.length);
    this.plot.setData(data);
    this.readOut();
  }

  resize() {
    const width = this.widthNow();
    if (width !== this.plot.width) this.plot.setSize({ width, height: this.colours.heightPx });
  }

  /** The values under the cursor, or the newest. */
  readOut() {
    const { idx } = this.plot.cursor;
    const at = idx ?? this.data[0].length - 1;
    this.readTogether(at, (idx ?? null) !== null);
    this.values.forEach((place, line) => {
      const value = this.data[line + 1]?.[at];
      const words = value === null || value === undefined ? "–" : this.lines[line].read(value);
      say(
        place,
        this.briefUnit && words.endsWith(this.briefUnit)
          ? words.slice(0, -this.briefUnit.length)
          : words,
      );
    });
  }

  /** @type {(at: number, isAtCursor: boolean) => void} */
  readTogether(at, isAtCursor) {
    if (this.together === null) return;
    const values = this.data
      .slice(1)
      .map((column) => column[at])
      .filter((value) => value !== null && value !== undefined);
    say(this.sum, values.length === 0 ? "" : this.together(values));
    this.root.classList.toggle("reading", isAtCursor);
  }

  /** @type {(plot: uPlot) => void} */
  selected(plot) {
    const { left, width } = plot.select;
    if (width < 8) return;
    const [from, to] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.onZoom({ from, to });
  }

  /** @type {(plot: uPlot) => void} */
  drawUnder(plot) {
    const { ctx, bbox } = plot;
    for (const { from, to, kind } of this.bands) {
      const left = Math.max(bbox.left, plot.valToPos(from, "x", true));
      const right = Math.min(bbox.left + bbox.width, plot.valToPos(to, "x", true));
      if (right <= left) continue;
      ctx.fillStyle = this.colours.bands[kind];
      ctx.fillRect(left, bbox.top, Math.max(1, right - left), bbox.height);
    }
  }

  /** @type {(plot: uPlot) => void} */
  drawOver(plot) {
    const { ctx } = plot;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    if (this.lit === null) for (const at of this.tones.keys()) this.drawAbove(plot, at);
    for (const limit of this.limits) this.drawLimit(plot, limit);
    for (const { from, severity } of this.alerts)
      this.drawHairline(plot, from, this.colours.marks[KINDS[severity]]);
    for (const { at, kind } of this.marks) this.drawMark(plot, at, this.colours.marks[kind]);
    ctx.restore();
  }

  /**
   * A line that lies under others of the same value, once more: uPlot draws them in the order of
   * the GPUs.
   * @type {(plot: uPlot, at: number) => void}
   */
  drawAbove({ series, ctx, bbox }, at) {
    const { show: isShown, _paths: paths, width } = /** @type {any} */ (series[at + 1]);
    if (!isShown || !paths?.stroke) return;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top - width, bbox.width, bbox.height + 2 * width);
    ctx.clip();
    if (paths.clip) ctx.clip(paths.clip); // its gaps
    Object.assign(ctx, {
      lineWidth: width * devicePixelRatio,
      strokeStyle: this.strokeOf(at).stroke,
      lineJoin: "round",
    });
    ctx.stroke(paths.stroke);
    ctx.restore();
  }

  /** @type {(plot: uPlot, at: number) => number | null} */
  xOf({ bbox, valToPos }, at) {
    const x = Math.round(valToPos(at, "x", true));
    return x < bbox.left || x > bbox.left + bbox.width ? null : x;
  }

  /** @type {(plot: uPlot, at: number, colour: string) => void} */
  drawHairline(plot, at, colour) {
    const [x, { ctx, bbox }] = [this.xOf(plot, at), plot];
    if (x === null) return;
    ctx.save();
    ctx.globalAlpha = 0.7;
    ctx.fillStyle = colour;
    ctx.fillRect(x, bbox.top, devicePixelRatio, bbox.height);
    ctx.restore();
  }

  /**
   * A notch in the upper edge.
   * @type {(plot: uPlot, at: number, colour: string) => void}
   */
  drawMark(plot, at, colour) {
    const [x, { ctx, bbox }, size] = [this.xOf(plot, at), plot, 4 * devicePixelRatio];
    if (x === null) return;
    ctx.fillStyle = colour;
    ctx.beginPath();
    ctx.moveTo(x - size, bbox.top);
    ctx.lineTo(x + size, bbox.top);
    ctx.lineTo(x, bbox.top + 1.5 * size);
    ctx.fill();
  }

  /** @type {(plot: uPlot, limit: ChartLimit) => void} */
  drawLimit(plot, { value }) {
    const { ctx, bbox } = plot;
    const y = Math.round(plot.valToPos(value, "y", true));
    if (y < bbox.top || y > bbox.top + bbox.height) return;
    ctx.strokeStyle = this.colours.limit;
    ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
    line(ctx, bbox.left, y, bbox.left + bbox.width, y);
    ctx.setLineDash([]);
  }

  destroy() {
    this.plot.destroy();
  }
}

// A legend of one line stands beside the title; more are columns below it, of short or of long names.
/** @type {(lines: ChartLine[]) => string} */
function legendClass(lines) {
  if (lines.length < 3) return "";
  return lines.length > 4 || lines.every(({ short }) => short !== undefined)
    ? " many"
    : " many long";
}

/** @type {(ctx: Canvas, x0: number, y0: number, x1: number, y1: number) => void} */
function line(ctx, x0, y0, x1, y1) {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}

/** @type {(number: number) => string} */
const two = (number) => String(number).padStart(2, "0");

/** @type {(seconds: number) => string} */
function clock(seconds) {
  const time = new Date(seconds * 1_000);
  const words = `${two(time.getHours())}:${two(time.getMinutes())}`;
  return seconds % 60 === 0 ? words : `${words}:${two(time.getSeconds())}`;
}

/** @type {(colours: PageColours, more: object) => object} */
function axis({ soft, line: grid, font, textPx }, more) {
  return {
    stroke: soft,
    font: `${textPx}px ${font}`,
    grid: { stroke: grid, width: 1 },
    ticks: { show: false },
    ...more,
  };
}

/**
 * Joins lines on a common x axis; a line is not parted where only another one has a point.
 * @type {(tracks: TrackWindow[]) => any[]}
 */
export function joinLines(tracks) {
  const isSame = tracks.every(
    ({ t }) =>
      t.length === tracks[0].t.length &&
      t.at(0) === tracks[0].t.at(0) &&
      t.at(-1) === tracks[0].t.at(-1),
  );
  if (isSame) return [tracks[0].t, ...tracks.map(({ values }) => values)];
  return uPlot.join(tracks.map(({ t, values }) => [t, values]));
}
