// The numbers of one GPU in the drawer, section by section; what a board does not report is one line.

import { make, redraw, say, show } from "../parts/dom.mjs";
import { age, capital, oneWord, valueOf } from "../parts/format.mjs";
import { shareOf, valueWords } from "./gpu_words.mjs";
import { explain } from "../parts/tips.mjs";

// Of the link now, and of what it can be.
const OF_MOST = { pcie_gen: "pcie_gen_max", pcie_width: "pcie_width_max" };
// More than none of these is worth a second look, and of those an errand.
const WARN = new Set(["mem_unseen_bytes", "ecc_corrected", "nvlink_errors"]);
const BAD = new Set(["ecc_uncorrected", "rows_uncorrected"]);

export class Metrics {
  constructor(book) {
    Object.assign(this, { book, rows: new Map(), sections: new Map() });
    for (const [key, label] of book.sections) this.sections.set(key, section(label));
    for (const metric of book.metrics.values()) this.sections.get(metric.section).list.append(this.row(metric));
    this.absent = { unsupported: absentLine("Not supported here"), denied: absentLine("Denied") };
    this.slow = make("p", { class: "slow-age" });
  }

  get elements() {
    return [...[...this.sections.values()].map(({ root }) => root), this.slow, ...Object.values(this.absent).map(({ root }) => root)];
  }

  /** Something beside the metrics, at the end of a section. */
  append(key, element) {
    this.sections.get(key).root.append(element);
  }

  row(metric) {
    const value = make("span", { class: metric.words || metric.key === "throttle_bits" ? "value words" : "value" }, "…");
    const bar = make("span", { class: "bar-full" });
    const place = make("span", { class: "bar-place" }, bar);
    const row = make("div", { tabindex: "-1", "data-metric": metric.key }, make("dt", {}, metric.label), make("dd", {}, value, place));
    explain(row, metric.meaning);
    this.rows.set(metric.key, { row, value, bar, place });
    return row;
  }

  draw(gpu) {
    for (const [key, cells] of this.rows) this.drawRow(gpu, this.book.metrics.get(key), cells);
    for (const { root, list } of this.sections.values()) show(root, [...list.children].some((row) => !row.hidden));
    this.drawAbsent(gpu, "unsupported", `${capital(this.book.absence.unsupported ?? "")}.`);
    this.drawAbsent(gpu, "denied", `${capital(this.book.absence.denied ?? "")}: run it as root, or give it CAP_SYS_ADMIN; “gpudeck doctor” on the node says what is missing.`);
    const isSlow = gpu.slow_sampled_at !== null && gpu.slow_sampled_at !== undefined;
    show(this.slow, isSlow);
    if (isSlow) say(this.slow, `Health, links and limits were read ${gpu.slow_age_s === null || gpu.slow_age_s === undefined ? "before the hub’s last start" : `${age(gpu.slow_age_s)} ago`}; they come each minute, or when one changes.`);
  }

  // What was never told of (an older agent) has no line; what the board never reports is folded.
  drawRow(gpu, metric, { value, bar, row, place }) {
    const why = gpu.missing[metric.key];
    const isThere = metric.key in gpu.values;
    show(row, isThere || (why !== undefined && why !== "unsupported"));
    if (row.hidden) return;
    const words = valueWords(gpu, metric, this.book);
    say(value, textOf(gpu, metric, words, this.book));
    value.classList.toggle("missing", words.isMissing);
    value.classList.toggle("bad", isThere && isBad(metric, gpu.values[metric.key]));
    value.classList.toggle("warn", isThere && WARN.has(metric.key) && gpu.values[metric.key] > 0);
    explain(row, words.isMissing && words.meaning ? `${metric.meaning} ${capital(words.meaning)}.` : metric.meaning);
    const share = shareOf(gpu, metric);
    show(place, share !== null);
    if (share !== null) bar.style.transform = `scaleX(${share})`;
  }

  drawAbsent(gpu, word, why) {
    const { root, names, reason } = this.absent[word];
    const absent = [...this.book.metrics.values()].filter(({ key }) => gpu.missing[key] === word);
    show(root, absent.length > 0);
    nameMetrics(names, absent);
    say(reason, why);
  }
}

const isBad = (metric, value) => value > 0 && (metric.scale === "alarm" || BAD.has(metric.key));

function textOf(gpu, metric, words, { reasons }) {
  const last = gpu.last_values?.[metric.key];
  if (words.isMissing && last !== undefined && last !== null) {
    return `was ${oneWord(valueOf(metric, last, reasons))}`;
  }
  const most = gpu.facts?.[OF_MOST[metric.key]];
  const of = words.isMissing || most === undefined || most === null ? "" : ` of ${most}`;
  return `${words.text}${of} ${words.unit}`.trim();
}

/** "Fan, PCIe sent. ", each name explained. */
export function nameMetrics(place, metrics) {
  redraw(place, metrics.map(({ key }) => key), () => metrics.flatMap((metric, at) => {
    const name = make("span", { class: "explained", tabindex: "-1", "data-metric": metric.key }, metric.label);
    explain(name, metric.meaning);
    return [name, at === metrics.length - 1 ? ". " : ", "];
  }));
}

function section(label) {
  const list = make("dl", { class: "metrics" });
  return { list, root: make("section", { class: "drawer-section" }, make("h3", {}, label), list) };
}

function absentLine(title) {
  const names = make("span", {});
  const reason = make("span", {});
  return { names, reason, root: make("p", { class: "not-here" }, make("strong", {}, `${title}: `), names, reason) };
}
