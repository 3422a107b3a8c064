// Recent events: how many matter, on the bar; all of them in a panel over the map, which it never moves.

/** @import { FleetState } from "./fleet_state.mjs" */
/** @import { Live } from "./live.mjs" */

import { getEvents } from "../parts/api.mjs";
import { Teller, byId, say, show, targetOf } from "../parts/dom.mjs";
import { EventList, byTime, isLoud } from "./event_lines.mjs";
import { HOUR_S, nowS } from "../parts/time_ranges.mjs";

const LISTED = 100;
const MOST_KNOWN = 500;
const TICK_MS = 5_000;
// As many as the hub sends at once: if none of them is known, some were missed.
const PUSHED = 20;

/** @extends {Teller<{ open: { uuid: string }, seek: { filter: string } }>} */
export class EventsPanel extends Teller {
  /** @type {Map<string, Hub.EventView>} */
  byId = new Map();
  /** @type {Set<string>} */
  shownIds = new Set();
  /** @type {number | null} */
  epoch = null;

  /**
   * @param {FleetState} picture
   * @param {Live} live
   */
  constructor(picture, live) {
    super();
    this.picture = picture;
    this.since = Infinity;
    this.button = byId("events-button");
    this.panel = byId("events-panel");
    /** @type {HTMLSelectElement} */
    this.severity = byId("events-severity");
    this.list = new EventList(
      "No events yet. Events of GPUs, drivers and nodes appear here.",
      (item) => this.follow(item),
    );
    byId("events-list").append(this.list.root);
    this.listen(live);
    this.loadLoud();
    setInterval(() => this.tick(), TICK_MS);
  }

  get isOpen() {
    return !this.panel.hidden;
  }

  /** @type {(live: Live) => void} */
  listen(live) {
    this.button.addEventListener("click", () => (this.isOpen ? this.close() : this.open()));
    byId("events-close").addEventListener("click", () => this.close());
    byId("events-more").addEventListener("click", () => {
      this.draw();
      byId("events-list").scrollTop = 0;
      byId("events-list").focus();
    });
    this.severity.addEventListener("change", () => this.loadAll());
    live.addEventListener("events", ({ detail }) => this.onPush(detail.newest));
    live.addEventListener("layout", ({ detail }) => this.onEpoch(detail.epoch));
    document.addEventListener("pointerdown", (event) => {
      if (this.isOpen && targetOf(event).closest("#events-panel, #events-button") === null)
        this.close(false);
    });
  }

  open() {
    show(this.panel, true);
    this.button.setAttribute("aria-expanded", "true");
    this.panel.focus({ preventScroll: true });
    this.loadAll();
  }

  close(isFocused = true) {
    show(this.panel, false);
    this.button.setAttribute("aria-expanded", "false");
    if (isFocused) this.button.focus({ preventScroll: true });
  }

  async loadAll() {
    const items = await this.load(
      this.severity.value === "" ? {} : { severity: this.severity.value },
    );
    if (items === null) return;
    this.since = items.length < LISTED ? -Infinity : items[items.length - 1].at;
    this.draw();
  }

  /**
   * Null: the hub does not answer; what is known stays.
   * @type {(query: Record<string, string>) => Promise<Hub.EventView[] | null>}
   */
  async load(query) {
    const answer = await getEvents({ ...query, limit: String(LISTED) }).catch(() => null);
    if (answer !== null) this.take(answer.items);
    return answer?.items ?? null;
  }

  /** Loads the events that the button counts. */
  loadLoud() {
    return this.load({ severity: "warning", start: String(Math.floor(nowS() - HOUR_S)) });
  }

  // In another epoch nodes may have left this viewer's scope: what was known is asked for again.
  /** @type {(epoch: number) => void} */
  onEpoch(epoch) {
    const isNew = this.epoch !== null && epoch !== this.epoch;
    this.epoch = epoch;
    if (!isNew) return;
    this.byId.clear();
    this.loadLoud();
    if (this.isOpen) this.loadAll();
  }

  /** @type {(newest: Hub.EventView[]) => void} */
  onPush(newest) {
    const isGap =
      newest.length >= PUSHED && this.byId.size > 0 && newest.every(({ id }) => !this.byId.has(id));
    this.take(newest);
    if (isGap) this.loadLoud();
    if (isGap && this.isOpen) this.loadAll();
    else if (this.isOpen) this.offer();
  }

  /** @type {(items: Hub.EventView[]) => void} */
  take(items) {
    for (const item of items) this.byId.set(item.id, item);
    if (this.byId.size > MOST_KNOWN) {
      const newest = [...this.byId.values()].sort(byTime).slice(0, MOST_KNOWN / 2);
      this.byId = new Map(newest.map((item) => [item.id, item]));
    }
    this.drawCount();
  }

  listedEvents() {
    const least = this.severity.value;
    /** @type {(item: Hub.EventView) => boolean} */
    const isWanted = (item) =>
      item.at >= this.since &&
      (least === "" || (least === "critical" ? item.severity === "critical" : isLoud(item)));
    return [...this.byId.values()].filter(isWanted).sort(byTime).slice(0, LISTED);
  }

  /** Offers new events behind a button: nothing moves under a pointer or a reader. */
  offer() {
    const items = this.listedEvents();
    const fresh = items.filter(({ id }) => !this.shownIds.has(id)).length;
    const isRead = this.shownIds.size > 0 && this.panel.matches(":hover, :focus-within");
    if (fresh > 0 && isRead) {
      say(byId("events-more"), `${fresh} new`);
      show(byId("events-more"), true);
    } else this.draw();
  }

  draw() {
    const items = this.listedEvents();
    this.shownIds = new Set(items.map(({ id }) => id));
    this.list.draw(items);
    show(byId("events-more"), false);
  }

  drawCount() {
    const recent = [...this.byId.values()].filter(
      (item) => isLoud(item) && item.at > nowS() - HOUR_S,
    );
    const isCritical = recent.some(({ severity }) => severity === "critical");
    const text = recent.length > 99 ? "99+" : String(recent.length);
    say(byId("events-count"), `(${text})`);
    this.button.dataset.tone = recent.length === 0 ? "" : isCritical ? "bad" : "warn";
    this.button.title = `${recent.length === 0 ? "No" : text} ${isCritical ? "critical or warning" : "warning"} events in the last hour`;
  }

  tick() {
    this.drawCount();
    if (this.isOpen) this.list.tick();
  }

  /** @type {(item: Hub.EventView) => void} */
  follow(item) {
    this.close(false);
    if (item.gpu !== null && this.picture.slotOf.has(item.gpu))
      this.tell("open", { uuid: item.gpu });
    else this.tell("seek", { filter: `node:${item.node}` });
  }
}
