// Pure modules of assets/parts: numbers, command lines, times, groups, colours.

import assert from "node:assert/strict";
import { test } from "node:test";

import { forgetAsked, get } from "../../assets/parts/api.mjs";
import { isMatch } from "../../assets/parts/cells.mjs";
import { shortCommand, wholeCommand } from "../../assets/parts/commands.mjs";
import * as format from "../../assets/parts/format.mjs";
import { inkAt, palette, stateOf, worstInkContrast } from "../../assets/parts/gauges.mjs";
import { grouped } from "../../assets/parts/grouped.mjs";
import * as times from "../../assets/parts/time_ranges.mjs";

const metric = (key, unit, words = null) => ({
  key,
  unit,
  words,
  label: key,
  meaning: "",
  full: null,
  fullFact: null,
  fullWords: null,
  section: "load",
  scale: "share",
});

test("a number has fixed digits, and no sign where it is nothing", () => {
  assert.equal(format.amount(-0.2), "0");
  assert.equal(format.amount(1234.5), "1,235");
  assert.equal(format.amount(2, 1), "2.0");
});

test("bytes are told in the unit that fits them", () => {
  const words = [2 ** 19, 2 ** 26, 2 ** 30, 80 * 2 ** 30, 141.5 * 2 ** 30, 11 * 2 ** 40].map(
    (bytes) => format.bytesWords(bytes),
  );
  assert.deepEqual(words, ["<1 MiB", "64 MiB", "1.0 GiB", "80.0 GiB", "142 GiB", "11.0 TiB"]);
  assert.equal(format.bytesWords(null), "–");
});

test("a share above nothing is never rounded down to nothing", () => {
  assert.deepEqual(format.valueOf(metric("util_pct", "%"), 0.2, []), { text: "<1", unit: "%" });
  assert.deepEqual(format.valueOf(metric("util_pct", "%"), 0, []), { text: "0", unit: "%" });
});

test("rates, energy and power change their unit", () => {
  const rate = metric("rx", "B/s");
  assert.deepEqual(
    [0, 999, 1500, 2e6, 3e12].map((value) => format.oneWord(format.valueOf(rate, value, []))),
    ["0 B/s", "999 B/s", "1.5 kB/s", "2.0 MB/s", "3,000 GB/s"],
  );
  assert.equal(format.oneWord(format.valueOf(metric("energy", "J"), 7.2e6, [])), "2.0 kWh");
  assert.equal(format.oneWord(format.watts(12_345)), "12.3 kW");
});

test("bits of throttling become words, the last of them in a cell", () => {
  const bits = metric("throttle_bits", "");
  const reasons = [
    [1, "idle"],
    [4, "software power cap"],
    [64, "hardware thermal slowdown"],
  ];
  assert.equal(
    format.valueOf(bits, 68, reasons).text,
    "software power cap, hardware thermal slowdown",
  );
  assert.equal(format.cellOf(bits, 68, reasons).text, "HEAT");
  assert.equal(format.cellOf(bits, 0, reasons).text, "none");
});

test("a code that nobody has words for is told as it is", () => {
  const words = metric("recovery_action", "", { 0: "none: healthy" });
  assert.equal(format.valueOf(words, 0, []).text, "none: healthy");
  assert.equal(format.cellOf(words, 0, []).text, "none");
  assert.equal(format.valueOf(words, 7, []).text, "code 7");
});

test("ages and moments", () => {
  assert.deepEqual(
    [null, -1, 9.94, 119, 7199, 172_799, 172_800].map((seconds) => format.age(seconds)),
    ["never", "0.0 s", "9.9 s", "119 s", "120 min", "48 h", "2 d"],
  );
  assert.deepEqual(
    [null, 996, 940, 1090].map((at) => format.when(at, "never", 1000)),
    ["never", "just now", "60 s ago", "in 90 s"],
  );
  assert.equal(format.secondsSince("1970-01-01T00:00:10Z", 15), 5);
});

test("a command line begins with its script", () => {
  const line = "/opt/py/bin/python3 -u -W ignore /home/a/train.py --lr 3";
  assert.equal(shortCommand(line), "train.py --lr 3");
  assert.equal(wholeCommand(line), `train.py --lr 3\n\nStarted as: ${line}`);
  assert.equal(shortCommand("python -c import torch"), "python -c import torch");
  assert.equal(shortCommand(null), "command unknown");
});

test("items are grouped in the order in which they come", () => {
  const groups = grouped(["bb", "a", "cc", "d"], (word) => word.length);
  assert.deepEqual(
    [...groups],
    [
      [2, ["bb", "cc"]],
      [1, ["a", "d"]],
    ],
  );
});

test("a moment is read back as it was written", () => {
  const at = 1_763_640_000;
  assert.equal(times.secondsIn(times.localText(at)), at);
  assert.ok(Number.isNaN(times.secondsIn("31.1.2026")));
});

test("a bit of the mask is a slot that matches", () => {
  const mask = Uint8Array.of(0b0000_0100, 0b1000_0000);
  const slots = Array.from({ length: 16 }, (_, slot) => slot);
  assert.deepEqual(
    slots.filter((slot) => isMatch(mask, slot)),
    [2, 15],
  );
  assert.ok(slots.every((slot) => isMatch(null, slot)));
});

test("levels are colours, all other codes are states", () => {
  assert.equal(stateOf(239), null);
  assert.equal(stateOf(253), "lost");
  assert.equal(stateOf(240), "unknown"); // of a newer hub
  const { live, marks } = palette("dark");
  assert.equal(live.css.length, 240);
  assert.equal(live.pixels.length, 240);
  assert.notEqual(inkAt(0, marks), inkAt(1, marks));
});

test("numbers can be read on every level of both themes", () => {
  assert.ok(worstInkContrast("dark") > 4.5);
  assert.ok(worstInkContrast("light") > 4.5);
});

test("what a slow hub has not answered is not asked again, unless it is late", async (t) => {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  /** @type {((body: object) => void)[]} */
  const waiting = [];
  t.mock.method(
    globalThis,
    "fetch",
    () => new Promise((done) => waiting.push((body) => done(Response.json(body)))),
  );
  const first = get("gpus");
  now = 30_000;
  assert.equal(get("gpus"), first);
  now = 41_000;
  const second = get("gpus");
  assert.notEqual(second, first);
  waiting.forEach((answer, at) => answer({ at }));
  assert.deepEqual(await second, { at: 1 });
  now += 900;
  assert.equal(get("gpus"), second);
  now += 200;
  assert.notEqual(get("gpus"), second);
  assert.equal(waiting.length, 3);
  forgetAsked();
  get("gpus");
  assert.equal(waiting.length, 4);
});
