// The time bar: which moment is shown. What the page shows of it is not its concern; `say` gets a sentence.

import { Teller, byId, make, options, redraw, say, targetOf, within } from "../parts/dom.mjs";
import { grouped } from "../parts/grouped.mjs";
import { clock, plural, when } from "../parts/format.mjs";
import { nowS } from "../parts/time_ranges.mjs";

const STEP_OF = new Map([
  [3_600, 5],
  [21_600, 30],
  [86_400, 120],
  [604_800, 900],
]);
// Times as fast as life; the last one is a dozen steps a second.
const SPEEDS = new Map([
  [5, [1, 10, 60]],
  [30, [10, 60, 360]],
  [120, [60, 360, 1_440]],
  [900, [600, 3_600, 10_800]],
]);
const FAR = 10;
const TRACK_MARKS = 120;

/**
 * The moment that is shown, in whole seconds; null is live.
 * @extends {Teller<{ move: { at: number | null }, range: object, play: object }>}
 */
export class TimeBar extends Teller {
  /** @type {number | null} */
  at = null;
  /** @type {TimeMark[]} */
  marks = [];
  /** @type {number | undefined} */
  timer;
  /** @type {(() => boolean) | undefined} */
  isDrawn;
  note = "";

  constructor() {
    super();
    this.end = nowS();
    this.isPlaying = false;
    this.isLinked = true;
    /** @type {HTMLSelectElement} */
    this.range = byId("time-range");
    /** @type {HTMLSelectElement} */
    this.speed = byId("time-speed");
    this.slider = make("input", {
      "id": "time-slider",
      "type": "range",
      "min": "0",
      "step": "1",
      "aria-label": "Moment",
    });
    byId("time-slider-place").append(this.slider);
    this.listen();
    this.fit();
    this.ticks = setInterval(() => this.tick(), 1_000);
  }

  listen() {
    this.slider.addEventListener("input", () => {
      this.pause();
      this.goToPlace(Number(this.slider.value));
    });
    this.slider.addEventListener("keydown", (event) => this.onKey(event));
    this.range.addEventListener("change", () => this.fit());
    this.speed.addEventListener("change", () => this.play(this.isPlaying));
    byId("time-live").addEventListener("click", () => this.goLive());
    byId("time-play").addEventListener("click", () => this.play(!this.isPlaying));
    byId("time-marks").addEventListener("click", (event) => this.onMark(targetOf(event)));
    document.addEventListener("visibilitychange", () => document.hidden && this.pause());
  }

  close() {
    clearInterval(this.ticks);
    this.pause();
  }

  get rangeS() {
    return Number(this.range.value);
  }

  get step() {
    return STEP_OF.get(this.rangeS) ?? 5;
  }

  get start() {
    return Math.floor((this.end - this.rangeS) / this.step) * this.step;
  }

  get places() {
    return Math.floor((this.end - this.start) / this.step);
  }

  /** Fits the range; the moment stays in it. */
  fit() {
    const speeds = SPEEDS.get(this.step) ?? [];
    this.speed.replaceChildren(
      ...options(speeds.map((times) => [String(times), `${times.toLocaleString("en")}x`])),
    );
    this.speed.value = String(speeds.at(-1));
    this.settle();
    this.tell("range");
    if (this.isPlaying) this.play(true);
  }

  /** The window ends now, or where the moment is in it. */
  settle() {
    if (this.at === null || this.at > this.end || this.at < this.start) {
      this.end =
        this.at === null || nowS() - this.at < this.rangeS ? nowS() : this.at + this.rangeS / 2;
    }
    this.slider.max = String(this.places);
    this.slider.value = String(
      this.at === null ? this.places : Math.floor((this.at - this.start) / this.step),
    );
    this.drawMarks();
  }

  /** @type {(place: number) => void} */
  goToPlace(place) {
    const at = this.start + place * this.step;
    // The last place is now; nothing is known of the second that is just being read.
    if (place >= this.places && at > nowS() - 2 * this.step) this.goLive();
    else this.goTo(Math.max(this.start, at));
  }

  /** @type {(at: number) => void} */
  goTo(at) {
    if (at > nowS() - 2) {
      this.goLive();
      return;
    }
    // A window wide enough, before it is a window somewhere else.
    const wide = [...STEP_OF.keys()].find((range) => nowS() - at < range);
    if (this.at === null && at < this.start && wide !== undefined) {
      this.range.value = String(wide);
      this.at = at;
      this.fit();
    }
    this.at = at;
    this.settle();
    this.tell("move", { at });
  }

  goLive() {
    this.pause();
    this.at = null;
    this.end = nowS();
    this.settle();
    this.tell("move", { at: null });
  }

