// A page that is read: the hub writes what stands on it (dashboard/pages/reading.py), this asks for it, puts it in
// place, and turns what somebody chooses into an address. It knows no page.

/** @import { CommandStore } from "../actions/commands_store.mjs" */
/** @import { Graph } from "../figures/graph.mjs" */
/** @import { Live } from "../live/live.mjs" */

import { DashAnswers } from "../parts/dash_answers.mjs";
import {
  afterPause,
  allWithin,
  byId,
  copyText,
  isShortcut,
  make,
  messageOf,
  onTheme,
  say,
  sayOrHide,
  settle,
  show,
  targetOf,
  within,
} from "../parts/dom.mjs";
import { sentence } from "../parts/dialog.mjs";
import { Looker } from "../parts/looker.mjs";
import { Dialogs } from "./dialogs.mjs";
import { carryOut, factsOf, tellWritten } from "./orders.mjs";
import { put } from "./patch.mjs";
import { nameTab } from "../parts/tab.mjs";
import { listenForActs } from "./written_acts.mjs";
import { TYPED, fieldsOf, showView, textOf, useShortcut } from "./view_controls.mjs";

const TYPED_MS = 400;
// Of what comes by the socket much may come at once; and an answer that costs the hub a second is not asked for each second.
const TOGETHER_MS = 250; // of what happens at once, the last is in the answer too
const SOON_MS = 1_000;
const PAUSES = 4; // times as long as the last answer took
const FILE_MOST = 2 ** 20; // bytes
const ANSWER = "page-answer";
const GRAPH = "../figures/graph.mjs"; // only a page with a figure has it (dashboard/pages/router.py)

/** @type {(event: Event) => Control} */
const controlOf = (event) => /** @type {any} */ (event.target);

/**
 * The page of a reading.
 * @extends {Looker<ReadAnswer>}
 */
export default class ReadPage extends Looker {
  hasOwnProblem = false;
  hasArrived = false;
  /** @type {ReturnType<typeof setTimeout> | null} */
  soon = null;
  askedAt = -Infinity;
  tookMs = 0;
  /** @type {Map<string, { graph: Graph | null, request: string | null | undefined }>} */
  figures = new Map();

  /**
   * @param {HTMLElement} root
   * @param {Live} live
   * @param {unknown} _holds
   * @param {CommandStore} store
   */
  constructor(root, live, _holds, store) {
    const { everyS, what, usual, unaddressed, path, events, choices, anchor } = JSON.parse(
      byId(ANSWER).dataset.reading ?? "",
    );
    super(live, everyS * 1000, { problem: byId(`${root.id}-problem`), what });
    this.root = root;
    this.usualMs = this.everyMs;
    this.usual = usual;
    this.unaddressed = unaddressed;
    this.path = path;
    /** @type {Record<string, string[]>} */
    this.choices = choices; // values that a field may have
    /** @type {string} */
    this.anchor = anchor;
    this.answers = new DashAnswers(ANSWER);
    this.view = this.readView();
    this.dialogs = new Dialogs(this);
    this.listen(store);
    for (const event of events) live.addEventListener(event, () => this.lookSoon());
    this.look();
  }

  /** @type {(store: CommandStore) => void} */
  listen(store) {
    const { root } = this;
    root.addEventListener("click", (event) => this.onClick(event));
    root.addEventListener("change", (event) => {
      const target = controlOf(event);
      if (target.matches("[data-view]")) this.chooseIn(target, !target.matches(TYPED));
    });
    root.addEventListener(
      "input",
      afterPause(TYPED_MS, (event) => {
        const target = controlOf(event);
        if (target.matches(`${TYPED}:not([data-as])`)) this.chooseIn(target, false);
      }),
    );
    document.addEventListener("keydown", (event) => {
      if (isShortcut(event) && useShortcut(root, event.key)) event.preventDefault();
    });
    listenForActs(root);
    addEventListener("popstate", () => {
      this.view = this.readView();
      this.look();
    });
    store.addEventListener("change", ({ detail }) => {
      if (detail?.state === "done") this.look();
    });
    onTheme(() => {
      for (const figure of this.figures.values()) figure.request = null;
      this.drawFigures();
    });
  }

  /** Key of the page, also where only a part of it is read. */
  get key() {
    return this.root.id;
  }

  /**
   * The view as the address has it; what does not stand there stays.
   * @type {() => Values}
   */
  readView() {
    const query = new URLSearchParams(location.search);
    /** @type {Values} */
    const fields = Object.fromEntries(
      Object.entries(this.usual).map(([name, value]) => [
        name,
        name === this.path
          ? lastOfPath()
          : this.unaddressed.includes(name)
            ? (this.view?.[name] ?? value)
            : !query.has(name)
              ? value
              : Array.isArray(value)
                ? query.getAll(name)
                : query.get(name),
      ]),
    );
    // What else stands after the #, such as the way past the bar, chooses nothing.
    const [hash] = location.hash.slice(1).split("/");
    if (this.anchor !== "" && (this.choices[this.anchor].includes(hash) || location.hash === ""))
      fields[this.anchor] = hash || this.usual[this.anchor];
    for (const [name, values] of Object.entries(this.choices))
      if (!values.includes(fields[name])) fields[name] = this.usual[name];
    return fields;
  }

