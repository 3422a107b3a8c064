// Printing: on paper a page is light, whole and dated, without bar and buttons, with every row and line.

import { make, say } from "./dom.mjs";

/**
 * `live` says how old the picture is. Sends `gpudeck-print` with true before and false after: what
 * is drawn by hand has to be drawn within it, for no frame is painted before the paper is.
 * @type {(live: LiveLink) => void}
 */
export function mountPrinting(live) {
  const head = make(
    "header",
    { class: "print-head" },
    make("strong", {}),
    make("span", {}),
    make("span", {}),
  );
  document.body.prepend(head);
  const root = document.documentElement;
  /** @type {string | undefined} */
  let choice;
  addEventListener("beforeprint", () => {
    /** @type {string | undefined} */
    choice = root.dataset.theme;
    root.dataset.theme = "light";
    [document.title, timeWords(live), location.href].forEach((words, at) =>
      say(head.children[at], words),
    );
    tell(true);
  });
  addEventListener("afterprint", () => {
    if (choice === undefined) delete root.dataset.theme;
    else root.dataset.theme = choice;
    tell(false);
  });
}

/** @type {(live: LiveLink) => string} */
function timeWords(live) {
  const now = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" }).format(
    new Date(),
  );
  const old = (live.ageMs() ?? 0) / 1000;
  return old > 10 ? `${now}; the numbers are ${Math.round(old)} s older` : now;
}

/** @type {(isOn: boolean) => void} */
function tell(isOn) {
  dispatchEvent(new CustomEvent("gpudeck-print", { detail: isOn }));
}
