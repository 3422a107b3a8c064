// The Settings page, which the hub writes; here is what belongs to this browser. Which section is chosen stands after the #
// of the address, and "#nodes/connect" opens its form.

/** @import { CommandStore } from "../actions/commands_store.mjs" */

import { isOn, turn, whyNone } from "../alerts/desktop_alerts.mjs";
import { byId, say, targetOf } from "../parts/dom.mjs";
import ReadPage from "../reading/read_page.mjs";

const CONNECT = "#nodes/connect";

// It states no fields: one would be set after the first answer.
export default class Settings extends ReadPage {
  /** @type {(store: CommandStore) => void} */
  listen(store) {
    super.listen(store);
    this.root.addEventListener("change", (event) => {
      const box = targetOf(event);
      if (box instanceof HTMLInputElement && box.id === "desktop-alerts")
        turn(box.checked).then(drawDesktop);
    });
  }

  /** @type {(parts: Record<string, WrittenNodes>) => void} */
  putParts(parts) {
    super.putParts(parts);
    drawDesktop();
    if (location.hash !== CONNECT || this.isAsked || byId("connect-node") === null) return;
    this.isAsked = true; // by an address, once
    byId("connect-node").click();
  }
}

/** Draws the setting of this browser, not of the account: it may be somebody's phone. */
function drawDesktop() {
  /** @type {HTMLInputElement | null} */
  const box = byId("desktop-alerts");
  if (box === null) return;
  const why = whyNone();
  Object.assign(box, { checked: isOn(), disabled: why !== "" });
  say(
    byId("desktop-alerts-words"),
    why || "In this browser, while a page of gpudeck is open in it.",
  );
}