  /**
   * Fields of the view are others now. `isStep`: the way back leads to what they were.
   * @type {(fields: Values, isStep?: boolean) => void}
   */
  choose(fields, isStep = true) {
    if (Object.entries(fields).every(([name, value]) => textOf(value) === textOf(this.view[name])))
      return;
    Object.assign(this.view, fields);
    this.writeAddress(isStep);
    showView(this.root, this.view);
    this.look();
  }

  /** @type {(isStep: boolean) => void} */
  writeAddress(isStep) {
    /** @type {(name: string) => boolean} */
    const isUnusual = (name) => textOf(this.view[name]) !== textOf(this.usual[name]);
    const names = Object.keys(this.usual).filter(
      (name) => !this.unaddressed.includes(name) && isUnusual(name),
    );
    const query = new URLSearchParams(
      names.flatMap((name) => [this.view[name]].flat().map((value) => [name, textOf(value)])),
    ).toString();
    const address = `${location.pathname}${query === "" ? "" : `?${query}`}${this.hash}`;
    if (address === location.pathname + location.search + location.hash) return;
    history[isStep ? "pushState" : "replaceState"](isStep ? null : history.state, "", address);
  }

  /** Something has happened that the page may show. No answer that is under way is given up for it. */
  lookSoon() {
    this.soon ??= setTimeout(
      () => {
        this.soon = null;
        if (this.root.hasAttribute("aria-busy")) this.lookSoon();
        else this.look();
      },
      Math.max(
        TOGETHER_MS,
        this.askedAt + Math.max(SOON_MS, PAUSES * this.tookMs) - performance.now(),
      ),
    );
  }

  get hash() {
    const name = this.anchor;
    if (name === "" || location.hash.slice(1).split("/")[0] === this.view[name])
      return location.hash;
    return this.view[name] === this.usual[name] ? "" : `#${this.view[name]}`;
  }

  ask() {
    this.askedAt = performance.now();
    this.root.setAttribute("aria-busy", "true");
    const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
    return this.answers.ask({ page: this.key, view: { ...this.view, zone: timeZone ?? "UTC" } });
  }

  /** @type {(answer: ReadAnswer) => void} */
  take({ parts, view }) {
    this.tookMs = performance.now() - this.askedAt;
    Object.assign(this.view, view);
    this.writeAddress(false);
    this.putParts(parts);
    this.dialogs.endAct();
    if (!this.hasArrived)
      this.root
        .querySelector(`[data-anchor="${CSS.escape(location.hash.slice(1))}"]`)
        ?.scrollIntoView({ block: "start" });
    this.hasArrived = true;
    this.hasOwnProblem = (parts[this.problem?.id ?? ""] ?? null) !== null;
    this.stand();
  }

  /** @type {(parts: Record<string, WrittenNodes>) => void} */
  putParts(parts) {
    const { "@tab": tab, "@every": every, "@dialog": dialog, "@order": order, ...places } = parts;
    if (Array.isArray(tab)) nameTab(String(tab[0]));
    if (Array.isArray(every)) this.everyMs = Number(every[0]) * 1000;
    for (const [id, nodes] of Object.entries(places)) {
      const place = byId(id);
      if (place !== null) put(place, nodes);
    }
    showView(this.root, this.view);
    if (Array.isArray(dialog) && document.querySelector("dialog[open]") === null)
      tellWritten(dialog, (order) => this.carryOut(order));
    this.dialogs.draw(Array.isArray(order) ? JSON.parse(String(order[0])) : null);
    this.drawFigures();
  }

  /** @type {(error: Error) => void} */
  fail(error) {
    this.hasOwnProblem = false;
    this.everyMs = this.usualMs; // what is to be asked again at once is that no more if it fails
    super.fail(error);
    this.dialogs.fail(sentence(error.message));
    this.root.removeAttribute("aria-busy");
    // Before the first answer only the problem is seen: what comes after titles without anything would push them down.
  }

  /**
   * A page may say itself what is wrong.
   * @type {(words: string) => void}
   */
  complain(words) {
    if (words !== "" || !this.hasOwnProblem) super.complain(words);
  }

  stand() {
    this.root.removeAttribute("aria-busy");
    settle(this.root);
  }

  /** @type {(control: Control, isStep: boolean) => void} */
  chooseIn(control, isStep) {
    const fields = fieldsOf(control);
    if (fields !== null) this.choose(fields, isStep);
  }

