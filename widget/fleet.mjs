// A hub's fleet: its heatmap, where Gpus are free, and my tasks anywhere.

import { make } from "./dom.mjs";

export class Fleet {
  constructor(view) {
    this.view = view;
    this.kind = "fleet";
    this.root = make("div", {});
  }

  show() {}
}
