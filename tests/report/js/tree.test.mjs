import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./page.mjs";

const { tree } = load();
const PARENTS = [-1, 0, 1, 1, 0, 4];

test("subtrees end where the next sibling starts", () => {
  const { end, depth, place, siblings } = tree.shape(PARENTS);
  assert.deepEqual([...end], [6, 4, 3, 4, 6, 6]);
  assert.deepEqual([...depth], [0, 1, 2, 2, 1, 2]);
  assert.deepEqual([...place], [1, 1, 1, 2, 2, 1]);
  assert.deepEqual([...siblings], [1, 2, 2, 2, 2, 1]);
});

test("only rows under open rows are visible", () => {
  const shape = tree.shape(PARENTS);
  assert.deepEqual([...tree.visible(shape, Uint8Array.of(1, 0, 0, 0, 1, 0), null)], [0, 1, 4, 5]);
  assert.deepEqual([...tree.visible(shape, new Uint8Array(6), null)], [0]);
});

test("a hit keeps everything above it and nothing else", () => {
  const shape = tree.shape(PARENTS);
  const kept = tree.withAncestors(shape, Uint8Array.of(0, 0, 0, 1, 0, 0));
  assert.deepEqual([...kept], [1, 1, 0, 1, 0, 0]);
  assert.deepEqual([...tree.visible(shape, new Uint8Array(6).fill(1), kept)], [0, 1, 3]);
});
