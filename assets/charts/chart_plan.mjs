// Plan of the timelines and their scales: for one GPU several metrics in a chart, for several GPUs one
// metric in a chart.

import { metricOf } from "../parts/metric_catalogue.mjs";
import { oneWord, valueOf } from "../parts/format.mjs";

/** @type {ChartRange} */
const percent = () => [0, 100];
/** @type {ChartRange} */
const fromZero = (_low, high, limits) => [
  0,
  1.06 * Math.max(high ?? 0, ...limits.map(({ value }) => value), 1),
];
// Of an energy counter: a board that rests still gets an axis whose ticks differ.
const LEAST_SPAN_J = 36_000;
/** @type {ChartRange} */
function fitting(low, high) {
  const room = Math.max(0.05 * (high - low), (LEAST_SPAN_J - (high - low)) / 2);
  return [Math.max(0, (low ?? 0) - room), (high ?? 0) + room];
}

/** @type {ChartRange} */
function warmth(low, high, limits) {
  const top = Math.max(
    high ?? 0,
    ...limits.filter(({ isFar }) => !isFar).map(({ value }) => value),
    60,
  );
  return [Math.min(20, low ?? 20), top + 4];
}

/** @type {OnePlan[]} */
const ONE = [
  {
    title: "Utilization",
    keys: ["util_pct", "util_max_pct", "sm_active_pct", "mem_util_pct"],
    range: percent,
  },
  {
    title: "Memory used",
    keys: ["mem_used_bytes"],
    range: fromZero,
    limits: [["mem_total_bytes", "capacity"]],
  },
  {
    title: "Power",
    keys: ["power_w", "power_max_w"],
    range: fromZero,
    limits: [["power_limit_w", "limit"]],
    bands: "power",
  },
  {
    title: "Temperature",
    keys: ["temp_c", "mem_temp_c"],
    range: warmth,
    limits: [
      ["temp_slowdown_c", "throttles at"],
      ["temp_shutdown_c", "shuts down at", true],
    ],
    bands: "heat",
  },
  {
    title: "Clocks",
    keys: ["sm_clock_mhz", "mem_clock_mhz"],
    range: fromZero,
    limits: [["sm_clock_max_mhz", "maximum SM clock"]],
    bands: "any",
  },
  { title: "PCIe", keys: ["pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"], range: fromZero },
  { title: "Fan", keys: ["fan_pct"], range: (low, high) => [0, Math.max(100, high ?? 0)] },
  { title: "Energy", keys: ["energy_j"], range: fitting },
];
const RANGES = new Map(ONE.flatMap(({ keys, range }) => keys.map((key) => [key, range])));
const LIMITS = new Map(
  ONE.flatMap(({ keys, limits }) => (limits === undefined ? [] : [[keys[0], limits]])),
);

const GIB = [0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000].map((gib) => gib * 2 ** 30);
/** @type {(powers: number) => number[]} */
const decimal = (powers) =>
  Array.from({ length: powers }, (_, power) =>
    [1, 2, 5].map((digit) => digit * 10 ** power),
  ).flat();
const KWH = decimal(9).map((wh) => wh * 3_600); // the counters of a node's boards are far apart
const PER_S = decimal(13);
// What the axis is counted in, beside the title; and its steps, where they are not decimal.
/** @type {Record<string, [string, number, number[]?]>} */
const UNITS = {
  "%": ["%", 1],
  "W": ["W", 1],
  "°C": ["°C", 1],
  "MHz": ["MHz", 1],
  "B": ["GiB", 2 ** 30, GIB],
  "J": ["kWh", 3.6e6, KWH],
  "B/s": ["", 1, PER_S],
};

/**
 * Formats the y axis: ticks that differ read differently.
 * @type {(metric: Metric, reasons: ThrottleReasons) => ChartAxis}
 */
