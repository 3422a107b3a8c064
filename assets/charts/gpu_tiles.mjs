// The GPUs of a node or of a comparison in a row: the legend of all charts below, how each stands, the way to it.

import { strokeAmong } from "./chart.mjs";
import { Lines, make, say, show, theme } from "../parts/dom.mjs";
import { age, oneWord, plural } from "../parts/format.mjs";
import { valueWords, stateWords } from "../fleet/gpu_words.mjs";
import { explain } from "../parts/tips.mjs";

const COLOURS = { waste: "var(--waste)" };
const NOT_FREE = { leased: "leased", memory: "memory in use", busy: "busy", maintenance: "in maintenance", out_of_service: "out of service", row_remap: "needs a reset", managed: "managed" };
const FIGURES = ["util_pct", "mem_used_bytes", "temp_c", "power_w"];

export class GpuTiles {
  /** `pointed(uuid)`: at whose tile somebody points or stands with the keyboard; null: at none. */
  constructor(place, book, pointed) {
    Object.assign(this, { place, book, pointed, labels: new Map(), idle: new Map() });
    this.lines = new Lines(place, ({ uuid }) => uuid, (gpu) => this.tile(gpu), false);
  }

  draw(gpus, labels) {
    this.labels = labels;
    show(this.place, gpus.length > 1);
    if (gpus.length > 1) this.lines.draw(gpus);
  }

  tile({ uuid }) {
    const [swatch, name, note] = [make("span", { class: "swatch" }), make("strong", {}), make("span", { class: "tile-note" })];
    const figures = FIGURES.map((key) => this.figure(this.book.metrics.get(key)));
    const root = make("a", { class: "lines-gpu", href: `/gpu/${encodeURIComponent(uuid)}` }, make("span", { class: "tile-head" }, swatch, name, note), make("span", { class: "tile-figures" }, figures));
    for (const kind of ["pointerenter", "focus"]) root.addEventListener(kind, () => this.pointed(uuid));
    for (const kind of ["pointerleave", "blur"]) root.addEventListener(kind, () => this.pointed(null));
    const draw = (gpu, at) => {
      const idleS = this.idle.get(uuid);
      const { stroke, dash } = strokeAmong(theme(), at, idleS !== undefined, COLOURS);
      swatch.style.borderTop = `3px ${dash.length === 0 ? "solid" : "dashed"} ${stroke}`;
      say(name, this.labels.get(uuid).label);
      FIGURES.forEach((key, place) => {
        const words = valueWords(gpu, this.book.metrics.get(key), this.book);
        say(figures[place], words.isMissing ? "–" : oneWord(words));
      });
      root.classList.toggle("wasted", idleS !== undefined);
      note.title = idleS === undefined ? gpu.why_not_free?.why ?? "" : `Under 5 % busy for ${age(idleS)}`;
      say(note, gpu.isThen ? "" : idleS !== undefined ? "idle" : gpu.state !== "ok" ? stateWords(gpu.state) : gpu.is_free ? "free" : gpu.tasks.length > 0 ? plural(gpu.tasks.length, "task") : NOT_FREE[gpu.why_not_free?.reason] ?? "not free");
      note.className = `tile-note ${gpu.state}`;
    };
    return { draw, root };
  }

  figure({ label, meaning }) {
    const place = make("b", {});
    explain(place, `${label}: ${meaning}`);
    return place;
  }
}
