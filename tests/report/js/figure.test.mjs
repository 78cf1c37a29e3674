import assert from "node:assert/strict";
import test from "node:test";
import { load, tableOf } from "./page.mjs";

const { figure } = load();
const ROWS = 50_000;
const values = Array.from({ length: ROWS }, (_, row) => (row * 37) % 1000);
values[31_337] = 123_456_789;
const TABLE = tableOf({ op: values.map((_, row) => `op<b>${row}`), used: values });
const CHART = {
  name: "c", title: "C", table: "t", series: [{ column: "used", title: "Used", filled: false }], shape: "steps", shown: "bytes", x_title: "op",
  hover: ["op"], marks: [{ row: 31_337, series: "used", text: "peak" }], lines: [{ value: 1e12, text: "capacity" }], bands: [{ first: 0, end: 100, text: "layer" }], tab: "", note: "",
};
const COLOURS = new Proxy({}, { get: () => "#123456" });

test("the shown peak is the true one at any zoom", () => {
  for (const [lo, hi] of [[0, ROWS], [31_000, 32_000], [31_337, 31_338], [40_000, ROWS]]) {
    const view = { lo, hi, width: 300, row: -1 };
    const truth = Math.max(...values.slice(lo, hi));
    assert.equal(figure.peak(CHART, TABLE, view).value, truth);
    assert.equal(Math.max(...figure.traces(CHART, TABLE, view, COLOURS).drawn[0].y), truth);
  }
});

test("the hover text names the op of the maximum, and no name becomes a tag", () => {
  const { drawn } = figure.traces(CHART, TABLE, { lo: 0, hi: ROWS, width: 300, row: -1 }, COLOURS);
  const at = drawn[0].x.indexOf(31_337);
  assert.match(drawn[0].text[at], /highest 118 MiB/);
  assert.match(drawn[0].text[at], /op&lt;b&gt;31337/);
});

test("a level far above the data is named, not drawn to scale", () => {
  const layout = figure.layout(CHART, TABLE, { lo: 0, hi: ROWS, width: 300, row: -1 }, COLOURS);
  assert.ok(layout.yaxis.range[1] < 2e8);
  assert.ok(layout.annotations.some((one) => one.text === "↑ capacity"));
});

test("marks are exact", () => {
  const layout = figure.layout(CHART, TABLE, { lo: 0, hi: ROWS, width: 300, row: -1 }, COLOURS);
  const mark = layout.annotations.find((one) => one.text === "peak");
  assert.deepEqual([mark.x, mark.y], [31_337, 123_456_789]);
});

test("ticks of bytes are powers of two", () => assert.deepEqual([...figure.ticks(1000, "bytes")], [0, 256, 512, 768]));

test("sizes stand at the axis where a column has them", () => {
  const table = tableOf({ value: [128, 1024], used: [1, 2] });
  const chart = { ...CHART, x_title: "seq_len", x_column: "value", hover: [], marks: [], lines: [], bands: [] };
  const layout = figure.layout(chart, table, { lo: 0, hi: 2, width: 300, row: 1 }, COLOURS);
  assert.deepEqual([...layout.xaxis.ticktext], ["128", "1,024"]);
  assert.ok(layout.annotations.some((one) => one.text === "seq_len 1,024"));
  assert.equal(figure.place(CHART, TABLE, 7), "7");
});
