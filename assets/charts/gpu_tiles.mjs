// The GPUs of a node or of a comparison in a row: the legend of all charts below, how each stands, whose it is, the way to it.

import { metricOf } from "../parts/metric_catalogue.mjs";
import { strokeAmong } from "../parts/page_colours.mjs";
import { Lines, make, say, show, theme } from "../parts/dom.mjs";
import { oneWord, plural } from "../parts/format.mjs";
import { shareOf, stateWords, valueWords } from "../fleet/gpu_words.mjs";
import { explain } from "../parts/tips.mjs";

const COLOURS = { waste: "var(--waste)", critical: "var(--critical)" };
/** @type {Record<string, string>} */
const NOT_FREE = {
  leased: "leased",
  memory: "memory in use",
  busy: "busy",
  maintenance: "in maintenance",
  out_of_service: "out of service",
  row_remap: "needs a reset",
  managed: "managed",
};
const FIGURES = ["util_pct", "mem_used_bytes", "temp_c", "power_w"];

export class GpuTiles {
  /** @type {Map<string, ChartLabel>} */
  labels = new Map();
  /** @type {Map<string, GpuTrouble>} */
  trouble = new Map();
  /** @type {Map<string, string>} */
  owners = new Map();

  /**
   * `isQuiet`: lines without trouble are all grey, and tiles show no colour of theirs.
   * `pointed(uuid)`: at whose tile somebody points or stands with the keyboard; null: at none.
   * @param {HTMLElement} place
   * @param {MetricBook} book
   * @param {boolean} isQuiet
   * @param {(uuid: string | null) => void} pointed
   */
  constructor(place, book, isQuiet, pointed) {
    this.place = place;
    this.book = book;
    this.isQuiet = isQuiet;
    this.pointed = pointed;
    /** @type {Lines<ShownGpu>} */
    this.lines = new Lines(
      place,
      ({ uuid }) => uuid,
      (gpu) => this.tile(gpu),
      false,
    );
  }

  /**
   * Draws the tiles. By UUID: `labels`, `trouble` of gpu_trouble.mjs, and `owners` in words.
   * @type {(gpus: ShownGpu[], how: { labels: Map<string, ChartLabel>,
   *   trouble: Map<string, GpuTrouble>, owners: Map<string, string> }) => void}
   */
  draw(gpus, { labels, trouble, owners }) {
    this.labels = labels;
    this.trouble = trouble;
    this.owners = owners;
    show(this.place, gpus.length > 1);
    if (gpus.length > 1) this.lines.draw(gpus);
  }

  /** @type {(gpu: ShownGpu) => DrawnLine<ShownGpu>} */
  tile({ uuid }) {
    const [swatch, name, note, owner, since, memory] = [
      make("span", { class: "swatch", ...(this.isQuiet ? { hidden: "" } : {}) }),
      make("strong", {}),
      make("span", { class: "tile-note" }),
      make("span", { class: "tile-owner" }),
      make("span", { class: "tile-note" }),
      make("s", {}),
    ];
    const figures = FIGURES.map((key) => this.figure(metricOf(this.book, key)));
    const root = make(
      "a",
      { class: "lines-gpu", href: `/gpu/${encodeURIComponent(uuid)}` },
      make("span", { class: "tile-head" }, swatch, name, note),
      make("span", { class: "tile-head" }, owner, since),
      make("span", { class: "tile-figures" }, figures),
      make("span", { "class": "tile-memory", "aria-hidden": "true" }, memory),
    );
    for (const kind of ["pointerenter", "focus"])
      root.addEventListener(kind, () => this.pointed(uuid));
    for (const kind of ["pointerleave", "blur"])
      root.addEventListener(kind, () => this.pointed(null));
    /** @type {(gpu: ShownGpu, at: number) => void} */
    const draw = (gpu, at) => {
      const trouble = this.trouble.get(uuid);
      const { stroke, dash } = strokeAmong(theme(), at, trouble?.tone, COLOURS, this.isQuiet);
      swatch.style.borderTop = `3px ${dash.length === 0 ? "solid" : "dashed"} ${stroke}`;
      say(name, this.labels.get(uuid)?.label ?? "");
      FIGURES.forEach((key, place) => {
        const words = valueWords(gpu, metricOf(this.book, key), this.book);
        say(figures[place], words.isMissing ? "–" : oneWord(words));
      });
      memory.style.width = `${100 * (shareOf(gpu, metricOf(this.book, "mem_used_bytes")) ?? 0)}%`;
      root.classList.toggle("waste", trouble?.tone === "waste");
      root.classList.toggle("critical", trouble?.tone === "critical");
      note.title = trouble?.why ?? (gpu.isThen ? "" : (gpu.why_not_free?.why ?? ""));
      say(note, trouble?.note ?? standing(gpu));
      note.className = `tile-note ${gpu.state}`;
      say(since, trouble?.since ?? "");
      say(owner, this.owners.get(uuid) ?? (gpu.isThen ? "" : "no task"));
      owner.title = owner.textContent;
    };
    return { draw, root };
  }

  /** @type {(metric: Metric) => HTMLElement} */
  figure({ label, meaning }) {
    const place = make("b", {});
    explain(place, `${label}: ${meaning}`);
    return place;
  }
}

/**
 * Returns the state of a GPU without trouble, in words.
 * @type {(gpu: ShownGpu) => string}
 */
function standing(gpu) {
  if (gpu.isThen) return "";
  if (gpu.state !== "ok") return stateWords(gpu.state);
  if (gpu.is_free) return "free";
  return gpu.tasks.length > 0
    ? plural(gpu.tasks.length, "task")
    : (NOT_FREE[gpu.why_not_free?.reason ?? ""] ?? "not free");
}
