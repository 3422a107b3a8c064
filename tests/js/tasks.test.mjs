// The lines of the Tasks page, and which of the selected tasks are out of sight.

import assert from "node:assert/strict";
import { test } from "node:test";

import { hiddenOf, keyOf, merged } from "../../assets/tasks/tasks_model.mjs";

const task = (id, node = "n1") => ({ id, node });
const line = (id) => ({ key: keyOf(task(id)), task: task(id) });

test("a selected task that no line shows is hidden, wherever the others went", () => {
  const selected = new Map(["a", "b"].map((id) => [keyOf(task(id)), task(id)]));
  const hidden = hiddenOf(selected, [task("b"), task("a", "n2")]);
  assert.deepEqual(hidden, [[keyOf(task("a")), task("a")]]);
  assert.deepEqual(hiddenOf(selected, [task("a"), task("b")]), []);
});

test("what went keeps its place, marked, and says that it is gone", () => {
  const { lines, came, went } = merged([line("a"), line("b")], [line("c"), line("b")]);
  assert.deepEqual(
    lines.map(({ key, isGone = false }) => [key, isGone]),
    [
      [keyOf(task("a")), true],
      [keyOf(task("b")), false],
    ],
  );
  assert.deepEqual([came, went], [1, 1]);
});
