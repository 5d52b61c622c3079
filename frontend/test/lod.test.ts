import assert from "node:assert/strict";
import { test } from "node:test";

import { blocksOfLine, joined, levelOf } from "../src/lod.ts";

test("few files have bars of their own, many share lines of pixels", () => {
  assert.equal(levelOf(0, 10, 10, 400).isExact, true);
  assert.equal(levelOf(0, 10_000, 10_000, 400).isExact, false);
  assert.equal(levelOf(5_000, 5_020, 10_000, 400).isExact, true);
});

test("only files of the window are drawn", () => {
  const level = levelOf(2.5, 6.5, 10, 400);
  assert.deepEqual([level.first, level.end], [2, 7]);
  assert.equal(levelOf(8, 12, 10, 400).end, 10);
});

test("joined ranges cover the same, apart from gaps too small to see", () => {
  const spans = [{ x0: 0.5, x1: 0.6 }, { x0: 0, x1: 0.2 }, { x0: 0.1, x1: 0.3 }, { x0: 0.61, x1: 0.7 }];
  assert.deepEqual(joined([...spans], 0), [
    { x0: 0, x1: 0.3 },
    { x0: 0.5, x1: 0.6 },
    { x0: 0.61, x1: 0.7 },
  ]);
  assert.deepEqual(joined([...spans], 0.05), [{ x0: 0, x1: 0.3 }, { x0: 0.5, x1: 0.7 }]);
});

test("a file that changes is drawn after those that do not, whatever their number", () => {
  const tone = (file: number) => (file === 3 ? 8 : 4);
  const range = (file: number) => (file === 9 ? null : { x0: 0, x1: file === 3 ? 0.1 : 1 });
  const blocks = blocksOfLine([0, 1, 2, 3, 4, 9], tone, range, 0);
  assert.deepEqual(blocks, [
    { tone: 4, x0: 0, x1: 1 },
    { tone: 8, x0: 0, x1: 0.1 },
  ]);
});
