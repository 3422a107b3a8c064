// The browser's tab: name of the page, and whether something is wrong.

import { amount } from "./format.mjs";

const MARKS = {
  well: "favicon.svg",
  warning: "favicon-warning.svg",
  critical: "favicon-critical.svg",
  away: "favicon-away.svg",
};

let name = "gpudeck";
let note = "";
/** @type {keyof typeof MARKS} */
let mark = "well";
let isAway = false;

/**
 * The page's own name, "Fleet" or "node-7 · GPU 3".
 * @type {(words: string) => void}
 */
export function nameTab(words) {
  name = `${words} · gpudeck`;
  draw();
}

/**
 * Names the tab by the fleet's totals: what is lost, fails or is silent comes first.
 * @type {(totals: Hub.Totals) => void}
 */
export function tabTotals({ gpus, nodes }) {
  const bad = gpus.lost + gpus.error;
  const worrying = gpus.stale + gpus.offline + nodes.suspect + nodes.silent;
  note =
    bad > 0
      ? `(${amount(bad)} ${gpus.error === 0 ? "lost" : "failed"}) `
      : worrying > 0
        ? `(${amount(worrying)} !) `
        : "";
  mark = bad > 0 ? "critical" : worrying > 0 ? "warning" : "well";
  draw();
}

/** @type {(state: LinkState) => void} */
export function tabLink(state) {
  isAway = ["silent", "lost", "signed_out"].includes(state);
  draw();
}

function draw() {
  const title = `${isAway ? "(not connected) " : note}${name}`;
  if (document.title !== title) document.title = title;
  const href = `/assets/${MARKS[isAway ? "away" : mark]}`;
  const icon = document.querySelector("link[rel=icon]");
  if (icon !== null && icon.getAttribute("href") !== href) icon.setAttribute("href", href);
}
