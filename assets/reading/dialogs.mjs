// Dialogs that stand in the frame of a page that is read. `data-open` names the field of the view that has something while one is
// open, `data-closed` has the fields it sets when it is closed. A form in it sends its order (`data-form`); or it is a draft
// (`data-draft`, the field of the view that is its JSON): the hub sees it while somebody writes, and answers with an order to send.

/** @import ReadPage from "./read_page.mjs" */

import { sentence } from "../parts/dialog.mjs";
import {
  afterPause,
  allWithin,
  byId,
  messageOf,
  sayOrHide,
  targetOf,
  within,
} from "../parts/dom.mjs";
import { rememberFocus } from "../parts/focus.mjs";
import { conclude, factsOf, sendAll, valuesOf } from "./orders.mjs";
import { put } from "./patch.mjs";
import { textOf } from "./view_controls.mjs";

const TYPED_MS = 350;
const LONG_FROM = 5; // fields
const TOO_LONG = "This is too long to be checked or saved. Shorten it.";
const FIRST = "[autofocus], input:not([type=hidden], [readonly]), select, textarea";

export class Dialogs {
  isTyped = false;
  isSending = false;
  isTooLong = false;
  isActing = false; // the hub has not answered yet to a button of a draft
  /** @type {HTMLFormElement | null} */
  late = null; // what was typed meanwhile
  /** @type {Set<string>} */
  touched = new Set();
  refocus = () => {};

