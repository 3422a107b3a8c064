// The fleet as the hub last described it, by slot. Pure: messages in, typed arrays out.

import { untilWords } from "../parts/format.mjs";
import { CLOSED, LEASED, OTHERS, PAUSED, WASTED, isMatch } from "../parts/cells.mjs";
import { FULL, stateOf } from "../parts/gauges.mjs";
import { appendCells } from "./cell_past.mjs";
import { rankByName } from "./slot_ranks.mjs";
import { bytesOf, numbersOf } from "./wire_numbers.mjs";

const RETIRED = 248;
const UNSCALED = 249;
const NO_TASK = 65535;
const OWNER_WORDS = new Map([
  [NO_TASK, "no task"],
  [65534, "several owners"],
  [65533, "owner unknown"],
  [65532, "split by MIG"],
]);

const NO_LEASE = 65535;
// No task, an owner that nobody knows, and a board that is split: none of them is somebody else.
const NOBODY = new Set([NO_TASK, 65533, 65532]);

const PAST_EVERY_S = 0.95; // cells come several times a second

export class FleetState {
  isThen = false;
  grainS = 1;
  isKnown = false;
  matched = 0;
  retired = 0;
  own = nothing();
  then = nothing();
  /** @type {Uint8Array} */
  cells = new Uint8Array(0);
  flags = new Uint8Array(0);
  /** @type {number | null} */
  epoch = null;
  /** @type {string[]} */
  uuids = [];
  /** @type {number[]} */
  node = [];
  /** @type {number[]} */
  index = [];
  /** @type {number[]} */
  model = [];
  /** @type {string[]} */
  models = [];
  /** @type {Map<number, NodeName>} */
  nodes = new Map();
  /** @type {Map<string, number>} */
  slotOf = new Map();
  /** @type {Uint8Array | null} */
  mask = null;
  /** @type {Float32Array | null} */
  exact = null;
  /** @type {string | null} */
  metric = null;
  /** @type {number | null} */
  at = null;
  /** @type {Float32Array[] | null} */
  past = null;
  /** @type {number | null} */
  pastAt = null;
  /** @type {Uint8Array | null} */
  leased = null;
  /** @type {Float64Array | null} */
  nameRank = null;
  /** @type {Map<number, Instance>} */
  instances = new Map();
  /** @type {Map<number, number[]>} */
  instancesOf = new Map();
  /** @type {Map<string, Hub.SiteCounts>} */
  sites = new Map();

  /** Forgets everything but which moment is shown. */
  forget() {
    const { isThen, grainS, pastAt } = this;
    Object.assign(this, new FleetState(), { isThen, grainS, pastAt });
  }

  // What is shown of a slot beside its cell: what is live, or of the past moment.
  get facts() {
    return this.isThen ? this.then : this.own;
  }

  get owners() {
    return this.facts.owners;
  }

  get owner() {
    return this.facts.owner;
  }

  get paused() {
    return this.facts.paused;
  }

  get lessees() {
    return this.facts.lessees;
  }

  get lessee() {
    return this.facts.lessee;
  }

  get leaseEnds() {
    return this.facts.leaseEnds;
  }

  get memory() {
    return this.facts.memory;
  }

  get wasted() {
    return this.facts.wasted;
  }

  get service() {
    return this.facts.service;
  }

  get free() {
    return this.facts.free;
  }

  get size() {
    return this.uuids.length;
  }

  get count() {
    return this.size - this.retired;
  }

  /**
   * True when the arrangement must be made again.
   * @type {(message: Hub.Layout) => boolean}
   */
  takeLayout(message) {
    if (message.epoch !== this.epoch) this.forget();
    this.epoch = message.epoch;
    this.isKnown = true;
    for (const [at, id, host, site = null] of message.nodes) this.nodes.set(at, { id, host, site });
    this.models = message.models;
    const isSame =
      message.from + message.uuid.length <= this.size &&
      message.uuid.every((uuid, at) => this.uuids[message.from + at] === uuid);
    if (isSame) return false;
    message.uuid.forEach((uuid, at) => this.setSlot(message.from + at, message, at));
    for (const instance of message.instances) this.setInstance(...instance);
    this.nameRank = null;
    return true;
  }

  /** @type {(slot: number, message: Hub.Layout, at: number) => void} */
  setSlot(slot, message, at) {
    this.uuids[slot] = message.uuid[at];
    this.node[slot] = message.node[at];
    this.index[slot] = message.index[at];
    this.model[slot] = message.model[at];
    this.slotOf.set(message.uuid[at], slot);
  }

  /** @type {(slot: number, board: number, place: string, profile: string) => void} */
  setInstance(slot, board, place, profile) {
    this.instances.set(slot, { board, place, profile });
    const parts = this.instancesOf.get(board);
    if (parts === undefined) this.instancesOf.set(board, [slot]);
    else parts.push(slot);
  }

