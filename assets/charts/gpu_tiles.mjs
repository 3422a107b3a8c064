// The Gpus of a node or of a comparison in a row: which line is whose, how it stands, the way to it.

import { strokeOf } from "./chart.mjs";
import { make, say, show, theme } from "../parts/dom.mjs";
import { valueWords, stateWords } from "../fleet/gpu_words.mjs";
import { explain } from "../parts/tips.mjs";

const FIGURES = ["util_pct", "mem_used_bytes", "temp_c", "power_w"];

export class GpuTiles {
  constructor(place, book) {
    Object.assign(this, { place, book, tiles: new Map() });
  }

  draw(gpus, labels) {
    show(this.place, gpus.length > 1);
    if (gpus.length < 2) return;
    for (const [uuid, tile] of this.tiles) if (!gpus.some((gpu) => gpu.uuid === uuid)) { tile.root.remove(); this.tiles.delete(uuid); }
    gpus.forEach((gpu, at) => this.drawOne(gpu, at, labels.get(gpu.uuid).label));
  }

  drawOne(gpu, at, label) {
    if (!this.tiles.has(gpu.uuid)) this.add(gpu);
    const { name, swatch, figures, note } = this.tiles.get(gpu.uuid);
    const { stroke, dash } = strokeOf(theme(), at);
    swatch.style.borderTop = `3px ${dash.length === 0 ? "solid" : "dashed"} ${stroke}`;
    say(name, label);
    FIGURES.forEach((key, place) => {
      const { text, unit, isMissing } = valueWords(gpu, this.book.metrics.get(key), this.book);
      say(figures[place], isMissing ? "–" : `${text} ${unit}`);
    });
    const owners = gpu.tasks.length === 0 ? "free" : gpu.tasks.length === 1 ? "1 task" : `${gpu.tasks.length} tasks`;
    say(note, gpu.state === "ok" ? owners : stateWords(gpu.state));
    note.className = `tile-note ${gpu.state}`;
  }

  figure({ label, meaning }) {
    const place = make("b", {});
    explain(place, `${label}: ${meaning}`);
    return place;
  }

  add(gpu) {
    const tile = { swatch: make("span", { class: "swatch" }), name: make("strong", {}), note: make("span", { class: "tile-note" }), figures: FIGURES.map((key) => this.figure(this.book.metrics.get(key))) };
    tile.root = make("a", { class: "lines-gpu", href: `/gpu/${encodeURIComponent(gpu.uuid)}` }, make("span", { class: "tile-head" }, tile.swatch, tile.name, tile.note), make("span", { class: "tile-figures" }, ...tile.figures));
    this.tiles.set(gpu.uuid, tile);
    this.place.append(tile.root);
  }
}
