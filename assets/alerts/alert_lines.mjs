// The alerts that are marked at one GPU, in the drawer and beside its timelines.

import { TONES, withWhat } from "./alert_words.mjs";
import { Lines, make, say, show } from "../parts/dom.mjs";
import { moment, when } from "../parts/format.mjs";

export class AlertLines {
  constructor() {
    const list = make("ul", { class: "alert-lines" });
    this.lines = new Lines(list, ({ id }) => id, alertLine, false);
    this.root = make("div", { hidden: "" }, make("h3", {}, "Alerts"), list);
  }

  draw(alerts) {
    this.lines.draw(alerts);
    show(this.root, alerts.length > 0);
  }
}

function alertLine(alert) {
  const [link, small] = [make("a", {}, withWhat(alert)), make("small", {})];
  const root = make("li", {}, make("span", { class: `pill ${TONES[alert.severity]}` }, alert.severity), " ", link, " ", small);
  const draw = ({ since, silenced_by: silencedBy }) => {
    link.href = silencedBy.length > 0 ? "/alerts#silenced" : "/alerts";
    say(small, `since ${when(since)}${silencedBy.length > 0 ? ", silenced" : ""}`);
    small.title = moment(since);
  };
  return { root, draw };
}
