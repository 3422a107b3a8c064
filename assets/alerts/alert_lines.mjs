// The alerts that are marked at one GPU, in the drawer and beside its timelines.

import { SEVERITIES, TONES, isSilenced, withWhat } from "./alert_words.mjs";
import { Lines, make, say, show } from "../parts/dom.mjs";
import { moment, when } from "../parts/format.mjs";

export class AlertLines {
  constructor() {
    const list = make("ul", { class: "alert-lines" });
    /** @type {Lines<Hub.AlertView>} */
    this.lines = new Lines(list, ({ id }) => id, alertLine, false);
    this.root = make("div", { hidden: "" }, make("h3", {}, "Alerts"), list);
  }

  /** @type {(alerts: Hub.AlertView[]) => void} */
  draw(alerts) {
    this.lines.draw(alerts);
    show(this.root, alerts.length > 0);
  }
}

/** @type {(alert: Hub.AlertView) => DrawnLine<Hub.AlertView>} */
function alertLine(alert) {
  const [pill, link, small] = [
    make("span", {}, SEVERITIES[alert.severity]),
    make("a", {}),
    make("small", {}),
  ];
  const root = make("li", {}, pill, " ", link, " ", small);
  /** @type {(now: Hub.AlertView) => void} */
  const draw = (now) => {
    pill.className = `pill ${isSilenced(now) ? "" : TONES[now.severity]}`;
    link.href = isSilenced(now) ? "/alerts#silenced" : "/alerts";
    say(link, withWhat(now));
    say(small, `since ${when(now.since)}`);
    small.title = moment(now.since);
  };
  return { root, draw };
}
