import assert from "node:assert/strict";
import test from "node:test";
import { load, vectors } from "./page.mjs";

const { format } = load();

for (const [kind, cases] of Object.entries(vectors("units"))) {
  for (const [value, text] of cases) test(`${kind} ${value} is ${text}`, () => assert.equal(format[kind](value), text));
}

test("what is not known is said, never shown as a number", () => {
  assert.equal(format.number(NaN, "bytes"), "unknown");
  assert.equal(format.full(NaN, "count"), "unknown");
});