function axisOf(metric, reasons) {
  const [unit, size, increments] = UNITS[metric.unit] ?? ["", 1];
  /** @type {(step: number) => number} */
  const digits = (step) => Math.min(4, Math.max(0, -Math.floor(Math.log10(step / size))));
  const words = wordsOf(metric, reasons);
  return {
    unit,
    increments,
    format: unit === "" ? words : (value, step) => (value / size).toFixed(digits(step)),
  };
}

// What a rule reads and no chart draws is seen in these.
/** @type {Record<string, string>} */
const SEEN_IN = {
  temp_margin_c: "temp_c",
  busy_pct: "util_pct",
  gpu_mem_share: "mem_used_bytes",
  mem_share: "mem_used_bytes",
  mem_unseen_bytes: "mem_used_bytes",
  slowed_power_pct: "power_w",
  slowed_brake_pct: "power_w",
  slowed_soft_thermal_pct: "temp_c",
  slowed_hard_thermal_pct: "temp_c",
};

/**
 * The metrics that the signal of a rule is about, as charts have them.
 * @type {(signal: string) => Set<string>}
 */
export const metricsOf = (signal) =>
  new Set((signal.match(/\b[a-z]\w*/g) ?? []).map((word) => SEEN_IN[word] ?? word));

/**
 * Returns the shortest labels that distinguish the GPUs.
 * @type {(gpus: Hub.GpuView[]) => Map<string, ChartLabel>}
 */
export function labelsOf(gpus) {
  const hosts = new Set(gpus.map((gpu) => gpu.host));
  return new Map(
    gpus.map((gpu) => [
      gpu.uuid,
      hosts.size > 1
        ? { label: `${gpu.host}:${gpu.place}` }
        : { label: `GPU ${gpu.place}`, short: gpu.place },
    ]),
  );
}

/**
 * [{id, title, meaning, range, limits, bands, rows: [{uuid, key, label}]}] for these GPUs.
 * @type {(gpus: Hub.GpuView[], book: MetricBook, labelOf: (gpu: Hub.GpuView) => ChartLabel) =>
 *   ChartPlan[]}
 */
export function chartsOf(gpus, book, labelOf) {
  return gpus.length === 1 ? ofOne(gpus[0], book) : ofMany(gpus, book, labelOf);
}

/** @type {(gpu: Hub.GpuView, book: MetricBook) => ChartPlan[]} */
function ofOne(gpu, book) {
  return ONE.map((plan) => ({ ...plan, keys: plan.keys.filter((key) => !isNever(gpu, key)) }))
    .filter(({ keys }) => keys.length > 0)
    .map(({ title, keys, range, limits, bands }) => ({
      id: keys[0],
      title,
      range,
      bands,
      metric: metricOf(book, keys[0]),
      meaning:
        keys.length === 1
          ? metricOf(book, keys[0]).meaning
          : keys
              .map((key) => `${metricOf(book, key).label}: ${metricOf(book, key).meaning}`)
              .join("\n"),
      limits: limitsOf([gpu], limits ?? []),
      hasLimits: limits !== undefined,
      ...axisOf(metricOf(book, keys[0]), book.reasons),
      rows: keys.map((key) => ({
        uuid: gpu.uuid,
        key,
        label: metricOf(book, key).label,
        meaning: metricOf(book, key).meaning,
      })),
    }));
}

/**
 * @type {(gpus: Hub.GpuView[], book: MetricBook, labelOf: (gpu: Hub.GpuView) => ChartLabel) =>
 *   ChartPlan[]}
 */
function ofMany(gpus, book, labelOf) {
  return [...book.metrics.values()]
    .filter(({ key }) => RANGES.has(key))
    .map((metric) => ({
      id: metric.key,
      title: metric.label,
      meaning: metric.meaning,
      range: RANGES.get(metric.key) ?? fromZero,
      metric,
      ...axisOf(metric, book.reasons),
      bands: null,
      limits: limitsOf(gpus, LIMITS.get(metric.key) ?? []),
      hasLimits: LIMITS.has(metric.key),
      rows: gpus
        .filter((gpu) => !isNever(gpu, metric.key))
        .map((gpu) => ({ uuid: gpu.uuid, key: metric.key, ...labelOf(gpu) })),
    }))
    .filter(({ rows }) => rows.length > 0);
}

