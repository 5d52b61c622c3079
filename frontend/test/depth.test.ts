import assert from "node:assert/strict";
import { test } from "node:test";

import { depthBySlice, depthOf } from "../src/depth.ts";

/** Count by hand, at every rank and between ranks; a range that is not known may hold any key. */
function counted(low: number[], high: number[], rank: number): number {
  return low.filter((from, i) => from === -1 || (from >= 0 && from <= rank && rank <= (high[i] ?? -1)))
    .length;
}

const linear = (rank: number) => rank / 9;

test("the depth is the number of ranges that hold a key, at every key", () => {
  for (let seed = 1; seed <= 50; seed += 1) {
    const low = Array.from({ length: 12 }, (_, i) => ((seed * (i + 3) * 7919) % 12) - 2);
    const high = low.map((from, i) => (from < 0 ? from : Math.min(9, from + ((seed + i) % 4))));
    const files = low.map((_, i) => i);
    const found = depthOf(low, high, files, 10, linear);
    for (let rank = 0; rank < 10; rank += 1) {
      assert.equal(found.depth[rank], counted(low, high, rank));
      assert.equal(found.after[rank], counted(low, high, rank + 0.5));
    }
    assert.equal(found.max, Math.max(...found.depth));
  }
});

test("ranges that only share an end overlap there", () => {
  const found = depthOf([0, 5], [5, 9], [0, 1], 10, linear);
  assert.equal(found.max, 2);
  assert.deepEqual([found.after[4], found.depth[5], found.after[5]], [1, 2, 1]);
});

test("a file without a range may hold any key, and one without a value none", () => {
  const found = depthOf([-1, 0, -2], [-1, 3, -2], [0, 1, 2, 3], 4, linear);
  assert.deepEqual([...found.depth], [2, 2, 2, 2]);
  const unknown = depthOf([-1, -1, -2], [-1, -1, -2], [0, 1, 2], 0, linear);
  assert.deepEqual([...depthBySlice(unknown, 0, 1, 2)], [2, 2]);
});

test("many disjoint files in one slice have a depth of one", () => {
  const low = Array.from({ length: 500 }, (_, i) => 2 * i);
  const high = low.map((from) => from + 1);
  const found = depthOf(low, high, low.keys(), 1000, (rank) => rank / 999);
  assert.deepEqual([...depthBySlice(found, 0, 1, 10)], Array(10).fill(1));
});

test("slices of a window see only what is in it", () => {
  const found = depthOf([0, 0, 8], [9, 3, 9], [0, 1, 2], 10, linear);
  assert.deepEqual([...depthBySlice(found, 0, 1, 3)], [2, 2, 2]);
  assert.deepEqual([...depthBySlice(found, 0.45, 0.8, 2)], [1, 1]);
  assert.deepEqual([...depthBySlice(found, 0.9, 1, 1)], [2]);
});
