// Plotly, from the hub itself, when a page first needs it: it is larger than all else together.

import { byId, make } from "../parts/dom.mjs";

/** @type {Promise<any> | null} */
let coming = null;

export function plotly() {
  coming ??= new Promise((resolve, reject) => {
    const fail = () => {
      coming = null;
      reject(new Error("Plotly could not be loaded from the hub. Reload the page."));
    };
    document.head.append(
      make("script", {
        src: JSON.parse(byId("plotly-address").textContent),
        onerror: fail,
        onload: () => (globalThis.Plotly === undefined ? fail() : resolve(globalThis.Plotly)),
      }),
    );
  });
  return coming;
}