  /** @type {(event: MouseEvent) => void} */
  onClick(event) {
    /** @type {HTMLElement | null} */
    const button = targetOf(event).closest(
      "[data-set]:not(option), [data-form]:not(form), [data-copy], [data-file], [data-print], button[data-view]",
    );
    if (button === null) return;
    const { set, step, form: order, copy, file, accept, view, value } = button.dataset;
    if (set !== undefined) this.choose(JSON.parse(set), step !== "false");
    else if (order !== undefined) this.carryOutOnce(button, JSON.parse(order));
    else if (copy !== undefined) copyFrom(button, copy);
    else if (file !== undefined) this.openFile(file, accept ?? "");
    else if (view !== undefined) this.choose({ [view]: value });
    else print();
  }

  /**
   * The text of a file becomes a field of the view.
   * @type {(field: string, accept: string) => void}
   */
  openFile(field, accept) {
    const input = make("input", { type: "file", accept });
    input.addEventListener("change", async () => {
      const file = input.files?.[0];
      if (file === undefined) return;
      if (file.size > FILE_MOST) this.complain(`${file.name} is larger than 1 MiB.`);
      else this.choose({ [field]: await file.text() }, false);
    });
    input.click();
  }

  /**
   * Carries out an order, unless the same button's last one is under way.
   * @type {(button: HTMLElement, order: Order) => Promise<void>}
   */
  async carryOutOnce(button, order) {
    if (button.ariaBusy === "true") return;
    button.ariaBusy = "true";
    try {
      await this.carryOut(order);
    } finally {
      button.ariaBusy = null;
    }
  }

  /** @type {(order: Order) => Promise<void>} */
  async carryOut(order) {
    const answer = await carryOut(order, () => this.look(), this.view);
    if (answer === null) return;
    if (order.keeps !== undefined) this.view[order.keeps] = JSON.stringify(answer);
    if (order.sets !== undefined) this.tellOf(order.sets, answer);
    if (order.then !== undefined) location.assign(order.then);
    else this.look(); // not waited for: its button can be pressed again
  }

  /**
   * Fields of the view are facts of an answer while the dialog that shows it is open; its buttons are as those of the page.
   * @type {(sets: Record<string, string>, answer: Values) => void}
   */
  tellOf(sets, answer) {
    Object.assign(this.view, factsOf(sets, answer));
    const dialog = within(document, "dialog[open]");
    dialog?.addEventListener("click", (event) => this.onClick(event));
    dialog?.addEventListener("close", () =>
      this.choose(
        Object.fromEntries(Object.keys(sets).map((name) => [name, this.usual[name]])),
        false,
      ),
    );
  }

  /**
   * Figures whose request is another are asked for; the element that asks names the place for what is wrong. What no
   * element asks for now, as its dialog is closed, is forgotten: an answer that comes still is for nobody.
   */
  drawFigures() {
    const elements = allWithin(this.root, "[data-figure]:not([hidden])");
    const ids = new Set(elements.map(({ dataset }) => dataset.figure));
    for (const [id, figure] of this.figures) if (!ids.has(id)) figure.request = null;
    for (const element of elements) this.drawFigure(element.dataset, element);
  }

  /** @type {(traits: DOMStringMap, element: HTMLElement) => Promise<void>} */
  async drawFigure({ figure: id, request, height, at, problem, hides }, element) {
    if (id === undefined || request === undefined) return;
    const figure = this.figures.get(id) ?? { graph: null, request: null };
    this.figures.set(id, figure);
    if (figure.request === request) return;
    figure.request = request;
    const place = problem === undefined ? element : byId(problem);
    const { Graph } = await import(GRAPH);
    /** @type {Graph} */
    const graph = figure.graph ?? new Graph(id);
    figure.graph = graph;
    if (figure.request !== request) return;
    try {
      const room = graph.place.parentElement?.clientHeight ?? 0;
      const facts = await graph.ask(JSON.parse(request), {
        height: Number(height) || room,
        at: Number(at) || Date.now() / 1000,
      });
      if (figure.request !== request) return;
      sayOrHide(place, "");
      if (facts.parts !== undefined) this.putParts(facts.parts);
    } catch (error) {
      if (figure.request !== request) return;
      figure.request = null;
      if (hides !== undefined) show(byId(hides), false);
      sayOrHide(place, sentence(messageOf(error)));
    }
  }
}

/** Returns the name in an address such as /job/ID. */
function lastOfPath() {
  const text = location.pathname.replace(/^\/[^/]*\//, "");
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @type {(button: HTMLElement, text: string) => Promise<void>} */
async function copyFrom(button, text) {
  const isCopied = await copyText(text);
  say(button, isCopied ? "Copied" : "Press Ctrl+C");
  if (!isCopied && button.previousElementSibling !== null)
    getSelection()?.selectAllChildren(button.previousElementSibling);
}
