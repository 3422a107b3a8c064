// Reservations by hand on the Pool's week: a drag over free hours reserves them, with a finger after it has rested a
// moment; so does a node's name. All else of the page is dashboard/pages/pool.py.

/** @import { CommandStore } from "../actions/commands_store.mjs" */

import { allWithin, byId, make, say, targetOf, within } from "../parts/dom.mjs";
import { age } from "../parts/format.mjs";
import { HOUR_S, localText, nowS } from "../parts/time_ranges.mjs";
import ReadPage from "../reading/read_page.mjs";

const USUAL_HOURS = 8;
const TIME = new Intl.DateTimeFormat("en-GB", {
  weekday: "short",
  hour: "2-digit",
  minute: "2-digit",
});
// A finger that moves sooner scrolls.
const REST_MS = 350,
  REST_PX = 8;
const ROWS = "pool-calendar";

export default class PoolPage extends ReadPage {
  /**
   * The track of a drag that is under way.
   * @type {HTMLElement | null}
   */
  drag = null;

  /** @type {(store: CommandStore) => void} */
  listen(store) {
    super.listen(store);
    const rows = byId(ROWS);
    rows.addEventListener("pointerdown", (event) => this.press(event));
    rows.addEventListener("click", (event) => this.tap(event));
    rows.addEventListener("contextmenu", (event) => {
      if (this.drag !== null) event.preventDefault();
    });
    // Without this the browser takes a finger that drags for one that scrolls.
    rows.addEventListener(
      "touchmove",
      (event) => {
        if (this.drag !== null && event.cancelable) event.preventDefault();
      },
      { passive: false },
    );
    rows.addEventListener("keydown", (event) => moveFocus(event));
    rows.addEventListener("focusout", (event) => {
      const target = targetOf(event);
      if (target.matches(".calendar-bar:not(:first-child)")) target.tabIndex = -1;
    });
  }

  /** A week is not redrawn under a drag. ReadPage's constructor asks before `drag` is set. */
  get isSeen() {
    return super.isSeen && (this.drag ?? null) === null;
  }

  get week() {
    return within(byId(ROWS), ".calendar-inner").dataset;
  }

  get mayReserve() {
    return this.week.reserve !== undefined;
  }

  /** @type {(event: MouseEvent) => void} */
  onClick(event) {
    /** @type {HTMLElement | null} */
    const name = targetOf(event).closest(".calendar-name button");
    if (name === null) super.onClick(event);
    else
      this.reserve(
        name.dataset.host ?? "",
        (Math.floor(nowS() / HOUR_S) + 1) * HOUR_S,
        USUAL_HOURS,
      );
  }

  /**
   * The track and the moment under a pointer, where nothing is yet.
   * @type {(event: MouseEvent) => TrackMoment | null}
   */
  freeAt(event) {
    const target = targetOf(event);
    /** @type {HTMLElement | null} */
    const track = target.closest(".calendar-track");
    const isTaken = target.closest(".calendar-bar") !== null;
    return track === null || isTaken || !this.mayReserve
      ? null
      : { track, at: this.momentAt(track, event.clientX) };
  }

  /** @type {(track: HTMLElement, x: number) => number} */
  momentAt(track, x) {
    const { left, width } = track.getBoundingClientRect();
    const [start, end] = [Number(this.week.start), Number(this.week.end)];
    return Math.min(end, Math.max(start, start + ((x - left) / width) * (end - start)));
  }

  /** @type {(event: PointerEvent) => void} */
  press(event) {
    const free = event.button === 0 ? this.freeAt(event) : null;
    if (free === null) return;
    if (event.pointerType === "touch") this.rest(free, event);
    else {
      event.preventDefault();
      this.dragFrom(free);
    }
  }

  /**
   * A finger that stays where it is for a moment begins a drag; one that moves or leaves does not.
   * @type {(free: TrackMoment, event: PointerEvent) => void}
   */
  rest(free, { clientX, clientY }) {
    /** @type {(event: PointerEvent) => void} */
    const move = (event) => {
      if (Math.hypot(event.clientX - clientX, event.clientY - clientY) > REST_PX) leave();
    };
    const leave = listenAll(
      { pointermove: move, pointerup: () => leave(), pointercancel: () => leave() },
      () => clearTimeout(timer),
    );
    const timer = setTimeout(() => {
      leave();
      this.dragFrom(free);
    }, REST_MS);
  }

