// The numbers of one GPU in the drawer, section by section; what a board does not report is one line.

import { metricOf } from "../parts/metric_catalogue.mjs";
import { make, redraw, say, show } from "../parts/dom.mjs";
import { age, capital, oneWord, valueOf } from "../parts/format.mjs";
import { shareOf, valueWords } from "./gpu_words.mjs";
import { explain } from "../parts/tips.mjs";

// Of the link now, and of what it can be.
/** @type {Record<string, string>} */
const OF_MOST = { pcie_gen: "pcie_gen_max", pcie_width: "pcie_width_max" };
// More than none of these is worth a second look, and of those an errand.
const WARN = new Set(["mem_unseen_bytes", "ecc_corrected", "nvlink_errors"]);
const BAD = new Set(["ecc_uncorrected", "rows_uncorrected"]);

const OLD_S = 2;

export class Metrics {
  /** @param {MetricBook} book */
  constructor(book) {
    this.book = book;
    this.rows = new Map();
    this.sections = new Map();
    for (const [key, label] of book.sections) this.sections.set(key, section(label));
    for (const metric of book.metrics.values())
      this.sections.get(metric.section).list.append(this.row(metric));
    this.absent = { unsupported: absentLine("Not supported here"), denied: absentLine("Denied") };
    this.slow = make("p", { class: "slow-age" });
    this.atRest = make("p", { class: "at-rest" }, "All other load metrics are 0.");
    this.append("load", this.atRest);
    this.often = new Set(book.columns);
  }

  get elements() {
    return [
      ...[...this.sections.values()].map(({ root }) => root),
      this.slow,
      ...Object.values(this.absent).map(({ root }) => root),
    ];
  }

  /**
   * Something beside the metrics, at the end of a section.
   * @type {(key: string, element: HTMLElement) => void}
   */
  append(key, element) {
    this.sections.get(key).root.append(element);
  }

  /** @type {(metric: Metric) => HTMLElement} */
  row(metric) {
    const value = make(
      "span",
      { class: metric.words || metric.key === "throttle_bits" ? "value words" : "value" },
      "…",
    );
    const old = make("small", { class: "value-age" });
    const bar = make("span", { class: "bar-full" });
    const place = make("span", { class: "bar-place" }, bar);
    const row = make(
      "div",
      { "tabindex": "-1", "data-metric": metric.key },
      make("dt", {}, metric.label),
      make("dd", {}, make("span", { class: "value-and-age" }, value, old), place),
    );
    explain(row, metric.meaning);
    this.rows.set(metric.key, { row, value, old, bar, place });
    return row;
  }

  /**
   * `isIdle`: for long enough that a sentence says it; a dozen zeros then say no more.
   * @type {(gpu: Hub.GpuView, isIdle?: boolean) => void}
   */
  draw(gpu, isIdle = false) {
    for (const [key, cells] of this.rows) this.drawRow(gpu, metricOf(this.book, key), cells);
    this.foldLoad(gpu, isIdle);
    for (const { root, list } of this.sections.values())
      show(
        root,
        [...list.children].some((row) => !row.hidden),
      );
    this.drawAbsent(gpu, "unsupported", `${capital(this.book.absence.unsupported ?? "")}.`);
    this.drawAbsent(
      gpu,
      "denied",
      `${capital(this.book.absence.denied ?? "")}: run the agent as root or with CAP_SYS_ADMIN; “gpudeck doctor” on the node shows what is missing.`,
    );
    const isSlow = gpu.slow_sampled_at !== null && gpu.slow_sampled_at !== undefined;
    show(this.slow, isSlow);
    if (isSlow)
      say(
        this.slow,
        `Health, links and limits were last read ${gpu.slow_age_s === null || gpu.slow_age_s === undefined ? "before the hub’s last start" : `${age(gpu.slow_age_s)} ago`}; they are read every minute and on change.`,
      );
  }

