// The week ahead: each node's GPUs by the hour, who holds them and who has reserved them. A drag over
// free hours reserves them, with a finger after it has rested a moment; so does a node's name.

import { Lines, byId, keepFocus, make, redraw, say, show } from "../parts/dom.mjs";
import { age, amount, moment, plural } from "../parts/format.mjs";
import { HOUR_S, nowS } from "../parts/time_ranges.mjs";
import { askForGpus } from "./lease_acts.mjs";
import { byHost, isReserved, leasedWords, runsOf, spansOf, stackedLanes, weekOf } from "./pool_model.mjs";

const MOST_NODES = 128;
const USUAL_HOURS = 8;
const ANY = "any node";
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric" });
const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long" });
const TIME = new Intl.DateTimeFormat("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });
const GPU_LANE = 22;
const NODE_LANE = 14; // the least that has room for a name
const CLAIM_LANE = 20;
// Below this height a bar has no room for words; of a share of a GPU.
const WORDS_FROM = 12;
const LETTER_PX = 6.6, PADDING_PX = 14;
// A finger that moves sooner scrolls.
const REST_MS = 350, REST_PX = 8;

export class Week {
  constructor(page) {
    Object.assign(this, { page, offset: 0, rowsBy: byId("pool-calendar").dataset.rows, drag: null });
    this.days = make("div", { class: "calendar-days" });
    this.list = make("ul", { class: "calendar-rows" });
    this.now = make("i", { class: "calendar-now", "aria-hidden": "true" });
    this.more = make("p", { class: "pool-more" });
    this.inner = make("div", { class: "calendar-inner" }, make("div", { class: "calendar-head" }, make("span", {}), this.days), this.list, this.now);
    byId("pool-calendar").append(this.inner);
    byId("pool-calendar").after(this.more);
    this.rows = new Lines(this.list, ({ node }) => node, (node) => this.row(node));
    byId("pool-before").addEventListener("click", () => this.turn(-1));
    byId("pool-after").addEventListener("click", () => this.turn(1));
    byId("pool-today").addEventListener("click", () => this.turn(-this.offset));
    for (const choice of byId("pool-rows").children) choice.addEventListener("click", () => { this.rowsBy = choice.dataset.rows; this.draw(); });
    this.list.addEventListener("pointerdown", (event) => this.press(event));
    this.list.addEventListener("click", (event) => this.tap(event));
    this.list.addEventListener("contextmenu", (event) => { if (this.drag !== null) event.preventDefault(); });
    // Without this the browser takes a finger that drags for one that scrolls.
    this.list.addEventListener("touchmove", (event) => { if (this.drag !== null && event.cancelable) event.preventDefault(); }, { passive: false });
    this.list.addEventListener("keydown", (event) => this.onKey(event));
  }

  get mayAsk() {
    return this.page.may("user") && this.page.pool.is_on;
  }

  turn(weeks) {
    this.offset = Math.max(0, this.offset + weeks);
    this.draw();
  }

  draw() {
    const { leases, claims, nodes } = this.page;
    const now = nowS();
    const midnights = weekOf(this.offset, now);
    [this.start, this.end] = [midnights[0], midnights.at(-1)];
    say(byId("pool-week"), `${DATE.format(this.start * 1000)} – ${DATE.format(midnights[6] * 1000)}`);
    byId("pool-before").disabled = byId("pool-today").disabled = this.offset === 0;
    for (const choice of byId("pool-rows").children) choice.setAttribute("aria-pressed", String(choice.dataset.rows === this.rowsBy));
    redraw(this.days, [midnights, this.offset], () => midnights.slice(0, 7).map((from, at) => make("span", { class: at === 0 && this.offset === 0 ? "today" : null, style: this.place(from, midnights[at + 1]) }, DAY.format(from * 1000))));
    show(byId("pool-how"), this.mayAsk && nodes.length > 0);
    show(this.now, this.offset === 0);
    this.inner.style.setProperty("--now", (now - this.start) / (this.end - this.start));
    const reserved = claims.filter((claim) => isReserved(claim, now)).sort((a, b) => a.starts_at - b.starts_at);
    const [fixed, open] = [reserved.filter(({ hosts }) => hosts.length === 1), reserved.filter(({ hosts }) => hosts.length !== 1)];
    const { isFound } = this.page.tables;
    const found = nodes.filter(({ node, host }) => isFound(host.toLowerCase()) || leases.some((lease) => lease.node === node && isFound(lease.owner.toLowerCase()))).sort(byHost);
    const shown = found.slice(0, MOST_NODES).map(({ node, host, gpus }) => ({ node, host, gpus,
      spans: spansOf({ host, gpus }, leases.filter((lease) => lease.node === node), fixed.filter(({ hosts }) => hosts[0] === host), now) }));
    const loose = stackedLanes(open);
    if (loose.length > 0) shown.unshift({ node: ANY, host: ANY, gpus: loose.map(() => ({ place: "" })), spans: loose });
    say(this.more, found.length > MOST_NODES ? `The first ${MOST_NODES} of ${amount(found.length)} nodes. Use the search above.` : "");
    this.rows.draw(shown);
  }

  place(from, to) {
    const share = (at) => Math.min(1, Math.max(0, (at - this.start) / (this.end - this.start)));
    return `left: ${(100 * share(from)).toFixed(3)}%; width: ${(100 * (share(to) - share(from))).toFixed(3)}%`;
  }

  row({ node, host }) {
    const [name, track] = [make("div", { class: "calendar-name" }), make("div", { class: "calendar-track" })];
    const bars = track.appendChild(make("div", { class: "calendar-bars" }));
    const root = make("li", { class: "calendar-row", "data-host": host }, name, track);
    return { root, draw: (row) => this.drawRow(row, { root, name, bars }, node) };
  }

  drawRow({ host, gpus, spans }, { root, name, bars }, node) {
    const isAny = node === ANY;
    const lanes = isAny ? Math.max(1, ...spans.map((span) => span.lanes[0] + 1)) : gpus.length;
    const lane = isAny ? CLAIM_LANE : this.rowsBy === "gpu" ? GPU_LANE : Math.max(NODE_LANE, Math.floor(48 / lanes));
    const height = Math.max(28, lane * lanes);
    root.style.setProperty("--height", `${height}px`);
    root.style.setProperty("--lane", `${lane}px`);
    const words = isAny ? "Any node" : host;
    keepFocus(name, () => redraw(name, [words, this.mayAsk, this.rowsBy, gpus.map(({ place }) => place)], () => [
      this.mayAsk && !isAny ? make("button", { type: "button", class: "as-link", title: `Reserve GPUs of ${host} …`, "aria-label": `Reserve GPUs of ${host}`, onclick: () => askForGpus(this.page, this.wanted(host, nextHour(), USUAL_HOURS)) }, words) : make("strong", {}, words),
      this.rowsBy === "gpu" && !isAny ? make("ol", {}, ...gpus.map(({ place }) => make("li", {}, `GPU ${place}`))) : make("small", {}, isAny ? "" : plural(gpus.length, "GPU"))]));
    const drawn = spans.filter(({ from, to }) => to > this.start && from < this.end).map((span) => ({ ...span, words: this.words(span), style: this.place(span.from, span.to) }));
    const px = Math.round(this.trackPx);
    const look = drawn.map(({ item, kind, lanes: on, words: said, style, share, at }) => [item.id, kind, on, said, style, share, at]);
    keepFocus(bars, () => redraw(bars, [look, lane, this.offset, px], () => drawn.flatMap((span) => this.bars(span, lane, this.roomBeside(span, drawn)))));
    // One tab stop for a node; arrows lead on.
    [...bars.children].forEach((bar, at) => { bar.tabIndex = at === 0 ? 0 : -1; });
  }

  words({ item, kind, from, to }) {
    const what = kind === "lease" ? leasedWords(item, this.page.gpus) : item.asks;
    const late = kind === "lease" && item.until < nowS() ? `, overdue since ${moment(item.until)}` : "";
    return `${item.owner}: ${what}, ${kind === "lease" ? "" : "reserved "}${TIME.format(from * 1000)} to ${TIME.format(to * 1000)}${late}`;
  }

  get trackPx() {
    return this.days.clientWidth;
  }

  pxOf(seconds) {
    return (seconds / (this.end - this.start)) * this.trackPx;
  }

  /** Of a bar that is too short for its name: whether it has room for it to its right. */
  roomBeside({ item, from, to, lanes }, drawn) {
    const needed = item.owner.length * LETTER_PX + PADDING_PX;
    const [begin, end] = [Math.max(from, this.start), Math.min(to, this.end)];
    if (this.pxOf(end - begin) >= needed) return false;
    const next = drawn.filter((other) => other.item !== item && other.to > end && other.lanes.some((lane) => lanes.includes(lane)))
      .map((other) => Math.max(other.from, end));
    return this.pxOf(Math.min(this.end, ...next) - end) >= needed;
  }

  bars({ item, kind, lanes, words, style, share, at }, lane, isBeside) {
    const isLate = kind === "lease" && item.until < nowS();
    return runsOf(lanes).map(([first, count]) => {
      const high = Math.max(3, lane * count * (share < 1 ? share : 1) - 1);
      const top = lane * first + (share < 1 ? at * lane : 0);
      const names = ["calendar-bar", kind, this.page.isMine(item.owner) ? "mine" : "", isLate ? "late" : "", isBeside ? "beside" : ""].filter(Boolean).join(" ");
      return make("button", { type: "button", class: names, style: `${style}; top: ${top}px; height: ${high}px`, title: words, "aria-label": words, "data-id": `${item.id} ${first}`, onclick: () => this.page.tables.open(this.newest(item)) },
        high >= WORDS_FROM ? make("span", {}, item.owner) : null);
    });
  }

  /** As it is known now. */
  newest(item) {
    return [...this.page.leases, ...this.page.claims].find(({ id }) => id === item.id) ?? item;
  }

  onKey(event) {
    const bar = event.target.closest(".calendar-bar");
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (bar === null || step === undefined) return;
    event.preventDefault();
    const bars = [...bar.parentNode.children].sort((a, b) => a.offsetLeft - b.offsetLeft || a.offsetTop - b.offsetTop);
    const next = bars[bars.indexOf(bar) + step];
    if (next === undefined) return;
    bars.forEach((one) => { one.tabIndex = one === next ? 0 : -1; });
    next.focus();
  }

  // A drag

  hourAt(track, x) {
    const { left, width } = track.getBoundingClientRect();
    const at = this.start + ((x - left) / width) * (this.end - this.start);
    return Math.min(this.end, Math.max(this.start, at));
  }

  /** Whole hours that a drag from one moment to another means. */
  hours(one, other) {
    const [from, to] = [Math.min(one, other), Math.max(one, other)];
    return { from: Math.floor(from / HOUR_S) * HOUR_S, to: Math.max(Math.ceil(to / HOUR_S), Math.floor(from / HOUR_S) + 1) * HOUR_S };
  }

  press(event) {
    const track = event.target.closest(".calendar-track");
    if (track === null || event.button !== 0 || event.target.closest(".calendar-bar") !== null || !this.mayAsk) return;
    if (event.pointerType === "touch") this.rest(track, event);
    else this.dragFrom(track, event);
  }

  /** A finger that stays where it is for a moment begins a drag; one that moves or leaves does not. */
  rest(track, { clientX, clientY, pointerId }) {
    const leave = () => {
      clearTimeout(timer);
      for (const [name, does] of Object.entries(listeners)) removeEventListener(name, does, true);
    };
    const move = (event) => { if (Math.hypot(event.clientX - clientX, event.clientY - clientY) > REST_PX) leave(); };
    const listeners = { pointermove: move, pointerup: leave, pointercancel: leave };
    const timer = setTimeout(() => { leave(); this.dragFrom(track, { clientX, pointerId, preventDefault() {} }); }, REST_MS);
    for (const [name, does] of Object.entries(listeners)) addEventListener(name, does, true);
  }

  dragFrom(track, event) {
    event.preventDefault();
    this.drag = track;
    const mark = track.appendChild(make("div", { class: "calendar-drag" }));
    const began = this.hourAt(track, event.clientX);
    let span = null;
    const move = ({ clientX }) => {
      span = this.hours(began, this.hourAt(track, clientX));
      mark.style.cssText = this.place(span.from, span.to);
      say(mark, `${TIME.format(span.from * 1000)}, ${age(span.to - span.from)}`);
    };
    const end = (isTaken) => {
      for (const [name, does] of Object.entries(listeners)) removeEventListener(name, does, true);
      mark.remove();
      // The click that follows is of the same press.
      setTimeout(() => { this.drag = null; });
      if (isTaken && span.to > nowS()) this.reserve(track, span);
    };
    const listeners = { pointermove: move, pointerup: () => end(true), pointercancel: () => end(false), keydown: ({ key }) => { if (key === "Escape") end(false); } };
    for (const [name, does] of Object.entries(listeners)) addEventListener(name, does, true);
    move(event);
  }

  /** A finger scrolls; a tap means the hour under it. */
  tap(event) {
    const track = event.target.closest(".calendar-track");
    if (this.drag !== null || track === null || event.pointerType !== "touch" || event.target.closest(".calendar-bar") !== null || !this.mayAsk) return;
    const at = this.hourAt(track, event.clientX);
    const { from } = this.hours(at, at);
    if (from + HOUR_S > nowS()) this.reserve(track, { from, to: from + USUAL_HOURS * HOUR_S });
  }

  reserve(track, { from, to }) {
    const { host } = track.parentNode.dataset;
    // A press without a drag is of one hour, which is seldom meant.
    askForGpus(this.page, this.wanted(host === ANY ? "" : host, from, Math.round((to - Math.max(from, nowS())) / HOUR_S) || 1));
  }

  wanted(host, from, hours) {
    return { host, startsAt: from > nowS() ? from : null, term: hours % 24 === 0 ? `${hours / 24}d` : `${hours}h` };
  }
}

const nextHour = () => (Math.floor(nowS() / HOUR_S) + 1) * HOUR_S;
