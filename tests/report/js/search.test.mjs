import assert from "node:assert/strict";
import test from "node:test";
import { load, tableOf } from "./page.mjs";

const { search, sorting } = load();
const TABLE = tableOf({
  name: ["embed", "q_proj", "k_proj", "norm"], class: ["Embedding", "Linear", "Linear", "RMSNorm"],
  parameters: [64000, 4096, 4096, null], status: ["ran", "failed", "ran", "never called"],
});
const rows = (query) => [...search.find(TABLE, query, { words: ["name", "class"] })].flatMap((hit, row) => (hit ? [row] : []));

for (const [query, expected] of [
  ["", [0, 1, 2, 3]], ["proj", [1, 2]], ["LINEAR", [1, 2]], ["class:linear q_", [1]], ["status:failed", [1]],
  ['status:"never called"', [3]], ["parameters:>10k", [0]], ["parameters:<5Ki", [1, 2]], ["parameters:4096", [1, 2]],
  ["nothing", []], ["nocolumn:1", []], ["name:embed class:linear", []],
]) test(`"${query}" finds ${expected.length}`, () => assert.deepEqual(rows(query), expected));

test("unknown values sort last in both directions and equal rows keep their order", () => {
  const all = Int32Array.of(0, 1, 2, 3);
  assert.deepEqual([...sorting.sorted(TABLE, "parameters", true, all)], [0, 1, 2, 3]);
  assert.deepEqual([...sorting.sorted(TABLE, "parameters", false, all)], [1, 2, 0, 3]);
  assert.deepEqual([...sorting.sorted(TABLE, "name", false, all)], [0, 2, 3, 1]);
});
