// Pure modules of assets/live, assets/charts and assets/fleet: messages in, typed arrays out; samples and their holes; arrangement.

import assert from "node:assert/strict";
import { test } from "node:test";

import { LineStore } from "../../assets/charts/line_store.mjs";
import { claimWords, standing } from "../../assets/fleet/gpu_words.mjs";
import { arrange, placesOf, slotAt } from "../../assets/fleet/grid_layout.mjs";
import { wordsOf } from "../../assets/live/event_lines.mjs";
import { FleetState } from "../../assets/live/fleet_state.mjs";
import { strokeAmong } from "../../assets/parts/page_colours.mjs";

const bytes = (numbers) => new Uint8Array(numbers.buffer);

/** Two nodes with two GPUs each. */
function fleet() {
  const picture = new FleetState();
  picture.takeLayout({
    epoch: 7,
    from: 0,
    nodes: [
      [0, "b", "n10"],
      [1, "a", "n9"],
    ],
    models: ["H100"],
    uuid: ["w", "x", "y", "z"],
    node: [0, 0, 1, 1],
    index: [0, 1, 0, 1],
    model: [0, 0, 0, 0],
    instances: [],
  });
  picture.takeCells({
    epoch: 7,
    metric: "util_pct",
    at: 100,
    n: 4,
    cells: Uint8Array.of(239, 0, 253, 120),
    mask: Uint8Array.of(0b0101),
    matched: 2,
    exact: bytes(Float32Array.of(100, 0, NaN, 50)),
  });
  return picture;
}

test("slots, states and matches of a layout and its cells", () => {
  const picture = fleet();
  assert.equal(picture.count, 4);
  assert.equal(picture.state(2), "lost");
  assert.deepEqual(
    [0, 1, 2, 3].map((slot) => picture.isLit(slot)),
    [true, false, true, false],
  );
  assert.equal(picture.exact?.[3], 50);
});

test("a message of another epoch is not taken, and a new layout forgets the old one", () => {
  const picture = fleet();
  const cells = {
    epoch: 8,
    metric: "power_w",
    at: 101,
    n: 1,
    cells: Uint8Array.of(1),
    mask: null,
    matched: 1,
    exact: null,
  };
  assert.equal(picture.takeCells(cells), false);
  assert.equal(picture.metric, "util_pct");
  picture.takeLayout({
    epoch: 8,
    from: 0,
    nodes: [],
    models: [],
    uuid: ["q"],
    node: [0],
    index: [0],
    model: [0],
    instances: [],
  });
  assert.deepEqual(picture.uuids, ["q"]);
  assert.equal(picture.metric, null);
});

test("owners come whole, then as changes", () => {
  const picture = fleet();
  const message = {
    epoch: 7,
    names: ["ana"],
    owner: bytes(Uint16Array.of(0, 65535, 65535, 0)),
    paused: Uint8Array.of(0b1000),
  };
  picture.takeOwners(message);
  assert.deepEqual(
    [0, 1].map((slot) => picture.ownerName(slot)),
    ["ana", "no task"],
  );
  assert.ok(picture.isPaused(3));
  picture.takeOwners({
    ...message,
    names: ["bo"],
    slots: bytes(Uint32Array.of(1)),
    owner: bytes(Uint16Array.of(1)),
  });
  assert.deepEqual(
    [0, 1].map((slot) => picture.ownerName(slot)),
    ["ana", "bo"],
  );
});

test("a moment that is over has its own owners, and live has its own again", () => {
  const picture = fleet();
  picture.takeThen({ at: 50, metric: "util_pct", cells: Uint8Array.of(1, 1, 1, 1), exact: null });
  assert.equal(picture.ownerName(0), "owner not loaded");
  picture.takeMoment({ epoch: 7, at: 50, owners: ["eve"], owner: Uint16Array.of(0, 0, 0, 0) });
  assert.equal(picture.ownerName(0), "eve");
  picture.leaveThen();
  assert.equal(picture.ownerName(0), "no task");
});

test("nodes stand by their names, numbers in them counted", () => {
  const view = {
    group: "node",
    sort: "name",
    filter: "",
    gpu: "",
    view: "map",
    at: "",
    metric: "util_pct",
  };
  const plan = arrange(
    fleet(),
    view,
    { width: 800, height: 600, isTouch: false },
    (text) => 8 * text.length,
  );
  assert.deepEqual(plan.listed, [2, 3, 0, 1]);
  const { row, at } = placesOf(plan).get(3) ?? { row: -1, at: -1 };
  assert.equal(slotAt(plan, plan.rows[row].x[at] + 1, plan.rows[row].y + 1), 3);
});

