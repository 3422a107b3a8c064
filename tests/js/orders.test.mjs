// What is sent of a form that the hub wrote: dashboard/pages/setting_forms.py relies on it.

import assert from "node:assert/strict";
import test from "node:test";

import { filled, valuesOf } from "../../assets/reading/orders.mjs";

const FIELDS = [
  { name: "size", label: "Size", type: "number", times: "unit" },
  { name: "unit", label: "Unit", type: "choice" },
  { name: "server", label: "Server", type: "choice", as: "json" },
];

/** @type {(texts: Record<string, string>) => any} */
function read(texts) {
  const given = new FormData();
  for (const [name, text] of Object.entries(texts)) given.set(name, text);
  return valuesOf(FIELDS, given);
}

test("a number in a unit that somebody chose", () => {
  assert.equal(read({ size: "2", unit: "1024", server: "7" }).size, 2_048);
  assert.equal(read({ size: " 512 ", unit: "1", server: "7" }).size, 512);
});

test("without a number there is no limit, and not one of 0", () => {
  assert.equal(read({ size: "", unit: "1024", server: "7" }).size, null);
});

test("an option may be a number or nothing", () => {
  assert.equal(read({ size: "", unit: "1", server: "7" }).server, 7);
  assert.equal(read({ size: "", unit: "1", server: "null" }).server, null);
});

test("a text of a node that looks like a field is sent as it is", () => {
  assert.deepEqual(filled({ pipes: "$$size", mem_mib: "$size", ordinal: 3 }, { size: null }), {
    pipes: "$size",
    mem_mib: null,
    ordinal: 3,
  });
});
