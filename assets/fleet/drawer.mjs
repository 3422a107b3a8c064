// The drawer of the Fleet page: one GPU's details, beside the heatmap.

import { Teller, byId, copyText, say, show } from "../parts/dom.mjs";
import { GpuDetails } from "./gpu_details.mjs";
import { waysThere } from "./sites.mjs";

export class Drawer extends Teller {
  constructor(picture, book, holds) {
    super();
    Object.assign(this, { root: byId("drawer"), picture });
    this.details = new GpuDetails(byId("drawer-body"), book, holds, around(picture));
    this.details.addEventListener("named", ({ detail }) => name(detail));
    byId("drawer-close").addEventListener("click", () => this.close());
    byId("drawer-copy").addEventListener("click", () => this.copyLink());
  }

  get uuid() {
    return this.details.uuid;
  }

  get isOpen() {
    return this.uuid !== null;
  }

  open(uuid) {
    if (uuid !== this.uuid) this.start(uuid);
    show(this.root, true);
    this.refresh();
  }

  start(uuid) {
    say(byId("drawer-title"), "…");
    say(byId("drawer-subtitle"), uuid);
    byId("drawer-lines").href = `/gpu/${encodeURIComponent(uuid)}`;
    this.details.start(uuid);
  }

  /** Of a moment that is over, all that is live there gives way, acts and all. */
  refresh() {
    const { isThen } = this.picture;
    show(byId("drawer-body"), !isThen);
    show(byId("drawer-then"), isThen);
    return isThen ? this.drawThen() : this.details.refresh();
  }

  drawThen() {
    const slot = this.uuid === null ? undefined : this.picture.slotOf.get(this.uuid);
    if (slot === undefined) return;
    name({ host: this.picture.host(slot), place: this.picture.placeName(slot), name: this.picture.modelName(slot), node: this.picture.nodeId(slot) });
    this.then?.(slot, byId("drawer-then"));
  }

  close() {
    if (!this.isOpen) return;
    this.details.start(null);
    show(this.root, false);
    this.tell("closed");
  }

  async copyLink() {
    const isCopied = await copyText(location.href);
    this.tell("said", isCopied ? "Link copied" : "Copy link to this page");
  }
}

function name(gpu) {
  say(byId("drawer-title"), gpu === null ? "Unknown GPU" : `${gpu.host} · GPU ${gpu.place}`);
  if (gpu === null) return;
  say(byId("drawer-subtitle"), gpu.name);
  byId("drawer-node").href = `/node/${encodeURIComponent(gpu.node)}`;
  if (gpu.link === undefined) return;
  const ways = waysThere(gpu);
  byId("drawer-node").href = ways.node;
  byId("drawer-lines").href = ways.gpu;
}

function around(picture) {
  const slotOf = (uuid) => picture.slotOf.get(uuid);
  return {
    nameOf: (uuid) => (slotOf(uuid) === undefined ? null : `GPU ${picture.placeName(slotOf(uuid))}`),
    partsOf: (uuid) => picture.partsOf(slotOf(uuid)).length,
    isOffline: (uuid) => slotOf(uuid) !== undefined && picture.state(slotOf(uuid)) === "offline",
  };
}