  /** @type {(gpu: Hub.GpuView, isIdle: boolean) => void} */
  foldLoad(gpu, isIdle) {
    const rows = [...this.sections.get("load").list.children].filter((row) => !row.hidden);
    const isAtRest =
      isIdle &&
      rows.length > 2 &&
      rows.every(({ dataset }) => (gpu.values[dataset.metric] ?? 0) === 0);
    show(this.atRest, isAtRest);
    if (isAtRest) rows.slice(1).forEach((row) => show(row, false));
  }

  // What was never told of (an older agent) has no line; what the board never reports is folded.
  /** @type {(gpu: Hub.GpuView, metric: Metric, cells: MetricCells) => void} */
  drawRow(gpu, metric, { value, old, bar, row, place }) {
    const why = gpu.missing[metric.key];
    const isThere = metric.key in gpu.values;
    show(row, isThere || (why !== undefined && why !== "unsupported"));
    if (row.hidden) return;
    const words = valueWords(gpu, metric, this.book);
    say(value, textOf(gpu, metric, words, this.book));
    // Under one head stand values of each second and of each quarter minute: the older say so.
    const isOld =
      metric.section === "load" &&
      isThere &&
      !this.often.has(metric.key) &&
      (gpu.slow_age_s ?? 0) >= OLD_S;
    say(old, isOld ? `${age(gpu.slow_age_s)} ago` : "");
    value.classList.toggle("missing", words.isMissing);
    value.classList.toggle("bad", isThere && isBad(metric, gpu.values[metric.key]));
    value.classList.toggle("warn", isThere && WARN.has(metric.key) && gpu.values[metric.key] > 0);
    explain(
      row,
      words.isMissing && words.meaning
        ? `${metric.meaning} ${capital(words.meaning)}.`
        : metric.meaning,
    );
    const share = shareOf(gpu, metric);
    show(place, share !== null);
    if (share !== null) bar.style.transform = `scaleX(${share})`;
  }

  /** @type {(gpu: Hub.GpuView, word: "unsupported" | "denied", why: string) => void} */
  drawAbsent(gpu, word, why) {
    const { root, names, reason } = this.absent[word];
    const absent = [...this.book.metrics.values()].filter(({ key }) => gpu.missing[key] === word);
    show(root, absent.length > 0);
    nameMetrics(names, absent);
    say(reason, why);
  }
}

/** @type {(metric: Metric, value: number) => boolean} */
const isBad = (metric, value) => value > 0 && (metric.scale === "alarm" || BAD.has(metric.key));

/** @type {(gpu: Hub.GpuView, metric: Metric, words: ValueWords, book: MetricBook) => string} */
function textOf(gpu, metric, words, { reasons }) {
  const last = gpu.last_values?.[metric.key];
  if (words.isMissing && last !== undefined && last !== null) {
    return `was ${oneWord(valueOf(metric, last, reasons))}`;
  }
  const facts = /** @type {Record<string, any>} */ (gpu.facts);
  const most = facts[OF_MOST[metric.key]];
  const of = words.isMissing || most === undefined || most === null ? "" : ` of ${most}`;
  return `${words.text}${of} ${words.unit}`.trim();
}

/**
 * "Fan, PCIe sent. ", each name explained.
 * @type {(place: HTMLElement, metrics: Metric[]) => void}
 */
export function nameMetrics(place, metrics) {
  redraw(
    place,
    metrics.map(({ key }) => key),
    () =>
      metrics.flatMap((metric, at) => {
        const name = make(
          "span",
          { "class": "explained", "tabindex": "-1", "data-metric": metric.key },
          metric.label,
        );
        explain(name, metric.meaning);
        return [name, at === metrics.length - 1 ? ". " : ", "];
      }),
  );
}

/** @type {(label: string) => MetricSection} */
function section(label) {
  const list = make("dl", { class: "metrics" });
  return { list, root: make("section", { class: "drawer-section" }, make("h3", {}, label), list) };
}

/** @type {(title: string) => Record<"names" | "reason" | "root", HTMLElement>} */
function absentLine(title) {
  const names = make("span", {});
  const reason = make("span", {});
  return {
    names,
    reason,
    root: make("p", { class: "not-here" }, make("strong", {}, `${title}: `), names, reason),
  };
}
