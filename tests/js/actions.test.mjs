// What can be done to a task, by its state and by what its node permits.

import assert from "node:assert/strict";
import { test } from "node:test";

// The rows come with a page.
globalThis.document = { getElementById: () => ({ textContent: "[]" }) };
const { isFit, refusalOf } = await import("../../assets/actions/action_words.mjs");

const rows = {
  pause: ["running", false],
  resume: ["paused", false],
  suspend: ["running", true],
  restore: ["suspended", true],
  end: ["", false],
};
const offered = (state, permits) =>
  Object.entries(rows)
    .filter(([id, [fits, isOff]]) => isFit({ id, fits, is_off: isOff }, { state, permits }))
    .map(([id]) => id);

test("each state has its actions, and what is off only where the node permits it", () => {
  assert.deepEqual(offered("running", []), ["pause", "end"]);
  assert.deepEqual(offered(null, []), ["pause", "end"]);
  assert.deepEqual(offered("paused", ["suspend", "restore"]), ["resume", "end"]);
  assert.deepEqual(offered("running", ["suspend", "restore"]), ["pause", "suspend", "end"]);
  assert.deepEqual(offered("suspended", ["restore"]), ["restore", "end"]);
  assert.deepEqual(offered("suspended", []), ["end"]);
});

test("what a task refuses is a sentence of that action alone", () => {
  const task = { refuses: { suspend: "it is no plain compute task" } };
  assert.equal(refusalOf("suspend", task), "It is no plain compute task.");
  assert.equal(refusalOf("restore", task), "");
  assert.equal(refusalOf("suspend", {}), "");
});
