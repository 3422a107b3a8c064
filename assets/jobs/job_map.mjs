// Ranks over time as a heatmap: a row for each rank, its name beside it, what is under the pointer in words.

import { make, say, theme } from "../parts/dom.mjs";
import { amount, bytesWords, clock } from "../parts/format.mjs";
import { FULL, palette } from "../parts/gauges.mjs";

const ROW = 20;
const GAP = 2;
export const METRICS = {
  util_pct: { words: "GPU utilization", full: () => 100, say: (value) => `${amount(value)} %` },
  power_w: { words: "Power", full: ({ power_limit_w: most }) => most, say: (value) => `${amount(value)} W` },
  mem_used_bytes: { words: "Memory of the rank", full: ({ mem_total_bytes: most }) => most, say: (value) => bytesWords(value) },
  mem_util_pct: { words: "Memory utilization: share of time in which memory was read or written", full: () => 100, say: (value) => `${amount(value)} %` },
  sm_active_pct: { words: "SM active: share of the multiprocessors that were active", full: () => 100, say: (value) => `${amount(value)} %` },
  nvlink_tx_bytes_per_s: { words: "NVLink: bytes sent per second over all links; the scale ends at the highest shown", full: (_rank, rows) => Math.max(1, ...rows.flat().filter((value) => value !== null)), say: (value) => `${bytesWords(value)}/s` },
  host_cpu_pct: { words: "Host CPU of the rank and its child processes, in CPU cores", full: () => 800, say: (value) => `${amount(value / 100, 1)} processors` },
  io_pressure_pct: { words: "Disk pressure of the host: share of time in which a process waited for a disk", full: () => 100, say: (value) => `${amount(value)} %` },
  temp_c: { words: "Temperature", full: () => 100, say: (value) => `${amount(value)} °C` },
};

export const nameOf = ({ number, host, place }) => `${number === null ? "" : `rank ${number} · `}${host}:${place}`;

export class JobMap {
  constructor(place, words) {
    Object.assign(this, { place, words, page: null, metric: "util_pct" });
    this.canvas = make("canvas", { role: "img", tabindex: "0" });
    this.names = make("ul", { class: "job-names" });
    this.box = make("div", { class: "job-canvas" }, this.canvas);
    place.append(this.names, this.box);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => say(this.words, this.legend()));
    new ResizeObserver(() => this.paint()).observe(this.box);
  }

  draw(page, metric, marked) {
    Object.assign(this, { page, metric, marked });
    this.names.replaceChildren(...page.ranks.map((rank, at) => make("li", { class: `${marked.has(at) ? "marked" : ""}${rank.is_held ? "" : " gone"}` },
      make("a", { href: `/gpu/${encodeURIComponent(rank.host)}/${encodeURIComponent(rank.place)}`, title: rank.gpu }, nameOf(rank)))));
    this.canvas.setAttribute("aria-label", `${METRICS[metric].words}, ${page.ranks.length} ranks over time`);
    say(this.words, this.legend());
    this.paint();
  }

  legend() {
    if (this.page === null || this.page.ranks.length === 0) return this.page?.is_running ? "A new job: this page shows its history from its first full minute on." : "No history of this job in this time.";
    const { start, end, step } = this.page;
    return `${METRICS[this.metric].words}. ${clock(start)} to ${clock(end)}, a column for each ${step < 3_600 ? `${step / 60} min` : `${step / 3_600} h`}. Empty: the rank was not running, or its value is unknown.`;
  }

  paint() {
    const width = this.box.clientWidth;
    if (this.page === null || width === 0) return;
    const { ranks, t, series } = this.page;
    const ratio = devicePixelRatio || 1;
    const height = Math.max(1, ranks.length * ROW);
    Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    const context = this.canvas.getContext("2d");
    const { css: scale } = palette(theme());
    // Whole pixels, without a gap: else rounding parts the columns here and there.
    const edge = (at) => Math.floor((at * this.canvas.width) / Math.max(1, t.length));
    ranks.forEach((rank, row) => {
      const full = METRICS[this.metric].full(rank, series[this.metric]);
      series[this.metric][row].forEach((value, at) => {
        if (value === null || full === null) return;
        context.fillStyle = scale[Math.round(Math.min(1, Math.max(0, value / full)) * FULL)];
        context.fillRect(edge(at), row * ROW * ratio, edge(at + 1) - edge(at), (ROW - GAP) * ratio);
      });
    });
  }

  hover(event) {
    const { ranks, t, series } = this.page ?? { ranks: [], t: [] };
    const row = Math.floor(event.offsetY / ROW);
    const at = Math.floor((event.offsetX / this.canvas.clientWidth) * t.length);
    if (ranks[row] === undefined || t[at] === undefined) return;
    const value = series[this.metric][row][at];
    say(this.words, `${nameOf(ranks[row])}, ${clock(t[at])}: ${value === null ? "not running, or unknown" : METRICS[this.metric].say(value)}`);
  }
}