  /** @type {(event: KeyboardEvent) => void} */
  onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const far = event.shiftKey ? FAR : 1;
    const place = this.at === null ? this.places : (this.at - this.start) / this.step;
    const back = () => this.goToPlace(Math.max(0, Math.ceil(place) - far));
    const forward = () => {
      if (this.at !== null) this.goToPlace(Math.min(this.places, Math.floor(place) + far));
    };
    const act = {
      "ArrowLeft": back,
      "ArrowDown": back,
      "ArrowRight": forward,
      "ArrowUp": forward,
      "Home": () => this.goToPlace(0),
      "End": () => this.goLive(),
      "PageUp": () => this.toMark(-1),
      "PageDown": () => this.toMark(1),
      " ": () => this.play(!this.isPlaying),
    }[event.key];
    if (act === undefined) return;
    event.preventDefault();
    if (event.key !== " ") this.pause();
    act();
  }

  /** @type {(way: number) => void} */
  toMark(way) {
    const from = this.at ?? this.end;
    const next = this.marks
      .map(({ at }) => Math.ceil(at))
      .filter((at) => (way < 0 ? at < from : at > from))
      .sort((a, b) => way * (a - b))[0];
    if (next !== undefined) this.goTo(next);
  }

  /** @type {(target: HTMLElement) => void} */
  onMark(target) {
    /** @type {HTMLElement | null} */
    const mark = target.closest("[data-at]");
    if (mark === null) return;
    this.pause();
    this.goTo(Number(mark.dataset.at));
    this.slider.focus({ preventScroll: true });
  }

  pause() {
    if (this.isPlaying) this.play(false);
  }

  /** @type {(isPlaying: boolean) => void} */
  play(isPlaying) {
    clearTimeout(this.timer);
    this.isPlaying = isPlaying;
    say(byId("time-play"), isPlaying ? "Pause" : "Play");
    this.tell("play");
    if (!isPlaying) return;
    if (this.at === null) this.goTo(this.start);
    this.wait();
  }

  wait() {
    this.timer = setTimeout(() => this.advance(), (1000 * this.step) / Number(this.speed.value));
  }

  /** Goes one step on, once the present moment is drawn. */
  advance() {
    if (this.isDrawn?.() ?? true) {
      const at = this.at ?? nowS();
      const next = at - (at % this.step) + this.step;
      if (next > nowS() - 2) {
        this.goLive();
        return;
      }
      this.goTo(next);
    }
    this.wait();
  }

  tick() {
    if (document.hidden) return;
    if (this.at === null) {
      this.end = nowS();
      this.settle();
    }
    this.drawWords();
  }

  /**
   * Shows whether the hub answers: if not, nothing is live.
   * @type {(isLinked: boolean) => void}
   */
  link(isLinked) {
    this.isLinked = isLinked;
    byId("time-bar").classList.toggle("unlinked", !isLinked);
    this.drawWords();
  }

  /**
   * Shows a note beside the moment: how many GPUs, or why there are none.
   * @type {(note: string) => void}
   */
  say(note) {
    this.note = note;
    this.drawWords();
  }

  drawWords() {
    const { at } = this;
    const isLive = at === null;
    byId("time-live").setAttribute("aria-pressed", String(isLive));
    const moment =
      at !== null ? `${clock(at)}, ${when(at)}` : this.isLinked ? "Live" : "Not connected";
    this.slider.setAttribute("aria-valuetext", moment);
    const words = byId("time-words");
    if (words.childElementCount === 0)
      words.append(
        make("strong", { class: "time-past" }, "Past"),
        make("span", { class: "time-moment" }),
        make("small", {}),
      );
    within(words, ".time-past").hidden = isLive;
    say(
      words.children[1],
      !isLive ? moment : this.isLinked ? `Now ${clock(this.end)}` : "Not connected",
    );
    say(words.children[2], isLive ? "" : this.note);
    words.title = isLive ? "" : `${moment}. ${this.note}`;
  }

  /**
   * [{at, kind: alert | command, words}], and where on the track.
   * @type {(marks: TimeMark[]) => void}
   */
  mark(marks) {
    this.marks = marks;
    this.drawMarks();
  }

  drawMarks() {
    const { start, end } = this;
    const spots = grouped(
      this.marks.filter(({ at }) => at >= start && at <= end),
      ({ kind, at }) => `${kind} ${Math.floor((TRACK_MARKS * (at - start)) / (end - start))}`,
    );
    redraw(
      byId("time-marks"),
      [...spots].map(([key, those]) => [key, those.length, those[0].at]),
      () => [...spots.values()].map((those) => this.markOf(those)),
    );
  }

  /** @type {(those: TimeMark[]) => HTMLElement} */
  markOf(those) {
    const [first] = those;
    const words =
      those.length > 3
        ? [`${plural(those.length, first.kind)}`]
        : those.map(({ at, words: text }) => `${clock(at)} ${text}`);
    const mark = make("button", {
      "type": "button",
      "tabindex": "-1",
      "class": `time-mark ${first.kind} ${first.severity ?? ""}`,
      "data-at": Math.ceil(first.at),
      "title": words.join("\n"),
    });
    mark.style.left = `${(100 * (first.at - this.start)) / (this.end - this.start)}%`;
    return mark;
  }
}

/**
 * UTC seconds, or RFC 3339; null: neither.
 * @type {(text: string) => number | null}
 */
export function momentIn(text) {
  const at = /^\d{1,10}(\.\d+)?$/.test(text)
    ? Number(text)
    : /^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/i.test(text)
      ? Date.parse(text) / 1000
      : NaN;
  return Number.isFinite(at) ? Math.floor(at) : null;
}
