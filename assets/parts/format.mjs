// Numbers for people: fixed digits, so that a column does not dance.

// toLocaleString makes such a format again each time: 20 µs, for each of a thousand cells.
const FORMATS = [0, 1, 2].map(
  (digits) =>
    new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }),
);

/** @type {(value: number, digits?: number) => string} */
export function amount(value, digits = 0) {
  if (digits === 0 && Math.abs(value) < 999.5) return String(Math.round(value) + 0);
  return FORMATS[digits].format(value);
}

/** @type {(bytes: number) => Quantity} */
export function gibibytes(bytes) {
  const inGib = bytes / 2 ** 30;
  if (inGib > 0 && inGib < 0.1)
    return { text: bytes < 2 ** 20 ? "<1" : amount(bytes / 2 ** 20), unit: "MiB" };
  return inGib >= 10_240
    ? { text: amount(inGib / 1024, 1), unit: "TiB" }
    : { text: amount(inGib, inGib < 100 ? 1 : 0), unit: "GiB" };
}

/**
 * {text, unit} as one.
 * @type {(quantity: Quantity) => string}
 */
export const oneWord = ({ text, unit }) => `${text} ${unit}`.trim();

/** @type {(bytes: number | null | undefined, unknown?: string) => string} */
export const bytesWords = (bytes, unknown = "–") =>
  bytes === null || bytes === undefined ? unknown : oneWord(gibibytes(bytes));

/** @type {(value: number) => Quantity} */
export function watts(value) {
  if (value >= 10_000_000) return { text: amount(value / 1e6, 1), unit: "MW" };
  return value >= 10_000
    ? { text: amount(value / 1000, 1), unit: "kW" }
    : { text: amount(value), unit: "W" };
}

/** @type {(value: number) => Quantity} */
export function perSecond(value) {
  const units = ["B/s", "kB/s", "MB/s", "GB/s"];
  const at = value < 1 ? 0 : Math.min(3, Math.floor(Math.log10(value) / 3));
  return {
    text: amount(value / 1000 ** at, at === 0 || value / 1000 ** at >= 100 ? 0 : 1),
    unit: units[at],
  };
}

/** @type {(joules: number) => Quantity} */
function energy(joules) {
  return joules >= 3.6e6
    ? { text: amount(joules / 3.6e6, 1), unit: "kWh" }
    : { text: amount(joules / 3600, 1), unit: "Wh" };
}

// A share above nothing is never rounded down to nothing.
/** @type {(value: number) => Quantity} */
function percent(value) {
  if (value > 0 && value < 0.5) return { text: "<1", unit: "%" };
  return { text: amount(value), unit: "%" };
}

/** @type {Record<string, ((value: number) => Quantity) | undefined>} */
const BY_UNIT = { "%": percent, "B": gibibytes, "W": watts, "J": energy, "B/s": perSecond };

/**
 * {text, unit} of an exact value of a metric, as the API gives it.
 * @type {(metric: Metric, value: number, throttleReasons: ThrottleReasons) => Quantity}
 */
export function valueOf(metric, value, throttleReasons) {
  if (metric.key === "throttle_bits")
    return { text: throttleWords(value, throttleReasons), unit: "" };
  if (metric.key === "pstate") return { text: `P${value}`, unit: "" };
  return plainValue(metric, value);
}

/** @type {(metric: Metric, value: number) => Quantity} */
function plainValue(metric, value) {
  if (metric.words) return { text: metric.words[value] ?? `code ${value}`, unit: "" };
  return BY_UNIT[metric.unit]?.(value) ?? { text: amount(value), unit: metric.unit };
}

/**
 * The same for a heatmap cell: short, and memory in percent of the board.
 * @type {(metric: Metric, value: number, throttleReasons: ThrottleReasons) => Quantity}
 */
export function cellOf(metric, value, throttleReasons) {
  if (metric.key === "mem_used_bytes") return percent(value);
  if (metric.key === "throttle_bits")
    return { text: throttleShort(value, throttleReasons), unit: "" };
  const { text, unit } = plainValue(metric, value);
  return { text: metric.words ? text.split(":")[0] : text, unit };
}

/** @type {(bits: number, reasons: ThrottleReasons) => string} */
function throttleWords(bits, reasons) {
  return reasonsIn(bits, reasons).join(", ") || "none";
}

/** @type {(bits: number, reasons: ThrottleReasons) => string[]} */
const reasonsIn = (bits, reasons) =>
  reasons.filter(([bit]) => Math.floor(bits / bit) % 2 === 1).map(([, name]) => name);

/** @type {Record<string, string | undefined>} */
const SHORT = {
  "idle": "idle",
  "application clocks": "app",
  "software power cap": "power",
  "hardware slowdown": "slow",
  "sync boost": "sync",
  "software thermal slowdown": "heat",
  "hardware thermal slowdown": "HEAT",
  "hardware power brake": "brake",
  "display clocks": "disp",
};

/** @type {(bits: number, reasons: ThrottleReasons) => string} */
function throttleShort(bits, reasons) {
  const last = reasonsIn(bits, reasons).at(-1);
  return last === undefined ? "none" : (SHORT[last] ?? last);
}

/** @type {(seconds: number | null | undefined) => string} */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return "never";
  if (seconds < 10) return `${amount(Math.max(0, seconds), 1)} s`;
  if (seconds < 120) return `${amount(seconds)} s`;
  if (seconds < 7200) return `${amount(seconds / 60)} min`;
  return seconds < 172_800 ? `${amount(seconds / 3600)} h` : `${amount(seconds / 86_400)} d`;
}

/** @type {(when: number | string | null | undefined, now?: number) => number | null} */
export function secondsSince(when, now = Date.now() / 1000) {
  if (when === null || when === undefined) return null;
  return now - (typeof when === "number" ? when : Date.parse(when) / 1000);
}

/** @type {(text: string) => string} */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** @type {(count: number, one: string, many?: string) => string} */
export const plural = (count, one, many = `${one}s`) =>
  `${amount(count)} ${count === 1 ? one : many}`;

/**
 * Three letters for each month, as in what the hub writes: September alone has four here.
 * @type {(form: Intl.DateTimeFormat, date: Date) => string}
 */
const inLetters = (form, date) => form.format(date).replace("Sept", "Sep");

const MOMENT = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

/** @type {(seconds: number) => string} */
export const moment = (seconds) => inLetters(MOMENT, new Date(seconds * 1000));

/**
 * "3 min ago", "in 6 d"; the date itself belongs into the tooltip.
 * @type {(seconds: number | null | undefined, never?: string, now?: number) => string}
 */
export function when(seconds, never = "never", now = Date.now() / 1000) {
  if (seconds === null || seconds === undefined) return never;
  const away = seconds - now;
  if (Math.abs(away) < 5) return "just now";
  return away > 0 ? `in ${age(Math.max(10, away))}` : `${age(Math.max(10, -away))} ago`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });

const MINUTE = new Intl.DateTimeFormat("en-GB", { timeStyle: "short" });

/**
 * "14:00"; of another day "Thu 26 Nov, 14:00".
 * @type {(at: number) => string}
 */
export function untilWords(at) {
  const date = new Date(at * 1000);
  return `${date.toDateString() === new Date().toDateString() ? "" : `${inLetters(DAY, date)}, `}${MINUTE.format(date)}`;
}

/**
 * "12:03:20"; of another day with its date.
 * @type {(at: number) => string}
 */
export function clock(at) {
  const date = new Date(at * 1000);
  const day = date.toDateString() === new Date().toDateString() ? "" : `${inLetters(DAY, date)} `;
  return `${day}${CLOCK.format(date)}`;
}
