// The module that anywidget calls. One view per cell that shows the widget; the model is shared by all of them.

/**
 * A widget's model in the browser, whose content a kernel sets.
 * @template {object} [P={ kind?: undefined } | Hub.MachinePicture | Hub.FleetPicture]
 * @typedef {{
 *   get(name: "picture"): P,
 *   get(name: "cells"): DataView | undefined,
 *   on(event: string, does: (message: any) => void): void,
 *   off(event: string, does: (message: any) => void): void,
 *   send(message: object): void,
 * }} WidgetModel
 */

import { make, say, sayOrHide } from "../assets/parts/dom.mjs";
import { age } from "../assets/parts/format.mjs";
import { isDark } from "./theme.mjs";
import { Acts } from "./acts.mjs";
import { Machine } from "./machine.mjs";
import { Fleet } from "./fleet.mjs";

const LATE_S = 5;
const SILENT_S = 10;
const GONE = "The kernel of this output has ended. Run the cell again.";
const SILENT = "No data from the kernel. If it was restarted, run the cell again.";
const UNSEEN =
  "Still no reading: the kernel is busy, or starts its reader. If the kernel has ended, run the cell again.";
const FED_S = 2.5; // while the kernel is at work pictures come at least so often, times `everyS`

export class View {
  /** @type {Machine | Fleet | null} */
  part = null;
  /** The moment of the last picture, by this browser's clock. @type {number | null} */
  pictureAt = null;
  /** The moment at which the connection to the kernel was cut. @type {number | null} */
  cutAt = null;

  /**
   * @param {WidgetModel} model
   * @param {HTMLElement} element
   */
  constructor(model, element) {
    this.model = model;
    this.root = make("div", { "class": "gpudeck", "role": "region", "aria-label": "gpudeck" });
    this.title = make("b", { class: "g-title" });
    this.sub = make("span", { class: "g-sub" });
    this.fresh = make("span", { class: "g-fresh", role: "status" });
    this.note = make("p", { class: "g-note" });
    this.body = make("div", { class: "g-body" });
    this.root.append(make("header", {}, this.title, this.sub, this.fresh), this.note, this.body);
    element.append(this.root);
    this.acts = new Acts(model, () => this.ageS() < FED_S * this.everyS);
  }

  update() {
    this.pictureAt = performance.now();
    this.draw();
  }

  /** Jupyter says that the line to the kernel was cut: by a restart, or for a moment. */
  cut() {
    this.cutAt = performance.now();
  }

  /** The age of the last picture, in seconds. */
  ageS() {
    return (performance.now() - (this.pictureAt ?? -Infinity)) / 1000;
  }

  get everyS() {
    return this.part?.everyS ?? 1;
  }

  draw() {
    const picture = this.model.get("picture");
    const theme = isDark(this.root) ? "dark" : "light";
    this.root.dataset.theme = theme;
    if (picture.kind === undefined) {
      say(this.title, "gpudeck: the first read takes a moment …");
      return;
    }
    this.root.dataset.at = String(picture.at);
    if (picture.kind === "fleet") this.partOf(Fleet).show(picture, theme, this.model);
    else this.partOf(Machine).show(picture, theme);
    this.tick();
  }

  /** @type {<P extends Machine | Fleet>(Part: new (view: View) => P) => P} */
  partOf(Part) {
    if (this.part instanceof Part) return this.part;
    const part = new Part(this);
    this.part = part;
    this.body.replaceChildren(part.root, this.acts.root);
    return part;
  }

  /** @type {(title: string, sub: string, note: string) => void} */
  head(title, sub, note) {
    say(this.title, title);
    say(this.sub, sub);
    sayOrHide(this.note, note);
  }

  // The age of what is shown, by this browser's own clock: the kernel's may be another machine's.
  tick() {
    if (this.pictureAt === null) return;
    const seconds = this.ageS();
    const isCut = this.cutAt !== null && this.pictureAt - this.cutAt < 1000 * SILENT_S;
    if (isCut && seconds > FED_S * this.everyS) {
      this.end(GONE);
      return;
    }
    if (seconds > Math.max(SILENT_S, 6 * this.everyS)) {
      this.end(this.part === null ? UNSEEN : SILENT);
      return;
    }
    const isLate = seconds > Math.max(LATE_S, 3 * this.everyS);
    const picture = this.model.get("picture");
    const isBlind = picture.kind !== undefined && !["ok", "starting"].includes(picture.reader);
    say(this.fresh, isBlind ? "not live" : isLate ? `last seen ${age(seconds)} ago` : "live");
    this.root.classList.toggle("g-late", isLate || isBlind);
  }

  /**
   * Shows that no kernel is there which could act.
   * @type {(why: string) => void}
   */
  end(why) {
    this.head(this.title.textContent, this.sub.textContent, why);
    say(this.fresh, "not live");
    this.root.classList.add("g-late");
    this.acts.root.hidden = true;
  }
}

/** @type {(view: { model: WidgetModel, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const view = new View(model, el);
  const update = () => view.update();
  const draw = () => view.draw();
  const cut = () => view.cut();
  /** @type {(message: KernelMessage) => void} */
  const receive = (message) => view.acts.receive(message);
  model.on("change:picture", update);
  model.on("msg:custom", receive);
  model.on("comm_live_update", cut);
  const clock = setInterval(() => view.tick(), 1000);
  const themes = new MutationObserver(draw);
  for (const place of [document.body, document.documentElement]) {
    themes.observe(place, {
      attributes: true,
      attributeFilter: [
        "class",
        "data-jp-theme-light",
        "data-jp-theme-name",
        "data-vscode-theme-kind",
        "theme",
        "data-theme",
      ],
    });
  }
  const sizes = new ResizeObserver(() => view.part?.resize());
  sizes.observe(view.root);
  update();
  return () => {
    model.off("change:picture", update);
    model.off("msg:custom", receive);
    model.off("comm_live_update", cut);
    clearInterval(clock);
    themes.disconnect();
    sizes.disconnect();
  };
}

export default { render };
