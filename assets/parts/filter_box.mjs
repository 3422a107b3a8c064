// The field for a filter and the examples beside it, on the Fleet page and on the Tasks page.

import { afterPause, byId, make, show, targetOf } from "./dom.mjs";

export class FilterBox {
  /**
   * `id`: of its field; `popover`, `words`: ids of its examples and of what is said of it.
   * @param {HTMLElement} root
   * @param {string} id
   * @param {{ popover: string, words: string, placeholder: string, waitMs: number }} traits
   * @param {(text: string) => unknown} changed
   */
  constructor(root, id, { popover, words, placeholder, waitMs }, changed) {
    this.changed = changed;
    this.popover = byId(popover);
    this.field = make("input", {
      id,
      "type": "search",
      "autocomplete": "off",
      "autocapitalize": "off",
      "spellcheck": "false",
      placeholder,
      "maxlength": "400",
      "aria-describedby": words,
    });
    byId(`${id}-place`).append(this.field);
    this.field.addEventListener(
      "input",
      afterPause(waitMs, () => changed(this.field.value.trim())),
    );
    byId(`${id}-help`).addEventListener("click", () =>
      show(this.popover, this.popover.hidden === true),
    );
    root.addEventListener("click", (event) => {
      const target = targetOf(event);
      /** @type {HTMLElement | null} */
      const example = target.closest("[data-example]");
      if (example !== null) this.put(example.dataset.example ?? "");
      if (example !== null || target.closest(`#${popover}, #${id}-help, [data-seek]`) === null)
        this.close();
    });
  }

  get isOpen() {
    return !this.popover.hidden;
  }

  close() {
    show(this.popover, false);
  }

  /** @type {(text: string) => void} */
  put(text) {
    this.field.value = text;
    this.changed(text);
  }

  focus() {
    this.field.focus();
    this.field.select();
  }

  /** @type {(isWrong: boolean) => void} */
  markWrong(isWrong) {
    this.field.setAttribute("aria-invalid", String(isWrong));
  }
}
