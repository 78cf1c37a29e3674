import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./page.mjs";

const { m4 } = load();

function spiky(rows) {
  let seed = 7;
  return Float64Array.from({ length: rows }, (_, row) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return row % 9973 === 5 ? 1e9 + row : seed % 1000;
  });
}

test("every pixel column keeps its true lowest and highest value, at any zoom", () => {
  const values = spiky(100_000);
  for (const [lo, hi, buckets] of [[0, 100_000, 1000], [0, 100_000, 333], [17, 50_001, 400], [99_000, 100_000, 100]]) {
    const { rows } = m4.reduce(values, lo, hi, buckets);
    const kept = new Set(rows);
    for (let bucket = 0; bucket < buckets; bucket += 1) {
      const first = lo + Math.floor((bucket * (hi - lo)) / buckets);
      const end = lo + Math.floor(((bucket + 1) * (hi - lo)) / buckets);
      const slice = Array.from({ length: end - first }, (_, place) => first + place);
      const shown = slice.filter((row) => kept.has(row)).map((row) => values[row]);
      const all = slice.map((row) => values[row]);
      assert.equal(Math.max(...shown), Math.max(...all));
      assert.equal(Math.min(...shown), Math.min(...all));
      assert.ok(kept.has(first) && kept.has(end - 1));
    }
    assert.ok(rows.length <= 4 * buckets);
    assert.ok(rows.every((row, place) => place === 0 || row > rows[place - 1]));
  }
});

test("few rows are all kept", () => {
  const { rows, span } = m4.reduce(Float64Array.of(3, 1, 2), 0, 3, 100);
  assert.deepEqual([...rows], [0, 1, 2]);
  assert.equal(span, 1);
});

test("each point names the row of the highest value in its pixel column", () => {
  const values = new Float64Array(1000);
  values[777] = 5;
  const { rows, tops } = m4.reduce(values, 0, 1000, 10);
  rows.forEach((row, place) => { if (row >= 700 && row < 800) assert.equal(tops[place], 777); });
});

test("unknown values are gaps and never hide a peak", () => {
  const values = Float64Array.from({ length: 1000 }, (_, row) => (row % 3 ? NaN : row));
  const { rows } = m4.reduce(values, 0, 1000, 10);
  assert.ok(rows.includes(999));
  assert.ok([...rows].some((row) => values[row] === 498));
});
