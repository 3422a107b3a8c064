// Dialogs that stand in the frame of a page that is read. `data-open` names the field of the view that has something while one is
// open, `data-closed` has the fields it sets when it is closed. A form in it sends its order (`data-form`); or it is a draft
// (`data-draft`, the field of the view that is its JSON): the hub sees it while somebody writes, and answers with an order to send.

import { sentence } from "../parts/dialog.mjs";
import { afterPause, byId, sayOrHide } from "../parts/dom.mjs";
import { conclude, sendAll, valuesOf } from "./orders.mjs";
import { put } from "./patch.mjs";
import { textOf } from "./view_controls.mjs";

const TYPED_MS = 350;
const LONG_FROM = 5; // fields
const FIRST = "[autofocus], input:not([type=hidden], [readonly]), select, textarea";

export class Dialogs {
  constructor(page) {
    Object.assign(this, { page, isTyped: false, touched: new Set() });
    const { root } = page;
    this.writeSoon = afterPause(TYPED_MS, (form) => { if (form.isConnected && form.closest("dialog").open) this.write(form); });
    root.addEventListener("submit", (event) => { event.preventDefault(); this.submit(event.target); });
    root.addEventListener("click", ({ target }) => this.onClick(target));
    for (const name of ["input", "focusout"]) root.addEventListener(name, ({ target }) => this.onInput(target, name));
    root.addEventListener("cancel", (event) => this.onCancel(event), true);
    root.addEventListener("close", ({ target }) => this.onClose(target), true);
  }

  /** As the view says; `order`: what the draft that is open becomes. */
  draw(order) {
    for (const dialog of this.page.root.querySelectorAll("dialog[data-open]")) {
      const isWanted = textOf(this.page.view[dialog.dataset.open]) !== "";
      if (isWanted && !dialog.open) this.open(dialog);
      else if (!isWanted && dialog.open) dialog.close();
      else if (order !== null && dialog.open) this.send(dialog, order);
    }
  }

  open(dialog) {
    this.isTyped = false;
    this.touched.clear();
    dialog.showModal();
    dialog.querySelector(FIRST)?.focus();
  }

  /** The next time it opens nothing is left of what somebody wrote. */
  onClose(dialog) {
    if (dialog.dataset.closed === undefined) return;
    const place = byId(`${dialog.id}-body`);
    if (place !== null) put(place, null);
    for (const part of dialog.querySelectorAll("details")) part.open = false;
    this.complain(dialog, "");
    Object.assign(this.page.view, JSON.parse(dialog.dataset.closed));
    this.page.look();
  }

  /** A key that is pressed by mistake takes nothing away that took time to write. */
  onCancel(event) {
    if (!this.isTyped) return;
    this.isTyped = false;
    event.preventDefault();
    this.complain(event.target, "Your changes would be lost. Press Esc again to discard them.");
  }

  complain(dialog, words) {
    const place = dialog.querySelector(".problem");
    if (place === null) return;
    sayOrHide(place, words);
    if (words !== "") place.scrollIntoView({ block: "nearest" });
  }

  onClick(target) {
    const button = target.closest("[data-close], [data-do]");
    if (button === null) return;
    if (button.dataset.close !== undefined) button.closest("dialog").close();
    else this.write(button.closest("form"), button.dataset.do);
  }

  onInput(target, event) {
    const form = target.closest("dialog form");
    if (form === null || target.name === undefined || target.name === "") return;
    if (event === "input") this.isTyped = form.querySelectorAll("input, select, textarea").length >= LONG_FROM;
    this.touched.add(target.name);
    if (form.dataset.draft !== undefined) this.writeSoon(form);
  }

  /** What stands in a draft becomes a field of the view; `what`: what a button does with it. */
  write(form, what = undefined) {
    const { page: { view }, touched } = this;
    const values = {};
    for (const [name, value] of new FormData(form)) (values[name] ??= []).push(value);
    const { draft } = form.dataset;
    view[draft] = JSON.stringify({ ...JSON.parse(view[draft] || "{}"), values, touched: [...touched], ...(what === undefined ? {} : { do: what }) });
    this.page.look();
  }

  submit(form) {
    const { draft, form: order } = form.dataset;
    if (draft !== undefined) { this.write(form, "save"); return; }
    const { fields, ...sent } = JSON.parse(order);
    this.send(form.closest("dialog"), sent, valuesOf(fields, new FormData(form)));
  }

  async send(dialog, order, values = {}) {
    if (this.isSending) return;
    this.isSending = true;
    try {
      const answer = (await sendAll(order, values)) ?? {};
      this.complain(dialog, "");
      conclude(order, answer, () => this.page.look());
      if (order.sets === undefined) dialog.close();
      else this.page.choose(Object.fromEntries(Object.entries(order.sets).map(([field, fact]) => [field, answer[fact]])), false);
    } catch (error) {
      this.complain(dialog, sentence(error.message));
    } finally {
      this.isSending = false;
    }
  }
}