  /** @type {(message: Hub.Cells) => boolean} */
  takeCells(message) {
    if (message.epoch !== this.epoch) return false;
    if (message.metric !== this.metric) this.past = null;
    const isNextSecond = message.at - (this.pastAt ?? 0) >= PAST_EVERY_S;
    this.cells = bytesOf(message.cells);
    this.mask = message.mask === null ? null : bytesOf(message.mask);
    this.exact = message.exact === null ? null : numbersOf(message.exact, Float32Array);
    this.metric = message.metric;
    this.isThen = false;
    this.at = message.at;
    this.matched = message.matched;
    this.retired = countOf(this.cells, RETIRED);
    if (this.past === null || isNextSecond) {
      this.past = appendCells(this.past, this.cells);
      this.pastAt = message.at;
    }
    return true;
  }

  /**
   * A moment that is over: no mask, no line of the last minute; owners and such come later.
   * @type {(cells: PastCells) => void}
   */
  takeThen({ at, metric, cells, exact, grainS = 1 }) {
    Object.assign(this, {
      at,
      metric,
      cells,
      exact,
      grainS,
      mask: null,
      past: null,
      pastAt: null,
      isThen: true,
    });
    if (this.then.at !== at) this.then = nothing();
    this.markLeases();
    this.matched = cells.length;
    this.retired = countOf(cells, RETIRED);
  }

  /** Leaves the past moment: nothing is known until the next cells come. */
  leaveThen() {
    Object.assign(this, { isThen: false, grainS: 1, cells: new Uint8Array(0), exact: null });
    this.markLeases();
  }

  /**
   * Takes the facts of a past moment; true: it is the one shown.
   * @type {(moment: PastMoment) => boolean}
   */
  takeMoment(moment) {
    if (moment.epoch !== this.epoch) return false;
    this.then = { ...nothing(), ...moment };
    if (!this.isKnownThen) return false;
    this.markLeases();
    return true;
  }

  /** More of the shown past moment is known than its cells. */
  get isKnownThen() {
    return this.isThen && this.then.at === this.at;
  }

  /** @type {(message: Hub.Owners) => void} */
  takeOwners(message) {
    if (message.epoch !== this.epoch) return;
    const { own } = this;
    const owner = numbersOf(message.owner, Uint16Array);
    if (message.slots === undefined) Object.assign(own, { owners: message.names, owner });
    else {
      own.owners = [...own.owners, ...message.names];
      own.owner = own.owner.slice();
      numbersOf(message.slots, Uint32Array).forEach((slot, at) => {
        own.owner[slot] = owner[at];
      });
    }
    own.paused = bytesOf(message.paused);
    this.markLeases();
  }

  /**
   * Takes the totals, once a second, with memory and waste of all slots.
   * @type {(totals: Hub.Totals) => void}
   */
  takeTotals({ epoch, memory, free, wasted, service, sites = [] }) {
    if (epoch !== this.epoch) return;
    this.sites = new Map(sites.map((site) => [site.name, site]));
    const [slots, since, bytes] = [
      numbersOf(wasted.slots, Uint32Array),
      numbersOf(wasted.since, Uint32Array),
      numbersOf(wasted.mem, Float32Array),
    ];
    const { own } = this;
    own.wasted = new Map(
      Array.from(slots, (slot, at) => [slot, { slot, since: since[at], bytes: bytes[at] }]),
    );
    const states = bytesOf(service.states);
    own.service = new Map(
      Array.from(numbersOf(service.slots, Uint32Array), (slot, at) => [
        slot,
        service.words[states[at]],
      ]),
    );
    own.memory = bytesOf(memory);
    own.free = bytesOf(free);
    this.flag();
  }

  /** @type {(message: Hub.Leases) => void} */
  takeLeases(message) {
    if (message.epoch !== this.epoch) return;
    Object.assign(this.own, {
      lessees: message.names,
      lessee: numbersOf(message.owner, Uint16Array),
      leaseEnds: numbersOf(message.until, Uint32Array),
    });
    this.markLeases();
  }

  /** Null: nothing is leased, or that is not known of a past moment. */
  markLeases() {
    const isAny = this.lessee.some((number) => number !== NO_LEASE);
    /** @type {(number: number, slot: number) => number} */
    const isLeased = (number, slot) => (this.isOthers(slot) ? OTHERS : LEASED);
    this.leased = isAny
      ? Uint8Array.from(this.lessee, (number, slot) =>
          number === NO_LEASE ? 0 : isLeased(number, slot),
        )
      : null;
    this.flag();
  }

  /** Sets the flags of each slot: its state besides its value. */
  flag() {
    this.flags = new Uint8Array(this.size);
    this.leased?.forEach((held, slot) => {
      this.flags[slot] = held;
    });
    const { paused } = this;
    if (paused !== null)
      for (let slot = 0; slot < this.size; slot++)
        if (isMatch(paused, slot)) this.flags[slot] |= PAUSED;
    for (const slot of this.wasted.keys()) this.flags[slot] |= WASTED;
    for (const slot of this.service.keys()) this.flags[slot] |= CLOSED;
  }

