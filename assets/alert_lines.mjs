// The alerts that fire on one Gpu, in the drawer and beside its timelines.

import { TONES } from "./alert_words.mjs";
import { make, say, show } from "./dom.mjs";
import { moment, when } from "./format.mjs";

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

  drawOne({ id, title, severity, since, silenced_by: silencedBy }) {
    if (!this.items.has(id)) {
      const item = make("li", {}, make("span", { class: `pill ${TONES[severity]}` }, severity), make("a", { href: "/alerts" }, title), make("small", {}));
      this.items.set(id, item);
      this.list.append(item);
    }
    const small = this.items.get(id).querySelector("small");
    this.items.get(id).querySelector("a").href = silencedBy.length > 0 ? "/alerts#silenced" : "/alerts";
    say(small, `since ${when(since)}${silencedBy.length > 0 ? ", silenced" : ""}`);
    small.title = moment(since);
  }
}
