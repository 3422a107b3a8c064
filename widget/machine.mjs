// A machine: a card for each GPU, the holders of its memory, and the last minute as a line.

/** @import { View } from "./widget.mjs" */

import { drawState, palette, trace } from "../assets/parts/gauges.mjs";
import { Lines, contextOf, make, redraw, say } from "../assets/parts/dom.mjs";
import { amount, bytesWords, plural } from "../assets/parts/format.mjs";

/** @type {Record<string, string>} */
const WHY = {
  unsupported: "not supported",
  denied: "not permitted",
  stale: "stale",
  lost: "lost",
  unknown: "unknown",
};
/** @type {Record<string, string>} */
const STATE = {
  stale: "stale: the driver does not answer",
  lost: "lost: it has left the bus",
  error: "error: every driver query about it fails",
};
/** @type {Record<string, string>} */
const READER = {
  starting: "The first read of the driver takes a moment.",
  no_library: "No GPU here: this machine has no driver library.",
  no_driver: "No GPU here: no driver is loaded.",
  no_gpus: "No GPU here.",
  hung: "The driver is not responding: values are old.",
  failed: "No data at the moment.",
  released: "The driver was released on request.",
};
const NONE = new Set(["no_library", "no_driver", "no_gpus"]);

/** @type {(value: number | null) => string} */
const bytes = (value) => bytesWords(value, "unknown");

/** @type {(line: (number | null)[]) => number[]} */
const holes = (line) => line.map((share) => (share === null ? NaN : share));

export class Machine {
  everyS = 1;
  /** @type {Hub.GpuPicture[]} */
  gpus = [];
  /** @type {Theme} */
  theme = "light";

  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this.grid = make("div", { class: "g-cards" });
    /** @type {Lines<Hub.GpuPicture>} */
    this.cards = new Lines(
      this.grid,
      ({ uuid }) => uuid,
      (gpu) => new Card(gpu, this),
      false,
    );
    this.ramBar = make("i", {});
    this.ramText = make("span", {});
    this.ram = make(
      "div",
      { class: "g-ram", title: "Memory of this machine. A container's limit is not known here." },
      make("span", {}, "RAM"),
      make("div", { class: "g-bar" }, this.ramBar),
      this.ramText,
    );
    this.root = make("div", {}, this.grid, this.ram);
  }

  /** @type {(picture: Hub.MachinePicture, theme: Theme) => void} */
  show(picture, theme) {
    const { gpus, simulated, unseen } = picture;
    const name = simulated ? "Simulated GPUs" : picture.host || "This machine";
    const driver = picture.driver && !simulated ? `driver ${picture.driver}` : "";
    this.view.head(
      name,
      [gpus.length > 0 ? plural(gpus.length, "GPU") : "", driver].filter(Boolean).join(" · "),
      notes(picture),
    );
    this.gpus = gpus;
    this.theme = theme;
    this.cards.draw(gpus);
    this.showRam(picture.ram);
    this.view.acts.show(
      picture.tasks,
      gpus.length > 0 && unseen === "" ? "None of your tasks is on a GPU." : "",
    );
  }

  resize() {
    this.cards.draw(this.gpus);
  }

  /** @type {(ram: Hub.RamPicture) => void} */
  showRam({ total, available }) {
    this.ram.hidden = total === null || available === null;
    if (total === null || available === null) return;
    this.ramBar.style.width = `${(100 * (total - available)) / total}%`;
    say(this.ramText, `${bytes(total - available)} of ${bytes(total)}`);
  }
}

/** @type {(picture: Hub.MachinePicture) => string} */
function notes({ reader, detail, holds, gpus, unseen }) {
  const sentences = [];
  if (reader !== "ok") sentences.push(READER[reader] ?? reader);
  if (detail) sentences.push(detail);
  if (NONE.has(reader) && gpus.length === 0)
    sentences.push('To see how it looks with GPUs: watch(simulate="h100x2")');
  if (unseen && gpus.length > 0) sentences.push(unseen);
  if (holds.length > 0) sentences.push(`Actions on this node are stopped: ${holds.join("; ")}`);
  return sentences.join(" ");
}

