// The choices above the map: the metric, the grouping, the order, and map or table; the address keeps them.

import { readView, writeView } from "../parts/address.mjs";
import { byId, show } from "../parts/dom.mjs";

const USUAL = { sort: "name", filter: "", gpu: "", view: "map", at: "" };
const ALLOWED = {
  group: ["node", "none", "model", "owner", "state", "site"],
  sort: ["name", "high", "low"],
  view: ["map", "table"],
};
const LISTS = /** @type {const} */ (["metric", "group", "sort"]);
// A view, and the element that shows it.
const VIEWS = [
  ["map", "heatmap"],
  ["table", "table-view"],
];

/** @type {(id: string) => HTMLSelectElement} */
const listOf = (id) => byId(id);

export class ViewChoices {
  /** @param {(change: Partial<FleetView>) => void} choose */
  constructor(choose) {
    const { metric = "", group = "" } = byId("heatmap").dataset;
    /** @type {FleetView} */
    this.usual = { ...USUAL, metric, group };
    for (const name of LISTS)
      listOf(name).addEventListener("change", () => choose({ [name]: listOf(name).value }));
    for (const [view] of VIEWS)
      byId(`view-${view}`).addEventListener("click", () => choose({ view }));
  }

  /**
   * Reads the view that the address names.
   * @type {() => FleetView}
   */
  read() {
    return readView(this.usual, {
      ...ALLOWED,
      metric: [...listOf("metric").options].map(({ value }) => value),
    });
  }

  /**
   * Writes a view into the address.
   * @type {(view: FleetView) => void}
   */
  write(view) {
    writeView(view, this.usual);
  }

  /** @type {(view: FleetView) => void} */
  putLists(view) {
    for (const name of LISTS) listOf(name).value = view[name];
  }

  /**
   * Shows the map or the table.
   * @type {(view: FleetView) => void}
   */
  showView({ view }) {
    for (const [name, place] of VIEWS) {
      byId(`view-${name}`).setAttribute("aria-pressed", String(view === name));
      show(byId(place), view === name);
    }
  }

  /**
   * Offers the grouping by site, where the hub views others.
   * @type {(view: FleetView) => void}
   */
  offerSites(view) {
    const group = listOf("group");
    if (!group.querySelector("[value=site]")) group.append(new Option("site", "site"));
    group.value = view.group;
  }
}