  /** @param {ReadPage} page */
  constructor(page) {
    this.page = page;
    const { root } = page;
    this.writeSoon = afterPause(TYPED_MS, (/** @type {HTMLFormElement} */ form) => {
      if (form.isConnected && form.closest("dialog")?.open) this.write(form);
    });
    root.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit(/** @type {HTMLFormElement} */ (event.target));
    });
    root.addEventListener("click", (event) => this.onClick(targetOf(event)));
    for (const name of ["input", "focusout"])
      root.addEventListener(name, (event) =>
        this.onInput(/** @type {HTMLInputElement} */ (event.target), name),
      );
    root.addEventListener("cancel", (event) => this.onCancel(event), true);
    root.addEventListener("click", (event) => bringIntoSight(targetOf(event)));
    root.addEventListener(
      "close",
      (event) => this.onClose(/** @type {HTMLDialogElement} */ (event.target)),
      true,
    );
  }

  /**
   * Draws the dialogs of the view; `order`: what the open draft becomes.
   * @type {(order: Order | null) => void}
   */
  draw(order) {
    /** @type {HTMLDialogElement[]} */
    const dialogs = allWithin(this.page.root, "dialog[data-open]");
    for (const dialog of dialogs.filter(({ open }) => open)) {
      if (!this.isWanted(dialog)) dialog.close();
      else if (order !== null) this.send(dialog, order);
    }
    for (const dialog of dialogs.filter((one) => !one.open && this.isWanted(one))) {
      if (document.querySelector("dialog[open]") === null) this.open(dialog);
      else this.forget(dialog);
    }
  }

  /** @type {(dialog: HTMLDialogElement) => boolean} */
  isWanted(dialog) {
    return textOf(this.page.view[dialog.dataset.open ?? ""]) !== "";
  }

  /**
   * Forgets a dialog in the view, so that it does not open again by itself.
   * @type {(dialog: HTMLDialogElement) => void}
   */
  forget(dialog) {
    Object.assign(this.page.view, JSON.parse(dialog.dataset.closed ?? "{}"));
  }

  /** The hub has answered. What was typed meanwhile goes to it now. */
  endAct() {
    this.isActing = false;
    if (this.late !== null) this.writeSoon(this.late);
    this.late = null;
  }

  /**
   * The hub has not answered: what a button asked for is not tried again by itself, and what did not open stays closed.
   * @type {(words: string) => void}
   */
  fail(words) {
    const {
      page: { root, view },
      isActing,
    } = this;
    /** @type {HTMLFormElement[]} */
    const forms = allWithin(root, "dialog[open] form[data-draft]");
    for (const form of forms) {
      const { draft = "" } = form.dataset;
      if (textOf(view[draft]) !== "")
        view[draft] = JSON.stringify({ ...JSON.parse(view[draft]), do: "" });
      if (isActing) this.complain(form, words);
    }
    /** @type {HTMLDialogElement[]} */
    const closed = allWithin(root, "dialog[data-open]:not([open])");
    for (const dialog of closed) this.forget(dialog);
    this.endAct();
  }

  /** @type {(dialog: HTMLDialogElement) => void} */
  open(dialog) {
    this.isTyped = false;
    this.late = null;
    this.touched.clear();
    this.refocus = rememberFocus();
    dialog.showModal();
    within(dialog, FIRST)?.focus();
  }

  /**
   * The next time it opens nothing is left of what somebody wrote.
   * @type {(dialog: HTMLDialogElement) => void}
   */
  onClose(dialog) {
    if (dialog.dataset.closed === undefined) return;
    this.refocus();
    const place = byId(`${dialog.id}-body`);
    if (place !== null) put(place, null);
    for (const part of dialog.querySelectorAll("details")) part.open = false;
    this.complain(dialog, "");
    this.forget(dialog);
    this.page.look();
  }

  /**
   * A key that is pressed by mistake takes nothing away that took time to write.
   * @type {(event: Event) => void}
   */
  onCancel(event) {
    if (!this.isTyped) return;
    this.isTyped = false;
    event.preventDefault();
    this.complain(targetOf(event), "Your changes would be lost. Press Esc again to discard them.");
  }

  /** @type {(dialog: HTMLElement, words: string) => void} */
  complain(dialog, words) {
    const place = within(dialog, ".problem");
    if (place === null) return;
    sayOrHide(place, words);
    if (words !== "") place.scrollIntoView({ block: "nearest" });
  }

  /** @type {(target: HTMLElement) => void} */
  onClick(target) {
    /** @type {HTMLElement | null} */
    const button = target.closest("[data-close], [data-do]");
    if (button === null) return;
    const form = button.closest("form");
    if (button.dataset.close !== undefined) button.closest("dialog")?.close();
    else if (form !== null) this.write(form, button.dataset.do);
  }

  /** @type {(target: HTMLInputElement, event: string) => void} */
  onInput(target, event) {
    /** @type {HTMLFormElement | null} */
    const form = target.closest("dialog form");
    if (form === null || target.name === undefined || target.name === "") return;
    if (event === "input")
      this.isTyped = form.querySelectorAll("input, select, textarea").length >= LONG_FROM;
    this.touched.add(target.name);
    if (form.dataset.draft !== undefined) this.writeSoon(form);
  }

  /**
   * Writes a draft into a field of the view; `what`: what a button does with it. Typing waits until that is answered:
   * the answer to the newest request counts.
   * @type {(form: HTMLFormElement, what?: string) => void}
   */
  write(form, what = "") {
    if (what === "" && this.isActing) {
      this.late = form;
      return;
    }
    const {
      page: { view },
      touched,
    } = this;
    /** @type {Record<string, FormDataEntryValue[]>} */
    const values = {};
    for (const [name, value] of new FormData(form)) (values[name] ??= []).push(value);
    const { draft = "", most = Infinity } = form.dataset;
    const text = JSON.stringify({
      ...JSON.parse(view[draft] || "{}"),
      values,
      touched: [...touched],
      do: what,
    });
    // The hub would take none of it.
    if (this.isTooLong || text.length > Number(most))
      this.complain(form, text.length > Number(most) ? TOO_LONG : "");
    this.isTooLong = text.length > Number(most);
    if (this.isTooLong) return;
    view[draft] = text;
    this.isActing = what !== "";
    this.page.look();
  }

  /** @type {(form: HTMLFormElement) => void} */
  submit(form) {
    const { draft, form: order = "" } = form.dataset;
    if (draft !== undefined) {
      this.write(form, "save");
      return;
    }
    const dialog = form.closest("dialog");
    if (dialog === null) return;
    const { fields, ...sent } = JSON.parse(order);
    this.send(dialog, sent, valuesOf(fields, new FormData(form)));
  }

  /** @type {(dialog: HTMLDialogElement, order: Order, values?: Values) => Promise<void>} */
  async send(dialog, order, values = {}) {
    if (this.isSending) return;
    this.isSending = true;
    try {
      const answer = (await sendAll(order, values)) ?? {};
      this.complain(dialog, "");
      conclude(order, answer, () => this.page.look());
      if (order.sets === undefined) dialog.close();
      else this.page.choose(factsOf(order.sets, answer), false);
    } catch (error) {
      this.complain(dialog, sentence(messageOf(error)));
    } finally {
      this.isSending = false;
    }
  }
}

/**
 * What is opened at the end of a long dialog would be below its edge, with what comes in it.
 * @type {(target: Element) => void}
 */
function bringIntoSight(target) {
  const details = target.closest("dialog summary")?.parentElement;
  requestAnimationFrame(() => {
    if (details instanceof HTMLDetailsElement && details.open)
      details.scrollIntoView({ block: "start" });
  });
}
