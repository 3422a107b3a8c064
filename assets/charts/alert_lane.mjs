// The lane of alerts above all charts: a strip for each rule, what and where on hover. Only a hairline
// of an alert lies on the data.

import { SEVERITIES } from "../alerts/alert_words.mjs";
import { grouped } from "../parts/grouped.mjs";
import { Lines, make, say, show } from "../parts/dom.mjs";
import { clock } from "../parts/format.mjs";
import { explain } from "../parts/tips.mjs";

export class AlertLane {
  /** @param {HTMLElement} place */
  constructor(place) {
    this.none = make("p", { class: "lane-none" });
    const list = make("ul", { class: "lane-rules" });
    /** @type {Lines<{ rule: string, spans: AlertSpan[], span: TimeRange }>} */
    this.rules = new Lines(
      list,
      ({ rule }) => rule,
      () => ruleStrip(),
    );
    place.append(this.none, list);
  }

  /**
   * `alerts`: spans of firing.mjs, oldest first; `span`: what the charts show.
   * @type {(alerts: AlertSpan[], span: TimeRange) => void}
   */
  draw(alerts, span) {
    const inSpan = alerts.filter(({ from, to }) => from < span.to && (to ?? Infinity) > span.from);
    const rules = [...grouped(inSpan, ({ rule }) => rule)].map(([rule, spans]) => ({
      rule,
      spans,
      span,
    }));
    show(this.none, rules.length === 0);
    say(this.none, "No alert in this time");
    this.rules.draw(rules);
  }
}

/** @type {() => DrawnLine<{ rule: string, spans: AlertSpan[], span: TimeRange }>} */
function ruleStrip() {
  // A narrow lane cuts the rule's name before its GPUs, which are what the eye looks for.
  const [name, where] = ["lane-name", "lane-gpus"].map((part) => make("span", { class: part }));
  const track = make("span", { class: "lane-track" });
  const root = make(
    "li",
    { "tabindex": "0", "data-rule": "" },
    make("strong", {}, name, where),
    track,
  );
  /** @type {Lines<AlertSpan & { span: TimeRange }>} */
  const bars = new Lines(
    track,
    ({ id }) => id,
    () => spanBar(),
  );
  /** @type {(strip: { rule: string, spans: AlertSpan[], span: TimeRange }) => void} */
  const draw = ({ rule, spans, span }) => {
    root.dataset.rule = rule;
    const gpus = [...new Set(spans.map(({ gpu }) => gpu).filter(Boolean))].sort();
    const words = spans.every(({ isSilenced }) => isSilenced) ? " · silenced" : "";
    say(name, spans[0].name);
    say(where, `${gpus.length === 0 ? "" : ` · GPU ${gpus.join(", ")}`}${words}`);
    explain(root, spans.map(spanWords).join("\n"));
    bars.draw(spans.map((one) => ({ ...one, span })));
  };
  return { root, draw };
}

/** @type {() => DrawnLine<AlertSpan & { span: TimeRange }>} */
function spanBar() {
  const root = make("i", {});
  /** @type {(one: AlertSpan & { span: TimeRange }) => void} */
  const draw = ({ from, to, severity, isSilenced, span }) => {
    const share = (/** @type {number} */ at) =>
      (100 * (Math.min(span.to, Math.max(span.from, at)) - span.from)) / (span.to - span.from);
    root.className = isSilenced ? "silenced" : severity;
    root.style.left = `${share(from).toFixed(2)}%`;
    root.style.width = `${(share(to ?? span.to) - share(from)).toFixed(2)}%`;
  };
  return { root, draw };
}

/** @type {(span: AlertSpan) => string} */
const spanWords = ({ title, place, severity, from, to }) =>
  `${title}, ${place}: ${SEVERITIES[severity]}, ${clock(from)} to ${to === null ? "now" : clock(to)}`;
