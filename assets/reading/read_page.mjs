// A page that is read: the hub writes what stands on it (dashboard/pages/reading.py), this asks for it, puts it in
// place, and turns what somebody chooses into an address. It knows no page.

import { begin, pressed } from "../actions/actions.mjs";
import { form } from "../actions/limit_forms.mjs";
import { DashAnswers } from "../parts/dash_answers.mjs";
import { afterPause, byId, copyText, isShortcut, make, onTheme, say, sayOrHide, settle, show } from "../parts/dom.mjs";
import { sentence } from "../parts/dialog.mjs";
import { send } from "../parts/api.mjs";
import { Looker } from "../parts/looker.mjs";
import { Dialogs } from "./dialogs.mjs";
import { carryOut, fieldOf, filled, valuesOf } from "./orders.mjs";
import { put } from "./patch.mjs";
import { nameTab } from "../parts/tab.mjs";
import { TYPED, fieldsOf, showView, textOf, useShortcut } from "./view_controls.mjs";

const TYPED_MS = 400;
const SOON_MS = 250;
const LEAST_MS = 1_000; // between two answers upon events
const FILE_MOST = 2 ** 20; // bytes
const ANSWER = "page-answer";
const GRAPH = "../figures/graph.mjs"; // only a page with a figure has it (dashboard/pages/router.py)

export default class ReadPage extends Looker {
  constructor(root, live, _holds, store) {
    const { everyS, what, usual, unaddressed, events = [], anchors = {} } = JSON.parse(byId(ANSWER).dataset.reading);
    super(live, everyS * 1000, { problem: byId(`${root.id}-problem`), what });
    Object.assign(this, { root, usual, unaddressed, anchors, figures: new Map(), answers: new DashAnswers(ANSWER), coming: null });
    this.view = this.readView();
    this.dialogs = new Dialogs(this);
    this.listen(store);
    for (const event of events) live.addEventListener(event, () => this.lookSoon());
    this.look();
  }

  listen(store) {
    const { root } = this;
    root.addEventListener("click", (event) => this.onClick(event));
    root.addEventListener("change", ({ target }) => { if (target.matches("[data-view]")) this.chooseIn(target, !target.matches(TYPED)); });
    root.addEventListener("input", afterPause(TYPED_MS, ({ target }) => { if (target.matches(`${TYPED}:not([data-as])`)) this.chooseIn(target, false); }));
    document.addEventListener("keydown", (event) => { if (isShortcut(event) && useShortcut(root, event.key)) event.preventDefault(); });
    pressed(root, ({ target }) => this.act(target.closest("[data-act][data-target]")));
    addEventListener("popstate", () => { this.view = this.readView(); this.look(); });
    store.addEventListener("change", ({ detail }) => { if (detail?.state === "done") this.look(); });
    onTheme(() => { for (const figure of this.figures.values()) figure.request = null; this.drawFigures(); });
  }

  /** Of the page, also where only a part of it is read. */
  get key() { return this.root.id; }

  /** Upon something that happened: of what happens at once, the last is in the answer too; and at most once in a while, since each costs the hub. */
  lookSoon() {
    const rest = (this.lookedAt ?? -Infinity) + LEAST_MS - performance.now();
    this.coming ??= setTimeout(() => { this.coming = null; this.lookedAt = performance.now(); this.look(); }, Math.max(SOON_MS, rest));
  }

  /** The view as the address has it; what does not stand there stays. */
  readView() {
    const query = new URLSearchParams(location.search);
    const fields = Object.fromEntries(Object.entries(this.usual).map(([name, value]) => [name,
      this.unaddressed.includes(name) ? this.view?.[name] ?? value : !query.has(name) ? value : Array.isArray(value) ? query.getAll(name) : query.get(name)]));
    // What else stands after the #, such as the way past the bar, chooses nothing.
    const [anchor] = location.hash.slice(1).split("/");
    for (const [name, values] of Object.entries(this.anchors)) if (values.includes(anchor) || location.hash === "") fields[name] = anchor || this.usual[name];
    return fields;
  }

  /** Fields of the view are others now. `isStep`: the way back leads to what they were. */
  choose(fields, isStep = true) {
    if (Object.entries(fields).every(([name, value]) => textOf(value) === textOf(this.view[name]))) return;
    Object.assign(this.view, fields);
    this.writeAddress(isStep);
    showView(this.root, this.view);
    this.look();
  }

  writeAddress(isStep) {
    const isUnusual = (name) => textOf(this.view[name]) !== textOf(this.usual[name]);
    const names = Object.keys(this.usual).filter((name) => !this.unaddressed.includes(name) && isUnusual(name));
    const query = new URLSearchParams(names.flatMap((name) => [this.view[name]].flat().map((value) => [name, textOf(value)]))).toString();
    const address = `${location.pathname}${query === "" ? "" : `?${query}`}${this.hash}`;
    if (address === location.pathname + location.search + location.hash) return;
    history[isStep ? "pushState" : "replaceState"](isStep ? null : history.state, "", address);
  }

  get hash() {
    const [name] = Object.keys(this.anchors);
    if (name === undefined || location.hash.slice(1).split("/")[0] === this.view[name]) return location.hash;
    return this.view[name] === this.usual[name] ? "" : `#${this.view[name]}`;
  }

