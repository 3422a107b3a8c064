// One machine: a card for each GPU, what holds its memory, and the last minute as a line.

import { drawState, palette, trace } from "./gauges.mjs";
import { Lines, make, redraw, say } from "./dom.mjs";
import { amount, bytesWords, plural } from "./format.mjs";

const WHY = { unsupported: "not supported", denied: "not permitted", stale: "stale", lost: "lost", unknown: "unknown" };
const STATE = { stale: "stale: the driver does not answer", lost: "lost: it has left the bus", error: "error: every driver query about it fails" };
const READER = {
  starting: "The first read of the driver takes a moment.",
  no_library: "No GPU here: this machine has no NVIDIA library.", no_driver: "No GPU here: no NVIDIA driver is loaded.",
  no_gpus: "No GPU here.", hung: "The driver is not responding: values are old.",
  failed: "No data at the moment.", released: "The driver was released on request.",
};
const NONE = new Set(["no_library", "no_driver", "no_gpus"]);

export const bytes = (value) => bytesWords(value, "unknown");

const holes = (line) => line.map((share) => (share === null ? NaN : share));

export class Machine {
  constructor(view) {
    this.view = view;
    this.kind = "here";
    this.everyS = 1;
    this.grid = make("div", { class: "g-cards" });
    this.cards = new Lines(this.grid, ({ uuid }) => uuid, (gpu) => new Card(gpu, this), false);
    this.ramBar = make("i", {});
    this.ramText = make("span", {});
    this.ram = make("div", { class: "g-ram", title: "Memory of this machine. A container's limit is not known here." },
      make("span", {}, "RAM"), make("div", { class: "g-bar" }, this.ramBar), this.ramText);
    this.root = make("div", {}, this.grid, this.ram);
  }

  show(picture, theme) {
    const { gpus, reader, detail, simulated, holds, unseen } = picture;
    const name = simulated ? "Simulated GPUs" : picture.host || "This machine";
    const driver = picture.driver && !simulated ? `driver ${picture.driver}` : "";
    this.view.head(name, [gpus.length > 0 ? plural(gpus.length, "GPU") : "", driver].filter(Boolean).join(" · "), notes(reader, detail, holds, gpus.length, unseen));
    Object.assign(this, { gpus, theme });
    this.cards.draw(gpus);
    this.showRam(picture.ram);
    this.view.acts.show(picture.tasks, gpus.length > 0 && unseen === "" ? "None of your tasks is on a GPU." : "");
  }

  resize() {
    if (this.gpus) this.cards.draw(this.gpus);
  }

  showRam({ total, available }) {
    this.ram.hidden = total === null;
    if (total === null) return;
    this.ramBar.style.width = `${(100 * (total - available)) / total}%`;
    say(this.ramText, `${bytes(total - available)} of ${bytes(total)}`);
  }
}

function notes(reader, detail, holds, count, unseen) {
  const said = [];
  if (reader !== "ok") said.push(READER[reader] ?? reader);
  if (detail) said.push(detail);
  if (NONE.has(reader) && count === 0) said.push('To see how it looks with GPUs: watch(simulate="h100x2")');
  if (unseen && count > 0) said.push(unseen);
  if (holds.length > 0) said.push(`Actions on this node are stopped: ${holds.join("; ")}`);
  return said.join(" ");
}

class Card {
  constructor(gpu, machine) {
    this.machine = machine;
    this.name = make("b", {});
    this.kind = make("span", { class: "g-sub" });
    this.util = make("b", { class: "g-figure" });
    this.memory = make("span", {});
    this.canvas = make("canvas", { class: "g-past", role: "img" });
    this.bar = make("div", { class: "g-bar" });
    this.owners = make("ul", { class: "g-owners" });
    this.more = make("span", { class: "g-sub" });
    this.root = make("section", { class: "g-card", "data-uuid": gpu.uuid, title: gpu.uuid },
      make("header", {}, this.name, this.kind),
      make("div", { class: "g-row" }, make("span", { title: "Share of the last second in which any kernel ran, not the share of the chip." }, this.util, " utilization"), this.more),
      this.canvas, make("div", { class: "g-row" }, this.memory), this.bar, this.owners);
  }

  draw(gpu) {
    say(this.name, `GPU ${gpu.place}`);
    say(this.kind, gpu.state === "ok" ? gpu.name : STATE[gpu.state] ?? gpu.state);
    this.root.dataset.state = gpu.state;
    say(this.util, figure(gpu, "util_pct", " %"));
    say(this.more, `${figure(gpu, "temp_c", " °C")} · ${figure(gpu, "power_w", " W")}`);
    const { mem_used_bytes: used } = gpu.values;
    say(this.memory, used === undefined ? `memory ${WHY[gpu.missing.mem_used_bytes]}` : `${bytes(used)} of ${bytes(gpu.total)} in use`);
    this.showHeld(gpu);
    this.drawPast(gpu, this.machine.theme);
  }

  showHeld({ held, total }) {
    // Nothing moves under a pointer for nothing.
    const key = held.map(({ rank, who, bytes: size }) => [rank, who, Math.round(size / 2 ** 24)]);
    redraw(this.bar, key, () => (total ? held.map(({ rank, who, bytes: size }, at) => {
      const part = make("i", { class: `g-own${rank}`, title: `${who}: ${bytes(size)}` });
      part.style.width = `${Math.min(100, (100 * size) / total)}%`;
      if (rank === 2 && at % 2) part.classList.add("g-odd");
      return part;
    }) : []));
    redraw(this.owners, key, () => held.map(({ rank, who, bytes: size }) =>
      make("li", {}, make("i", { class: `g-own${rank}` }), make("span", { class: "g-who" }, who), make("b", {}, bytes(size)))));
  }

  /** Utilization strong, memory weak, over the last minute; where nothing was seen there is a hole. */
  drawPast({ past: [util, memory], place, state }, theme) {
    const { canvas } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (width === 0) return;
    if (canvas.width !== Math.round(width * ratio)) [canvas.width, canvas.height] = [width, height].map((side) => Math.round(side * ratio));
    const context = canvas.getContext("2d");
    const { marks } = palette(theme);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    if (state !== "ok") return drawState(context, state, 0, 0, width, height, marks);
    const { color: ink, caretColor: soft } = getComputedStyle(canvas);
    trace(context, holes(memory), 0, 3, width, height - 6, soft);
    trace(context, holes(util), 0, 3, width, height - 6, ink);
    trace(context, holes(util), 0, 3, width, height - 6, ink); // its own strength, twice
    const known = util.filter((share) => share !== null);
    canvas.setAttribute("aria-label", `GPU ${place}, utilization of the last minute: ${known.length === 0 ? "not known" : `from ${amount(100 * Math.min(...known))} to ${amount(100 * Math.max(...known))} %`}`);
    return undefined;
  }
}

function figure({ values, missing }, key, unit) {
  return values[key] === undefined ? WHY[missing[key]] ?? missing[key] : `${amount(values[key])}${unit}`;
}