class Card {
  /**
   * @param {Hub.GpuPicture} gpu
   * @param {Machine} machine
   */
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
    this.root = make(
      "section",
      { "class": "g-card", "data-uuid": gpu.uuid, "title": gpu.uuid },
      make("header", {}, this.name, this.kind),
      make(
        "div",
        { class: "g-row" },
        make(
          "span",
          { title: "Share of the last second in which any kernel ran, not the share of the chip." },
          this.util,
          " utilization",
        ),
        this.more,
      ),
      this.canvas,
      make("div", { class: "g-row" }, this.memory),
      this.bar,
      this.owners,
    );
  }

  /** @type {(gpu: Hub.GpuPicture) => void} */
  draw(gpu) {
    say(this.name, `GPU ${gpu.place}`);
    say(this.kind, gpu.state === "ok" ? gpu.name : (STATE[gpu.state] ?? gpu.state));
    this.root.dataset.state = gpu.state;
    say(this.util, figure(gpu, "util_pct", " %"));
    say(this.more, `${figure(gpu, "temp_c", " °C")} · ${figure(gpu, "power_w", " W")}`);
    const { mem_used_bytes: used } = gpu.values;
    say(
      this.memory,
      used === undefined
        ? `memory ${WHY[gpu.missing.mem_used_bytes]}`
        : `${bytes(used)} of ${bytes(gpu.total)} in use`,
    );
    this.showHeld(gpu);
    this.drawPast(gpu, this.machine.theme);
  }

  /** @type {(gpu: Hub.GpuPicture) => void} */
  showHeld({ held, total }) {
    // Nothing moves under a pointer without a reason.
    const key = held.map(({ rank, who, bytes: size }) => [rank, who, Math.round(size / 2 ** 24)]);
    redraw(this.bar, key, () =>
      total
        ? held.map(({ rank, who, bytes: size }, at) => {
            const part = make("i", { class: `g-own${rank}`, title: `${who}: ${bytes(size)}` });
            part.style.width = `${Math.min(100, (100 * size) / total)}%`;
            if (rank === 2 && at % 2) part.classList.add("g-odd");
            return part;
          })
        : [],
    );
    redraw(this.owners, key, () =>
      held.map(({ rank, who, bytes: size }) =>
        make(
          "li",
          {},
          make("i", { class: `g-own${rank}` }),
          make("span", { class: "g-who" }, who),
          make("b", {}, bytes(size)),
        ),
      ),
    );
  }

  /**
   * Utilization strong, memory weak, over the last minute; where nothing was seen there is a hole.
   * @type {(gpu: Hub.GpuPicture, theme: Theme) => void}
   */
  drawPast({ past: [util, memory], place, state }, theme) {
    const { canvas } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (width === 0) return;
    if (canvas.width !== Math.round(width * ratio))
      [canvas.width, canvas.height] = [width, height].map((side) => Math.round(side * ratio));
    const context = contextOf(canvas);
    const { marks } = palette(theme);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    if (state !== "ok") {
      drawState(context, state, 0, 0, width, height, marks);
      return;
    }
    const { color: ink, caretColor: soft } = getComputedStyle(canvas);
    trace(context, holes(memory), 0, 3, width, height - 6, soft);
    trace(context, holes(util), 0, 3, width, height - 6, ink);
    trace(context, holes(util), 0, 3, width, height - 6, ink); // its own strength, twice
    const shares = util.filter((share) => share !== null);
    const range =
      shares.length === 0
        ? "not known"
        : `from ${amount(100 * Math.min(...shares))} to ${amount(100 * Math.max(...shares))} %`;
    canvas.setAttribute("aria-label", `GPU ${place}, utilization of the last minute: ${range}`);
  }
}

/** @type {(gpu: Hub.GpuPicture, key: string, unit: string) => string} */
function figure({ values, missing }, key, unit) {
  return values[key] === undefined
    ? (WHY[missing[key]] ?? missing[key])
    : `${amount(values[key])}${unit}`;
}
