// One lane for all charts below it: a strip for each rule, what and where on hover. Nothing of an
// alert but a hairline lies on the data.

import { grouped } from "../parts/grouped.mjs";
import { Lines, make, say, show } from "../parts/dom.mjs";
import { clock } from "../parts/format.mjs";
import { explain } from "../parts/tips.mjs";

const WORDS = { info: "info", warn: "warning", crit: "critical" };

export class AlertLane {
  constructor(place) {
    this.none = make("p", { class: "lane-none" });
    const list = make("ul", { class: "lane-rules" });
    this.rules = new Lines(list, ({ rule }) => rule, () => ruleStrip());
    place.append(this.none, list);
  }

  /** `alerts`: spans of firing.mjs, oldest first; `span`: what the charts show. */
  draw(alerts, span) {
    const seen = alerts.filter(({ from, to }) => from < span.to && (to ?? Infinity) > span.from);
    const rules = [...grouped(seen, ({ rule }) => rule)].map(([rule, spans]) => ({ rule, spans, span }));
    show(this.none, rules.length === 0);
    say(this.none, "No alert in this time");
    this.rules.draw(rules);
  }
}

function ruleStrip() {
  const [title, track] = [make("strong", {}), make("span", { class: "lane-track" })];
  const root = make("li", { tabindex: "0", "data-rule": "" }, title, track);
  const bars = new Lines(track, ({ id }) => id, () => spanBar());
  const draw = ({ rule, spans, span }) => {
    root.dataset.rule = rule;
    const gpus = [...new Set(spans.map(({ gpu }) => gpu).filter(Boolean))].sort();
    const words = spans.every(({ isSilenced }) => isSilenced) ? " · silenced" : "";
    say(title, `${spans[0].name}${gpus.length === 0 ? "" : ` · GPU ${gpus.join(", ")}`}${words}`);
    explain(root, spans.map(spanWords).join("\n"));
    bars.draw(spans.map((one) => ({ ...one, span })));
  };
  return { root, draw };
}

function spanBar() {
  const root = make("i", {});
  const draw = ({ from, to, severity, isSilenced, span }) => {
    const share = (at) => (100 * (Math.min(span.to, Math.max(span.from, at)) - span.from)) / (span.to - span.from);
    root.className = isSilenced ? "silenced" : severity;
    root.style.left = `${share(from).toFixed(2)}%`;
    root.style.width = `${(share(to ?? span.to) - share(from)).toFixed(2)}%`;
  };
  return { root, draw };
}

const spanWords = ({ title, place, severity, from, to }) => `${title}, ${place}: ${WORDS[severity]}, ${clock(from)} to ${to === null ? "now" : clock(to)}`;
