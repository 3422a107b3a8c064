// What a holder had of a quota over the last day or week, beside what it gave then.

import { look } from "../parts/api.mjs";
import { sentence, tell } from "../parts/dialog.mjs";
import { make } from "../parts/dom.mjs";
import { moment } from "../parts/format.mjs";
import { LIMITS } from "./quota_bars.mjs";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, FOOT] = [640, 180, 20];
const SPANS = [["3h", "3 hours"], ["24h", "24 hours"], ["7d", "7 days"]];
const FIRST = 1;
const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric" });

/** `one`: as the API gives a balance. */
export function openPast(one) {
  const place = make("div", { class: "quota-past" }, make("p", {}, "Loading …"));
  const choices = SPANS.map(([last, words]) => make("button", { type: "button", class: "button small", "aria-pressed": "false", onclick: () => draw(last) }, words));
  const links = one.users.length === 1 && one.users[0] === one.holder ? [make("a", { href: `/history?${new URLSearchParams({ owner: `user:${one.holder}`, last: "24h" })}` }, `Total usage of ${one.holder}`)] : [];
  tell(`${one.holder}: ${LIMITS[one.limit].name} of ${one.quota}`, make("p", { class: "quota-past-now" }, `${one.sentence}.`),
    make("div", { class: "quota-spans", role: "group", "aria-label": "How far back" }, ...choices, ...links), place).classList.add("wide");
  let wanted = null;
  async function draw(last) {
    wanted = last;
    SPANS.forEach(([each], at) => choices[at].setAttribute("aria-pressed", String(each === last)));
    const query = new URLSearchParams({ holder: one.holder, limit: one.limit, last });
    const answer = await look(`quotas/${encodeURIComponent(one.quota)}/past?${query}`).catch((error) => ({ why: error.message }));
    if (wanted === last) place.replaceChildren(...(answer.why ? [make("p", {}, sentence(answer.why))] : [figure(answer, one.most), make("p", {}, summary(answer, one.most))]));
  }
  draw(SPANS[FIRST][0]);
}

/** `now`: what it gives now; where it gave nothing then, that is shown instead, and said to be so. */
function figure(past, now) {
  const { t, used, most, limit } = past;
  const { words } = LIMITS[limit];
  const highest = Math.max(...used.map((each) => each ?? 0));
  const top = Math.max(1e-9, now, highest, ...most.map((each) => each ?? 0)) * 1.12;
  const [x, y] = [(at) => (at / t.length) * WIDTH, (amount) => (HEIGHT - FOOT) * (1 - amount / top)];
  const svg = node("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": summary(past, now) });
  t.forEach((from, at) => {
    if (used[at] === null) return;
    const gave = most[at] ?? now;
    const bar = node("g", {}, node("title", {}, `${moment(from)}: ${words(used[at])} of ${words(gave)} ${LIMITS[limit].name}${most[at] === null ? " (quota not set yet)" : ""}`), node("rect", { class: "hit", x: x(at), y: 0, width: x(1), height: HEIGHT - FOOT }));
    const within = Math.min(used[at], gave);
    bar.append(node("rect", { class: "used", x: x(at), y: y(within), width: x(1), height: HEIGHT - FOOT - y(within) }));
    if (used[at] > gave) bar.append(node("rect", { class: most[at] === null ? "would" : "over", x: x(at), y: y(used[at]), width: x(1), height: y(gave) - y(used[at]) }));
    svg.append(bar);
  });
  svg.append(node("path", { class: "today", d: `M0,${y(now)}L${WIDTH},${y(now)}` }), node("path", { class: "most", d: limitPath(most, x, y) }),
    node("text", { x: 2, y: y(now) - 4 }, `${words(now)} ${LIMITS[limit].name}`), ...ticks(t, x));
  return svg;
}

/** Level as long as it gave the same; open where it gave nothing. */
function limitPath(most, x, y) {
  return most.map((gave, at) => (gave === null ? "" : `${at === 0 || most[at - 1] === null ? "M" : "L"}${x(at)},${y(gave)}L${x(at + 1)},${y(gave)}`)).join("");
}

function ticks(t, x) {
  const isLong = t.at(-1) - t[0] > 2 * 86_400;
  return [0, 0.25, 0.5, 0.75].map((share) => {
    const at = Math.round(share * t.length);
    return node("text", { x: x(at), y: HEIGHT - 5 }, (isLong ? DAY : TIME).format(new Date(t[at] * 1000)));
  });
}

function summary({ t, used, most, step_s: step, limit }, now) {
  const { words, name } = LIMITS[limit];
  const known = t.map((_, at) => at).filter((at) => used[at] !== null);
  if (known.length === 0) return "No data for this time.";
  const highest = known.reduce((best, at) => (used[at] > used[best] ? at : best));
  const set = known.filter((at) => most[at] !== null);
  const over = set.filter((at) => used[at] > most[at]).length;
  const would = known.filter((at) => most[at] === null && used[at] > now).length;
  return [
    set.length === 0 ? null : over === 0 ? "Never over since the quota was set." : `Over for ${span(over * step)} of ${span(set.length * step)}.`,
    set.length === known.length ? null : `Before the quota was set: would have been over for ${span(would * step)} of ${span((known.length - set.length) * step)}.`,
    `Most: ${words(used[highest])} ${name}, ${moment(t[highest])}.`,
    limit === "gpu_hours" ? "Each hour shows the usage at its end." : `Averages over ${span(step)}.`,
    known.length < t.length ? "Gaps: no data." : null].filter(Boolean).join(" ");
}

const span = (seconds) => (seconds < 60 ? `${seconds} s` : seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 360) / 10} h`);

function node(tag, traits = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(traits)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
