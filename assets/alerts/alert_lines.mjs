// The alerts that are marked at one Gpu, in the drawer and beside its timelines.

import { TONES, withWhat } from "./alert_words.mjs";
import { make, say, show } from "../parts/dom.mjs";
import { moment, when } from "../parts/format.mjs";

export class AlertLines {
  constructor() {
    this.items = new Map();
    this.title = make("h3", {}, "Alerts");
    this.list = make("ul", { class: "alert-lines" });
    this.root = make("div", { hidden: "" }, this.title, this.list);
  }

  draw(alerts) {
    const ids = new Set(alerts.map(({ id }) => id));
    for (const [id, item] of this.items) if (!ids.has(id)) { item.remove(); this.items.delete(id); }
    alerts.forEach((alert) => this.drawOne(alert));
    show(this.root, alerts.length > 0);
  }

  drawOne(alert) {
    const { id, severity, since, silenced_by: silencedBy } = alert;
    if (!this.items.has(id)) {
      const item = make("li", {}, make("span", { class: `pill ${TONES[severity]}` }, severity), make("a", { href: "/alerts" }, withWhat(alert)), make("small", {}));
      this.items.set(id, item);
      this.list.append(item);
    }
    const small = this.items.get(id).querySelector("small");
    this.items.get(id).querySelector("a").href = silencedBy.length > 0 ? "/alerts#silenced" : "/alerts";
    say(small, `since ${when(since)}${silencedBy.length > 0 ? ", silenced" : ""}`);
    small.title = moment(since);
  }
}
