// Lines of GPUs on the History page, as Plotly wants them (sums: dashboard/pages/figures.py). Text from nodes is hostile: Plotly would read
// markup in it, so that it is taken out before.

import { KINDS, strokeOf } from "../charts/chart.mjs";
import { zoneOffset } from "../parts/time_ranges.mjs";

const LEAST_ROW = 112;
const MOST_ROW = 240;
const GAP = 32;
const EDGES = 70;
const MARKS = { critical: { symbol: "diamond", size: 11 }, warning: { symbol: "triangle-up", size: 10 }, info: { symbol: "circle", size: 6 } };
const DASHES = ["solid", "dash", "dot", "dashdot"];
const GIB = 2 ** 30;
const UNITS = { "B": { by: 1 / GIB, unit: "GiB", format: ".1f" }, "B/s": { by: 1e-6, unit: "MB/s", format: ".1f" }, "J": { by: 1 / 3.6e6, unit: "kWh", format: ".2f" } };
const LONGEST = 160;
const WHY = { unsupported: "Not supported here", denied: "Denied by the driver (agent lacks permission)" };

export const plain = (text) => String(text).slice(0, LONGEST).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function unitOf(metric) {
  return UNITS[metric.unit] ?? { by: 1, unit: metric.unit, format: ".1f" };
}

/** What all figures share: rows of one height under one another, on one axis of time. */
class Frame {
  constructor(rows, bounds, colours, room) {
    const row = Math.min(MOST_ROW, Math.max(LEAST_ROW, (room - EDGES + GAP) / rows.length - GAP));
    Object.assign(this, { rows, colours, row, offset: zoneOffset(bounds[1]) });
    this.inner = rows.length * (row + GAP) - GAP;
    this.height = this.inner + EDGES;
    this.layout = {
      height: this.height, margin: { l: 62, r: 14, t: 30, b: 40, pad: 0 }, showlegend: false, autosize: true, 
      paper_bgcolor: colours.ground, plot_bgcolor: colours.ground, font: { family: colours.font, size: colours.textPx, color: colours.soft },
      hovermode: "x unified", hoverlabel: { bgcolor: colours.raised, bordercolor: colours.line, font: { color: colours.ink, size: colours.textPx + 1 }, namelength: 40 },
      xaxis: { type: "date", range: bounds.map((t) => this.x(t)), gridcolor: colours.line, linecolor: colours.line, zeroline: false, anchor: "free", position: 0, hoverformat: "%a %e %b %Y, %H:%M:%S", tickfont: { color: colours.soft } },
      annotations: [], bargap: 0.1,
    };
    rows.forEach((row, at) => this.addRow(row, at));
  }

  /** Plotly knows no time zones: it is given the clock on the wall, as if it were UTC. */
  x(t) {
    return (t + this.offset) * 1000;
  }

  axis(at) {
    return at === 0 ? "y" : `y${at + 1}`;
  }

  addRow({ title, unit, range, floor }, at) {
    const top = 1 - (at * (this.row + GAP)) / this.inner;
    this.layout[at === 0 ? "yaxis" : `yaxis${at + 1}`] = {
      domain: [Math.max(0, top - this.row / this.inner), top], gridcolor: this.colours.line, zeroline: false, fixedrange: true,
      rangemode: floor === 0 ? "tozero" : "normal", nticks: 5, tickfont: { color: this.colours.soft }, ...(range ? { range } : {}),
    };
    this.layout.annotations.push({ text: `<b>${plain(title)}</b>${unit ? `  ${plain(unit)}` : ""}`, xref: "paper", yref: "paper", x: 0, xanchor: "left", y: top, yanchor: "bottom", yshift: 4, showarrow: false, font: { color: this.colours.ink, size: this.colours.textPx + 1 } });
  }

  /** Says so in its middle, without numbers that measure nothing. */
  leaveEmpty(at, words) {
    const axis = this.layout[at === 0 ? "yaxis" : `yaxis${at + 1}`];
    Object.assign(axis, { range: [0, 1], showticklabels: false, showgrid: false });
    const [low, high] = axis.domain;
    this.layout.annotations.push({ text: plain(words), xref: "paper", yref: "paper", x: 0.5, y: (low + high) / 2, showarrow: false, font: { color: this.colours.soft, size: this.colours.textPx + 1 } });
  }
}

