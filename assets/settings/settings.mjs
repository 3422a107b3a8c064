// The Settings page: the hub writes its sections. Which one is chosen stands after the # of the address. Here is
// what belongs to this browser, and dialogs that show what comes of them.

import { isOn, turn, whyNone } from "../alerts/desktop_alerts.mjs";
import { byId, say } from "../parts/dom.mjs";
import ReadPage from "../reading/read_page.mjs";
import { connectNode } from "./connect_node.mjs";
import { approveList } from "./settings_nodes.mjs";

const CONNECT = "#nodes/connect";

export default class Settings extends ReadPage {
  listen(store) {
    super.listen(store);
    this.root.addEventListener("change", ({ target }) => { if (target.id === "desktop-alerts") turn(target.checked).then(drawDesktop); });
    this.root.addEventListener("click", ({ target }) => {
      if (target.id === "connect-node") this.connect();
      else if (target.id === "approve-nodes") approveList().then(() => this.look());
    });
  }

  /** Of old addresses, too. What else is after the #, such as the way past the bar, chooses nothing. */
  readView() {
    const [name] = location.hash.slice(1).split("/");
    const section = byId(`section-${name}`)?.matches(".section") ? name : this.view?.section ?? this.usual.section;
    return { ...super.readView(), section };
  }

  putParts(parts) {
    super.putParts(parts);
    drawDesktop();
    if (location.hash === CONNECT && !this.isAsked && byId("connect-node") !== null) this.connect();
  }

  async connect() {
    this.isAsked = true; // by an address, once
    await connectNode(() => this.look());
    await this.look();
  }
}

/** Of this browser, not of the account: it may be somebody's phone. */
function drawDesktop() {
  const box = byId("desktop-alerts");
  if (box === null) return;
  const why = whyNone();
  Object.assign(box, { checked: isOn(), disabled: why !== "" });
  say(byId("desktop-alerts-words"), why || "In this browser, while a page of gpudeck is open in it.");
}
