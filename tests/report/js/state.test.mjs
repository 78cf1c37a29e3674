import assert from "node:assert/strict";
import test from "node:test";
import { load, tableOf, vectors } from "./page.mjs";

const { state, download, drawing } = load();

test("a state written into the address reads back the same", () => {
  const given = { tab: "modules", node: "layers.0.</script>&=#", q: 'class:"a b" ü 🦙' };
  assert.deepEqual({ ...state.parse(state.write(given)) }, given);
});

test("empty parts are left out", () => assert.equal(state.write({ tab: "modules", q: "" }), "#tab=modules"));

test("a CSV quotes what must be quoted, disarms formulas and leaves unknown empty", () => {
  const vector = vectors("csv");
  const table = tableOf(vector.columns);
  const columns = Object.values(table.columns);
  assert.equal(download.csv(table, [0, 1, 2, 3, 4, 5], columns), vector.csv);
  assert.equal(JSON.stringify(download.json(table, [1], columns)), '[{"name":"=1+1","calls":null}]');
});

test("what flows into a box and out of it is followed through other boxes", () => {
  const boxes = Array.from({ length: 5 }, (_, place) => ({ place }));
  const edges = [[0, 1], [0, 2], [1, 3], [3, 4]].map(([source, target]) => ({ source, target, track: NaN, text: "" }));
  const { up, down } = drawing.flow({ boxes, edges }, 1);
  assert.deepEqual([...up], [1, 1, 0, 0, 0]);
  assert.deepEqual([...down], [0, 1, 0, 1, 1]);
});