  /** @type {(free: TrackMoment) => void} */
  dragFrom({ track, at: began }) {
    this.drag = track;
    this.number += 1; // an answer to an earlier request would be drawn under the drag
    const mark = track.appendChild(make("div", { class: "calendar-drag" }));
    let span = hours(began, began);
    /** @type {(at: number) => void} */
    const moveTo = (at) => {
      span = hours(began, at);
      const [start, end] = [Number(this.week.start), Number(this.week.end)];
      /** @type {(one: number) => number} */
      const share = (one) => 100 * Math.min(1, Math.max(0, (one - start) / (end - start)));
      mark.style.cssText = `left: ${share(span.from)}%; width: ${share(span.to) - share(span.from)}%`;
      say(mark, `${TIME.format(span.from * 1000)}, ${age(span.to - span.from)}`);
    };
    /** @type {(isTaken: boolean) => void} */
    const end = (isTaken) => {
      leave();
      mark.remove();
      // The click that follows is of the same press.
      setTimeout(() => {
        this.drag = null;
        this.look();
      });
      // A press without a drag is of one hour, which is seldom meant.
      if (isTaken && span.to > nowS())
        this.reserve(
          hostOf(track),
          span.from,
          Math.round((span.to - Math.max(span.from, nowS())) / HOUR_S) || 1,
        );
    };
    const leave = listenAll({
      pointermove: ({ clientX }) => moveTo(this.momentAt(track, clientX)),
      pointerup: () => end(true),
      pointercancel: () => end(false),
      keydown: ({ key }) => {
        if (key === "Escape") end(false);
      },
    });
    moveTo(began);
  }

  /**
   * A finger scrolls; a tap means the hour under it.
   * @type {(event: PointerEvent) => void}
   */
  tap(event) {
    const free = this.drag === null && event.pointerType === "touch" ? this.freeAt(event) : null;
    if (free === null) return;
    const { from } = hours(free.at, free.at);
    if (from + HOUR_S > nowS()) this.reserve(hostOf(free.track), from, USUAL_HOURS);
  }

  /**
   * The page's own form, with what was chosen here.
   * @type {(host: string, from: number, hoursLong: number) => void}
   */
  reserve(host, from, hoursLong) {
    /** @type {Order} */
    const order = JSON.parse(byId("pool-ask").dataset.form ?? "");
    const isAhead = from > nowS();
    /** @type {Record<string, string>} */
    const choices = {
      host,
      term_s: hoursLong % 24 === 0 ? `${hoursLong / 24}d` : `${hoursLong}h`,
      ...(isAhead ? { when: "at", at: localText(from).slice(0, 16).replace("T", " ") } : {}),
    };
    const fields = (order.fields ?? []).map((field) => ({
      ...field,
      value: choices[field.name] ?? field.value,
    }));
    this.carryOut({ ...order, ...(isAhead ? JSON.parse(this.week.reserve ?? "{}") : {}), fields });
  }
}

/** @type {(track: HTMLElement) => string} */
const hostOf = (track) => track.parentElement?.dataset.host ?? "";

/**
 * Whole hours that a drag from one moment to another means.
 * @type {(one: number, other: number) => TimeRange}
 */
function hours(one, other) {
  const [from, to] = [Math.min(one, other), Math.max(one, other)];
  return {
    from: Math.floor(from / HOUR_S) * HOUR_S,
    to: Math.max(Math.ceil(to / HOUR_S), Math.floor(from / HOUR_S) + 1) * HOUR_S,
  };
}

/**
 * Listens to the whole window, until the function that it returns is called, which calls `ended`.
 * @type {(listeners: WindowListeners, ended?: () => void) => () => void}
 */
function listenAll(listeners, ended = () => {}) {
  const pairs = /** @type {[string, EventListener][]} */ (Object.entries(listeners));
  for (const [name, listener] of pairs) addEventListener(name, listener, true);
  return () => {
    ended();
    for (const [name, listener] of pairs) removeEventListener(name, listener, true);
  };
}

/** @type {Record<string, number | undefined>} */
const STEPS = { ArrowLeft: -1, ArrowRight: 1 };

/**
 * Moves the focus to the next lease of the node, in the order of time.
 * @type {(event: KeyboardEvent) => void}
 */
function moveFocus(event) {
  /** @type {HTMLElement | null} */
  const bar = targetOf(event).closest(".calendar-bar");
  const step = STEPS[event.key];
  if (bar === null || bar.parentElement === null || step === undefined) return;
  event.preventDefault();
  const bars = allWithin(bar.parentElement, ".calendar-bar").sort(
    (a, b) => a.offsetLeft - b.offsetLeft || a.offsetTop - b.offsetTop,
  );
  const next = bars[bars.indexOf(bar) + step];
  if (next === undefined) return;
  next.tabIndex = 0;
  next.focus();
}