  ask() {
    this.root.setAttribute("aria-busy", "true");
    const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
    return this.answers.ask({ page: this.key, view: { ...this.view, zone: timeZone ?? "UTC" } });
  }

  take({ parts, view }) {
    Object.assign(this.view, view);
    this.writeAddress(false);
    this.putParts(parts);
    if (!this.hasArrived) this.root.querySelector(`[data-anchor="${CSS.escape(location.hash.slice(1))}"]`)?.scrollIntoView({ block: "start" });
    this.hasArrived = true;
    this.hasOwnProblem = (parts[this.problem?.id] ?? null) !== null;
    this.stand();
  }

  putParts(parts) {
    const { "@tab": tab, "@every": every, "@order": order, ...places } = parts;
    if (tab) nameTab(tab[0]);
    if (every) this.everyMs = Number(every[0]) * 1000;
    for (const [id, nodes] of Object.entries(places)) {
      const place = byId(id);
      if (place !== null) put(place, nodes);
    }
    showView(this.root, this.view);
    this.dialogs.draw(order === undefined ? null : JSON.parse(order[0]));
    this.drawFigures();
  }

  fail(error) {
    this.hasOwnProblem = false;
    super.fail(error);
    this.stand();
  }

  /** A page may say itself what is wrong. */
  complain(words) {
    if (words !== "" || !this.hasOwnProblem) super.complain(words);
  }

  stand() {
    this.root.removeAttribute("aria-busy");
    settle(this.root);
  }

  chooseIn(control, isStep) {
    const fields = fieldsOf(control);
    if (fields !== null) this.choose(fields, isStep);
  }

  onClick({ target }) {
    const button = target.closest("[data-set]:not(option), [data-form]:not(form), [data-copy], [data-file], [data-print], button[data-view]");
    if (button === null || !this.root.contains(button)) return;
    const { set, step, form: order, copy, file, accept, view, value } = button.dataset;
    if (set !== undefined) this.choose(JSON.parse(set), step !== "false");
    else if (order !== undefined) this.carryOut(JSON.parse(order));
    else if (copy !== undefined) copyFrom(button, copy);
    else if (file !== undefined) this.openFile(file, accept);
    else if (view !== undefined) this.choose({ [view]: value });
    else print();
  }

  /** The text of a file becomes a field of the view. */
  openFile(field, accept) {
    const input = make("input", { type: "file", accept });
    input.addEventListener("change", async () => {
      const [file] = input.files;
      if (file.size > FILE_MOST) this.complain(`${file.name} is larger than 1 MiB.`);
      else this.choose({ [field]: await file.text() }, false);
    });
    input.click();
  }

  async carryOut(order) {
    if ((await carryOut(order, () => this.look())) === null) return;
    if (order.then !== undefined) location.assign(order.then);
    else await this.look();
  }

  /** A command with its preview, of the button that was pressed. */
  act(button) {
    if (button === null) return null;
    const { act, target, setting, title, fields = "[]", confirm: way } = button.dataset;
    const asked = JSON.parse(fields);
    return ({ clientX: x, clientY: y, detail }) => begin(act, target.split(" "), detail === 0 ? null : { x, y },
      setting === undefined ? null : form(title, asked.flatMap(fieldOf), (root) => settingOf(JSON.parse(setting), asked, root)), ...(way === undefined ? [] : confirmed(JSON.parse(way))));
  }

  /** Figures whose request is another are asked for; the element that asks names the place for what is wrong. */
  drawFigures() {
    for (const element of this.root.querySelectorAll("[data-figure]")) this.drawFigure(element.dataset, element);
  }

  async drawFigure({ figure: id, request, height, at, problem, hides }, element) {
    if (!this.figures.has(id)) this.figures.set(id, { graph: null, request: null });
    const figure = this.figures.get(id);
    if (figure.request === request) return;
    figure.request = request;
    const place = problem === undefined ? element : byId(problem);
    const { Graph } = await import(GRAPH);
    figure.graph ??= new Graph(id);
    if (figure.request !== request) return;
    try {
      const facts = await figure.graph.ask(JSON.parse(request), { height: Number(height) || figure.graph.place.parentElement.clientHeight, at: Number(at) || Date.now() / 1000 });
      if (figure.request !== request) return;
      sayOrHide(place, "");
      if (facts.parts !== undefined) this.putParts(facts.parts);
    } catch (error) {
      if (figure.request !== request) return;
      figure.request = null;
      if (hides !== undefined) show(byId(hides), false);
      sayOrHide(place, sentence(error.message));
    }
  }
}

/** What somebody else asked for: how it is ordered once it was looked at, and the words on who asked. */
const confirmed = ({ path, lead }) => [async ({ preview, reason }) => ({ items: [await send("POST", path, { preview, reason })] }), lead];

/** null: something is missing. */
function settingOf(setting, fields, root) {
  const values = valuesOf(fields, new FormData(root));
  const isMissing = fields.some(({ name, traits }) => traits?.required !== undefined && values[name] === null);
  return isMissing || !root.checkValidity() ? null : filled(setting, values);
}

async function copyFrom(button, text) {
  const isCopied = await copyText(text);
  say(button, isCopied ? "Copied" : "Press Ctrl+C");
  if (!isCopied && button.previousElementSibling !== null) getSelection().selectAllChildren(button.previousElementSibling);
}
