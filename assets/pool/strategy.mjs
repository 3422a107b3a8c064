// How the pool decides: its order, and where it puts what it gives out.

import { make, redraw } from "../parts/dom.mjs";

export function drawStrategy(place, { strategy }) {
  redraw(place, strategy, () => [make("dl", { class: "pool-facts" },
    make("div", {}, make("dt", {}, "Order"), make("dd", {}, "Higher priority first, then who has held least in the last weeks, then who asked first. A later claim may go ahead where that delays neither the first of the queue nor a reservation.")),
    make("div", {}, make("dt", {}, "Placement"), make("dd", {}, make("code", {}, strategy), "; several GPUs are taken from one NVLink clique if that can be, else from one NUMA node.")))]);
}
