// What anywidget calls. One view per cell that shows the widget; the model is shared by all of them.

import { make, say } from "./dom.mjs";
import { age } from "./format.mjs";
import { isDark } from "./theme.mjs";
import { Acts } from "./acts.mjs";
import { Machine } from "./machine.mjs";
import { Fleet } from "./fleet.mjs";

const LATE_S = 5;
const SILENT_S = 10;
const GONE = "The kernel of this output has ended. Run the cell again.";
const SILENT = "No data from the kernel. If it was restarted, run the cell again.";
const UNSEEN = "Still no reading: the kernel is busy, or starts its reader. If the kernel has ended, run the cell again.";
const FED_S = 2.5; // while the kernel is at work pictures come at least so often, times `everyS`

class View {
  constructor(model, element) {
    this.model = model;
    this.clock = 0;
    this.root = make("div", { class: "gpudeck", role: "region", "aria-label": "gpudeck" });
    this.title = make("b", { class: "g-title" });
    this.sub = make("span", { class: "g-sub" });
    this.fresh = make("span", { class: "g-fresh", role: "status" });
    this.note = make("p", { class: "g-note" });
    this.body = make("div", { class: "g-body" });
    this.root.append(make("header", {}, this.title, this.sub, this.fresh), this.note, this.body);
    element.append(this.root);
    this.acts = new Acts(model, () => this.unseenS() < FED_S * this.everyS);
  }

  update() {
    this.seenAt = performance.now();
    this.draw();
  }

  /** Jupyter says that the line to the kernel was cut: by a restart, or for a moment. */
  cut() {
    this.cutAt = performance.now();
  }

  unseenS() {
    return (performance.now() - this.seenAt) / 1000;
  }

  get everyS() {
    return this.part?.everyS ?? 1;
  }

  draw() {
    const picture = this.model.get("picture");
    this.root.dataset.theme = isDark(this.root) ? "dark" : "light";
    if (picture.kind === undefined) return say(this.title, "gpudeck: the first read takes a moment …");
    this.root.dataset.at = picture.at;
    this.shownBy(picture.kind).show(picture, this.root.dataset.theme, this.model);
    this.tick();
    return undefined;
  }

  shownBy(kind) {
    if (this.part?.kind !== kind) {
      this.part = kind === "fleet" ? new Fleet(this) : new Machine(this);
      this.body.replaceChildren(this.part.root, this.acts.root);
    }
    return this.part;
  }

  head(title, sub, note) {
    say(this.title, title);
    say(this.sub, sub);
    say(this.note, note);
    this.note.hidden = note === "";
  }

  // The age of what is shown, by this browser's own clock: the kernel's may be another machine's.
  tick() {
    if (this.seenAt === undefined) return;
    const seconds = this.unseenS();
    const isCut = this.cutAt !== undefined && this.seenAt - this.cutAt < 1000 * SILENT_S;
    if (isCut && seconds > FED_S * this.everyS) return this.end(GONE);
    if (seconds > Math.max(SILENT_S, 6 * this.everyS)) return this.end(this.part === undefined ? UNSEEN : SILENT);
    const isLate = seconds > Math.max(LATE_S, 3 * this.everyS);
    const isBlind = !["ok", "starting", undefined].includes(this.model.get("picture").reader);
    say(this.fresh, isBlind ? "not live" : isLate ? `last seen ${age(seconds)} ago` : "live");
    this.root.classList.toggle("g-late", isLate || isBlind);
    return undefined;
  }

  /** Nobody is there who could act. */
  end(why) {
    this.head(this.title.textContent, this.sub.textContent, why);
    say(this.fresh, "not live");
    this.root.classList.add("g-late");
    this.acts.root.hidden = true;
  }
}

function render({ model, el }) {
  const view = new View(model, el);
  const update = () => view.update();
  const draw = () => view.draw();
  const cut = () => view.cut();
  const hear = (message) => view.acts.hear(message);
  model.on("change:picture", update);
  model.on("msg:custom", hear);
  model.on("comm_live_update", cut);
  const clock = setInterval(() => view.tick(), 1000);
  const themes = new MutationObserver(draw);
  for (const place of [document.body, document.documentElement]) {
    themes.observe(place, { attributes: true, attributeFilter: ["class", "data-jp-theme-light", "data-jp-theme-name", "data-vscode-theme-kind", "theme", "data-theme"] });
  }
  const sizes = new ResizeObserver(() => view.part?.resize?.());
  sizes.observe(view.root);
  update();
  return () => {
    model.off("change:picture", update);
    model.off("msg:custom", hear);
    model.off("comm_live_update", cut);
    clearInterval(clock);
    themes.disconnect();
    sizes.disconnect();
  };
}

export default { render };