/** @type {(gpu: Hub.GpuView, key: string) => boolean} */
const isNever = (gpu, key) => ["unsupported", "denied"].includes(gpu.missing[key]);

/**
 * The metrics that these GPUs never report, by reason.
 * @type {(gpus: Hub.GpuView[], book: MetricBook) => Record<"unsupported" | "denied", Metric[]>}
 */
export function neverOf(gpus, book) {
  const metrics = book.columns.map((key) => metricOf(book, key));
  const never = (/** @type {string} */ reason) =>
    metrics.filter(
      ({ key }) => gpus.length > 0 && gpus.every(({ missing }) => missing[key] === reason),
    );
  return { unsupported: never("unsupported"), denied: never("denied") };
}

/**
 * A limit is drawn where all have the same.
 * @type {(gpus: Hub.GpuView[], limits: LimitFact[]) => ChartLimit[]}
 */
function limitsOf(gpus, limits) {
  return limits.flatMap(([fact, label, isFar]) => {
    // What was set since is read as a value.
    const values = new Set(
      gpus.map(
        (gpu) => gpu.values[fact] ?? /** @type {Record<string, any>} */ (gpu.facts)[fact] ?? null,
      ),
    );
    const [value] = values;
    return values.size === 1 && value !== null ? [{ label, value, isFar: isFar === true }] : [];
  });
}

// Bits of metrics.THROTTLE_REASONS.
const POWER = 0x4 + 0x80;
const HEAT = 0x8 + 0x20 + 0x40;

/**
 * Returns the spans in which the GPU was throttled: [{from, to, kind}].
 * @type {(track: Track, wanted: BandKind | "any") => Band[]}
 */
export function bandsOf(track, wanted) {
  const bits = track.values.get("throttle_bits");
  /** @type {Band[]} */
  const bands = [];
  track.t.forEach((time, at) => {
    const kind = kindOf(bits?.[at], wanted);
    const last = bands.at(-1);
    const before = at === 0 ? null : track.t[at - 1];
    if (kind === null) return;
    if (last !== undefined && last.kind === kind && last.to === before) last.to = time;
    else
      bands.push({
        from: before === null || time - before > 3 ? time - 1 : before,
        to: time,
        kind,
      });
  });
  return bands;
}

/** @type {(bits: number | null | undefined, wanted: BandKind | "any") => BandKind | null} */
function kindOf(bits, wanted) {
  if (bits === null || bits === undefined) return null;
  if ((bits & HEAT) !== 0 && wanted !== "power") return "heat";
  return (bits & POWER) !== 0 && wanted !== "heat" ? "power" : null;
}

/** @type {(values: number[]) => number} */
const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
/** @type {(values: number[]) => number} */
const total = (values) => values.reduce((sum, value) => sum + value, 0);
/** @type {Record<string, [string, (values: number[]) => number]>} */
const TOGETHER = {
  "%": ["average", average],
  "MHz": ["average", average],
  "°C": ["highest", (values) => Math.max(...values)],
};

/**
 * Sums a metric over several GPUs: "total 468 GiB", "highest 64 °C".
 * @type {(metric: Metric, reasons: ThrottleReasons) => (values: number[]) => string}
 */
export function togetherOf(metric, reasons) {
  const [word, sum] = TOGETHER[metric.unit] ?? ["total", total];
  const words = wordsOf(metric, reasons);
  return (values) => `${word} ${words(sum(values))}`;
}

/** @type {(metric: Metric, reasons: ThrottleReasons) => (value: number) => string} */
export const wordsOf = (metric, reasons) => (value) => oneWord(valueOf(metric, value, reasons));