test("a hole between samples parts the line, and is told", () => {
  const store = new LineStore(["util_pct"]);
  store.watch(["w"]);
  const samples = (at, values) => ({
    at: 0,
    gpus: [
      {
        uuid: "w",
        at: bytes(Float64Array.from(at)),
        values: bytes(Float64Array.from(values)),
        absent: new Uint8Array(at.length),
        states: new Uint8Array(at.length),
      },
    ],
  });
  assert.deepEqual(store.take(samples([1, 2], [10, 20]), []), []);
  assert.deepEqual(store.take(samples([9], [90]), []), [{ uuid: "w", from: 2, to: 9 }]);
  assert.deepEqual(store.track("w").values.get("util_pct"), [10, 20, null, 90]);
  store.fill("w", [5], { util_pct: [50] });
  assert.ok(store.track("w").values.get("util_pct")?.includes(50));
});

test("of a lost GPU time goes on when its past is filled in", () => {
  const store = new LineStore(["util_pct"]);
  store.watch(["w"]);
  const lost = (at) => ({
    gpus: [
      {
        uuid: "w",
        at: bytes(Float64Array.of(at)),
        values: bytes(Float64Array.of(NaN)),
        absent: Uint8Array.of(1),
      },
    ],
  });
  store.fill("w", [1, 2], { util_pct: [10, 20] });
  assert.equal(store.take(lost(600), ["", "lost"]).length, 1);
  store.fill("w", [1, 2], { util_pct: [10, 20] });
  assert.equal(store.newest("w"), 600);
  assert.deepEqual(store.take(lost(601), ["", "lost"]), []);
});

test("a claim says once what it asks for, how long it has waited and when it starts", () => {
  const why = "it asks for 6 GPUs; 2 of 8 matching are free";
  const claim = { asks: "6 GPUs", why, estimate: "", wait_s: 10_800, asked_at: 400 };
  assert.equal(
    claimWords(claim, 1_000),
    "6 GPUs · waiting 10 min · starts within 3 h · 2 of 8 matching are free",
  );
  assert.equal(
    claimWords({ ...claim, wait_s: null, why: "reserved for 20:00" }, 1_000),
    "6 GPUs · waiting 10 min · reserved for 20:00",
  );
  assert.match(claimWords({ ...claim, estimate: "about 20:00" }, 1_000), / · about 20:00 · 2 of/);
});

test("an event says once what it is, although a node names the GPU first", () => {
  const event = { label: "Xid 31", advice: "look at its log" };
  for (const text of ["Xid 31: a task", "GPU 1: xid 31: a task"])
    assert.equal(wordsOf({ ...event, text }), text);
  assert.equal(wordsOf({ ...event, text: "a task" }), "Xid 31: a task");
  assert.equal(wordsOf({ ...event, text: "" }), "Xid 31: look at its log");
});

/**
 * Oklab, in which equal steps look equal: https://bottosson.github.io/posts/oklab/
 * @type {(colour: string) => number[]}
 */
function oklab(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const part = parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const [l, m, s] = [
    0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b,
    0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b,
    0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b,
  ].map(Math.cbrt);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

test("two GPUs that are compared have the two colours that are told apart best", () => {
  for (const theme of ["dark", "light"]) {
    const colours = [0, 1, 2, 3].map((at) =>
      oklab(strokeAmong(theme, at, undefined, {}, false).stroke),
    );
    const between = (a, b) => Math.hypot(...colours[a].map((part, at) => part - colours[b][at]));
    const first = between(0, 1);
    for (const other of [2, 3]) assert.ok(first > between(0, other), `${theme}, ${other}`);
  }
});

test("the table says of a GPU that it is wasted or paused, and otherwise that it is well", () => {
  const picture = (wasted, isPaused = false) => ({
    isThen: true,
    at: 8_000,
    wasted: new Map(wasted),
    isPaused: () => isPaused,
  });
  assert.equal(standing(picture([[3, { since: 800 }]]), 3), "idle 2 h");
  assert.equal(standing(picture([[3, { since: 800 }]], true), 3), "paused");
  assert.equal(standing(picture([]), 3), "ok");
});
