// The drawer of the Fleet page: one GPU's details, beside the heatmap.

/** @import { FleetState } from "../live/fleet_state.mjs" */

import { MachinePanels } from "../reading/machine_panels.mjs";
import { Teller, byId, copyText, say, show } from "../parts/dom.mjs";
import { GpuDetails } from "./gpu_details.mjs";
import { waysThere } from "./sites.mjs";

/** @extends {Teller<{ closed: object, said: string }>} */
export class Drawer extends Teller {
  /** @type {((slot: number, body: HTMLElement) => void) | undefined} */
  then;

  /**
   * @param {FleetState} picture
   * @param {MetricBook} book
   * @param {LiveLink} live
   */
  constructor(picture, book, live) {
    super();
    this.root = byId("drawer");
    this.picture = picture;
    const body = byId("drawer-body");
    const panels = new MachinePanels("fleet", body, live);
    this.details = new GpuDetails(body, book, panels, around(picture));
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

  /** @type {(uuid: string) => void} */
  open(uuid) {
    if (uuid !== this.uuid) this.start(uuid);
    show(this.root, true);
    this.refresh();
  }

  /** @type {(uuid: string) => void} */
  start(uuid) {
    say(byId("drawer-title"), "…");
    say(byId("drawer-subtitle"), uuid);
    lead("drawer-lines", `/gpu/${encodeURIComponent(uuid)}`);
    this.details.start(uuid);
  }

  /** Draws the GPU; at a past moment everything live, actions included, is hidden. */
  refresh() {
    const { isThen } = this.picture;
    show(byId("drawer-body"), !isThen);
    show(byId("drawer-then"), isThen);
    return isThen ? this.drawThen() : this.details.refresh();
  }

  drawThen() {
    const slot = this.uuid === null ? undefined : this.picture.slotOf.get(this.uuid);
    if (slot === undefined) return;
    name({
      host: this.picture.host(slot),
      place: this.picture.placeName(slot),
      name: this.picture.modelName(slot),
      node: this.picture.nodeId(slot),
    });
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

/** @type {(id: string, href: string) => void} */
function lead(id, href) {
  byId(id).setAttribute("href", href);
}

/** @type {(gpu: NamedGpu | null) => void} */
function name(gpu) {
  say(byId("drawer-title"), gpu === null ? "Unknown GPU" : `${gpu.host} · GPU ${gpu.place}`);
  if (gpu === null) return;
  say(byId("drawer-subtitle"), gpu.name);
  const { link, uuid, node } = gpu;
  lead("drawer-node", `/node/${encodeURIComponent(node ?? "")}`);
  if (!link || uuid === undefined || node === null) return;
  const ways = waysThere({ link, uuid, node });
  lead("drawer-node", ways.node);
  lead("drawer-lines", ways.gpu);
}

/** @type {(picture: FleetState) => Around} */
function around(picture) {
  /** @type {(uuid: string) => number | undefined} */
  const slotOf = (uuid) => picture.slotOf.get(uuid);
  return {
    nameOf: (uuid) =>
      slotOf(uuid) === undefined ? null : `GPU ${picture.placeName(slotOf(uuid) ?? -1)}`,
    partsOf: (uuid) => picture.partsOf(slotOf(uuid) ?? -1).length,
    isOffline: (uuid) =>
      slotOf(uuid) !== undefined && picture.state(slotOf(uuid) ?? -1) === "offline",
  };
}
