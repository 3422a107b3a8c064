// Use against a limit: as a bar and in words.

import { make } from "../assets/parts/dom.mjs";
import { amount, bytesWords } from "../assets/parts/format.mjs";

/** @type {(number: number) => string} */
const short = (number) =>
  number > 0 && number < 1
    ? String(Number(number.toPrecision(2)))
    : amount(number, Number.isInteger(number) ? 0 : 1);

/** @type {Record<Hub.NodeQuotaHolderView["limit"], { name: string, words: (value: number) => string }>} */
export const LIMITS = {
  gpus: { name: "GPUs", words: short },
  mem_bytes: { name: "memory", words: (bytes) => bytesWords(bytes) },
  gpu_hours: { name: "GPU-hours", words: short },
  max_age_s: {
    name: "age",
    words: (seconds) =>
      seconds >= 7_200 ? `${short(seconds / 3_600)} h` : `${short(Math.round(seconds / 60))} min`,
  },
};

/** @type {(usage: QuotaUsage) => HTMLElement} */
export function barOf(one) {
  const top = Math.max(one.used, one.most) || 1;
  const bar = make(
    "div",
    {
      "class": `quota-bar${one.is_over ? " over" : ""}`,
      "title": one.sentence,
      "role": "meter",
      "aria-label": `${one.holder}, ${LIMITS[one.limit].name}`,
      "aria-valuemin": "0",
      "aria-valuemax": String(top),
      "aria-valuenow": String(one.used),
      "aria-valuetext": one.sentence,
    },
    make("i", {}),
    one.is_over ? make("u", {}) : null,
    make("b", {}),
  );
  bar.style.setProperty("--used", `${(Math.min(one.used, one.most) / top) * 100}%`);
  bar.style.setProperty("--most", `calc(${(one.most / top) * 100}% - 2px)`);
  return bar;
}

/** @type {(usage: QuotaUsage) => string} */
export function useWords(one) {
  const { name, words } = LIMITS[one.limit];
  return `${one.is_whole ? "" : "≥ "}${words(one.used)} of ${words(one.most)} ${name}`;
}
