// Toast: what was just done, and a button that takes it back.

import { make, messageOf } from "./dom.mjs";

const SHOWN_MS = 10_000;
/** @type {HTMLElement | null} */
let place = null;

/** @type {(text: string, undo?: (() => unknown) | null) => void} */
export function toast(text, undo = null) {
  place ??= document.body.appendChild(make("div", { class: "toasts", role: "status" }));
  const one = make("p", { class: "toast" }, make("span", {}, text));
  if (undo !== null)
    one.append(
      make(
        "button",
        {
          type: "button",
          class: "as-link",
          onclick: () => {
            one.remove();
            takeBack(undo);
          },
        },
        "Undo",
      ),
    );
  place.replaceChildren(one);
  setTimeout(() => one.remove(), SHOWN_MS);
}

/** @type {(undo: () => unknown) => Promise<void>} */
async function takeBack(undo) {
  try {
    await undo();
    toast("Undone.");
  } catch (error) {
    toast(`Undo failed: ${messageOf(error)}`);
  }
}