  /** @type {(slot: number) => boolean} */
  isPaused(slot) {
    return (this.flags[slot] & PAUSED) > 0;
  }

  freeSlots() {
    const { free } = this;
    return free === null ? [] : this.present().filter((slot) => isMatch(free, slot));
  }

  /**
   * Somebody is on it who does not hold it.
   * @type {(slot: number) => boolean}
   */
  isOthers(slot) {
    const at = this.owner[slot] ?? NO_TASK;
    return (
      !NOBODY.has(at) &&
      this.lessees[this.lessee[slot]] !== undefined &&
      this.owners[at] !== this.lessees[this.lessee[slot]]
    );
  }

  /**
   * "cordoned"; "" where it is in service.
   * @type {(slot: number) => string}
   */
  serviceWords(slot) {
    return this.service.get(slot) ?? "";
  }

  /**
   * "leased to alice"; "" where it is not.
   * @type {(slot: number) => string}
   */
  lesseeWords(slot) {
    if ((this.leased?.[slot] ?? 0) === 0) return "";
    return `leased to ${this.lessees[this.lessee[slot]] ?? "several owners"}`;
  }

  /**
   * "leased to alice until 14:00"
   * @type {(slot: number) => string}
   */
  leaseWords(slot) {
    const whose = this.lesseeWords(slot);
    if (whose === "" || this.isThen) return whose;
    if (this.leased?.[slot] === OTHERS) return `${whose}, used by ${this.ownerName(slot)}`;
    const until = this.leaseEnds[slot];
    return until * 1000 > Date.now()
      ? `${whose} until ${untilWords(until)}`
      : `${whose}, overdue since ${untilWords(until)}`;
  }

  /** Ranks slots by node name and index; a live sort must not compare 10,000 names again. */
  ranks() {
    this.nameRank ??= rankByName(this);
    return this.nameRank;
  }

  /**
   * "3"; of a MIG instance "3/9".
   * @type {(slot: number) => string}
   */
  placeName(slot) {
    return this.instances.get(slot)?.place ?? String(this.index[slot]);
  }

  /**
   * The MIG instances that a board is split into now; on the board itself nobody can run.
   * @type {(slot: number) => number[]}
   */
  partsOf(slot) {
    return (this.instancesOf.get(slot) ?? []).filter((part) => this.code(part) !== RETIRED);
  }

  /** The slots that are on the map: a retired GPU keeps its slot and is not shown. */
  present() {
    return this.uuids.map((_, slot) => slot).filter((slot) => this.code(slot) !== RETIRED);
  }

  /** @type {(slot: number) => number} */
  code(slot) {
    return slot < this.cells.length ? this.cells[slot] : 255;
  }

  /** @type {(slot: number) => string} */
  state(slot) {
    return stateOf(this.code(slot)) ?? "ok";
  }

  /** @type {(slot: number) => boolean} */
  hasValue(slot) {
    return this.code(slot) <= FULL || this.code(slot) === UNSCALED;
  }

  /** @type {(slot: number) => boolean} */
  isLit(slot) {
    return isMatch(this.mask, slot);
  }

  /** @type {(slot: number) => string | null} */
  nodeId(slot) {
    return this.nodes.get(this.node[slot])?.id ?? null;
  }

  /** @type {(slot: number) => string} */
  host(slot) {
    return this.nodes.get(this.node[slot])?.host ?? "unknown node";
  }

  /**
   * Returns the slot's site, where this hub views others; else null.
   * @type {(slot: number) => string | null}
   */
  siteName(slot) {
    return this.nodes.get(this.node[slot])?.site ?? null;
  }

  /**
   * "lyon/n1" where this hub views others: two sites may have nodes of one name.
   * @type {(slot: number) => string}
   */
  nodeTitle(slot) {
    const site = this.siteName(slot);
    return site === null ? this.host(slot) : `${site}/${this.host(slot)}`;
  }

  /** @type {(slot: number) => string} */
  modelName(slot) {
    return this.models[this.model[slot]] ?? "unknown model";
  }

  /** @type {(slot: number) => string} */
  ownerName(slot) {
    if (this.isThen && !this.isKnownThen) return "owner not loaded";
    const at = slot < this.owner.length ? this.owner[slot] : NO_TASK;
    return OWNER_WORDS.get(at) ?? this.owners[at] ?? "owner unknown";
  }

  /** @type {(slot: number) => boolean} */
  hasTask(slot) {
    return slot < this.owner.length && this.owner[slot] !== NO_TASK;
  }
}

/** @type {() => SlotFacts} */
const nothing = () => ({
  owners: [],
  owner: new Uint16Array(0),
  paused: null,
  lessees: [],
  lessee: new Uint16Array(0),
  leaseEnds: new Uint32Array(0),
  memory: null,
  wasted: new Map(),
  service: new Map(),
  free: null,
});

/** @type {(cells: Uint8Array, wanted: number) => number} */
const countOf = (cells, wanted) =>
  cells.reduce((count, code) => count + Number(code === wanted), 0);