/** A row per metric, a line per GPU: the mean, and from the lowest to the highest as a band. */
export function figureOfGpus({ data, metrics, gpus, labelOf, whyOf, events, alerts, bounds, colours, hasBand, room }) {
  const rows = metrics.map((metric) => ({ title: metric.label, unit: unitOf(metric).unit, floor: metric.unit === "°C" ? null : 0, range: metric.unit === "%" ? [0, 101] : null }));
  const frame = new Frame(rows, bounds, colours, room);
  const bands = [];
  const lines = [];
  metrics.forEach((metric, row) => gpus.forEach((uuid, at) => {
    const band = data.lines.get(uuid)?.get(metric.key);
    if (band === undefined) return;
    const { by, format } = unitOf(metric);
    const { stroke, dash } = strokeOf(colours.theme, at);
    const shared = { xaxis: "x", yaxis: frame.axis(row), legendgroup: uuid, type: "scatter" };
    if (hasBand && data.step > 1) bands.push({ ...shared, ...outline(frame, data, band, by), mode: "lines", fill: "toself", fillcolor: faint(stroke), line: { width: 0 }, hoverinfo: "skip", showlegend: false });
    lines.push({ ...shared, ...lineOf(frame, data, band, by), mode: "lines", name: plain(labelOf(uuid)), showlegend: row === 0, connectgaps: false,
      line: { color: stroke, width: 1.5, dash: DASHES[dash.length === 0 ? 0 : Math.floor(at / 8)] },
      hovertemplate: data.step > 1 ? `%{y:${format}}  (%{customdata[0]:${format}} to %{customdata[1]:${format}})` : `%{y:${format}}` });
    const alone = aloneOf(frame, data, band, by);
    if (alone.x.length > 0) lines.push({ ...shared, ...alone, mode: "markers", marker: { color: stroke, size: 3 }, hoverinfo: "skip", showlegend: false });
  }));
  metrics.forEach(({ key }, row) => {
    if (gpus.every((uuid) => data.lines.get(uuid)?.get(key)?.max.every((value) => value === null) ?? true)) frame.leaveEmpty(row, WHY[whyOf(key)] ?? "No data");
  });
  frame.layout.shapes = metrics.flatMap(({ key }, row) => alerts.filter((one) => !one.isSilenced && one.metrics?.has(key) && one.from >= bounds[0]).map((one) => hairline(frame, row, one)));
  const data_ = [...bands, ...lines];
  if (events.length > 0) data_.push(marksOf(frame, events, rows.length, colours));
  return { data: data_, layout: frame.layout };
}

/** A line at the start of an alert, in the chart of the metric that its rule reads. */
function hairline(frame, row, { from, severity }) {
  const x = frame.x(from);
  return { type: "line", xref: "x", yref: `${frame.axis(row)} domain`, x0: x, x1: x, y0: 0, y1: 1, opacity: 0.7, line: { width: 1, color: frame.colours.marks[KINDS[severity]] } };
}

/** A bucket stands in its middle. One alone between holes is drawn from its begin to its end. */
function lineOf(frame, { t, step }, { mean, min, max }, by) {
  const found = { x: [], y: [], customdata: [] };
  const put = (time, at) => { found.x.push(frame.x(time)); found.y.push(at === null ? null : mean[at] * by); found.customdata.push(at === null ? [null, null] : [min[at] * by, max[at] * by]); };
  for (const [first, last] of runsOf(mean)) {
    if (first === last) { put(t[first], first); put(t[first] + step, first); }
    else for (let at = first; at <= last; at++) put(t[at] + step / 2, at);
    put(t[last] + step, null);
  }
  return found;
}

/** A line of one step would be thinner than a pixel. */
function aloneOf(frame, { t, step }, { mean }, by) {
  const places = runsOf(mean).filter(([first, last]) => first === last).map(([first]) => first);
  return { x: places.map((at) => frame.x(t[at] + step / 2)), y: places.map((at) => mean[at] * by) };
}

function outline(frame, { t, step }, { min, max }, by) {
  const [x, y] = [[], []];
  for (const [first, last] of runsOf(min)) {
    const times = first === last ? [t[first], t[first] + step] : null;
    const at = (place) => (times === null ? t[place] + step / 2 : times[place - first]);
    const places = times === null ? Array.from({ length: last - first + 1 }, (_, place) => first + place) : [first, first + 1];
    const value = (values, place) => values[times === null ? place : first] * by;
    for (const place of places) { x.push(frame.x(at(place))); y.push(value(max, place)); }
    for (const place of places.reverse()) { x.push(frame.x(at(place))); y.push(value(min, place)); }
    x.push(null); y.push(null);
  }
  return { x, y };
}

/** [first, last] of what stands together without a hole. */
function runsOf(values) {
  const runs = [];
  let first = null;
  values.forEach((value, at) => {
    if (value !== null && first === null) first = at;
    if (value === null && first !== null) { runs.push([first, at - 1]); first = null; }
  });
  if (first !== null) runs.push([first, values.length - 1]);
  return runs;
}

/** On the lower edge of the lowest row, by how bad they are. */
function marksOf(frame, events, rows, colours) {
  const sorted = [...events].sort((one, other) => one.at - other.at);
  const axis = `y${rows + 1}`;
  frame.layout[`yaxis${rows + 1}`] = { overlaying: frame.axis(rows - 1), range: [0, 1], visible: false, fixedrange: true };
  return {
    type: "scatter", mode: "markers", xaxis: "x", yaxis: axis, name: "Events", showlegend: false, cliponaxis: false,
    x: sorted.map(({ at }) => frame.x(at)), y: sorted.map(() => 0.03),
    marker: { symbol: sorted.map(({ severity }) => MARKS[severity].symbol), size: sorted.map(({ severity }) => MARKS[severity].size), color: sorted.map(({ severity }) => colours.marks[severity]), line: { width: 1, color: colours.ground } },
    text: sorted.map((event) => plain(`${event.label} · ${event.host}${event.index === null ? "" : `:${event.place ?? event.index}`}${event.text ? ` · ${event.text}` : ""}`)),
    hovertemplate: "%{text}<extra></extra>",
  };
}

function faint(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return `rgba(${red}, ${green}, ${blue}, 0.18)`;
}
