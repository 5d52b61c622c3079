import assert from "node:assert/strict";
import { test } from "node:test";

import { bestScale, boundText, position, positions, ticks } from "../src/axis.ts";
import { numberAxis } from "./model.ts";

const axis = numberAxis([[0, 100], [100, 1000], null]);

test("by value, distances are those of the keys", () => {
  assert.equal(position(axis, "value", axis.at?.indexOf(100) ?? -1), 0.1);
  assert.equal(position(axis, "order", axis.at?.indexOf(100) ?? -1), 0.5);
});

test("what is not known has no position", () => {
  assert.deepEqual([...positions(axis, "value", axis.low)], [0, 0.1, Number.NaN]);
});

test("a single bound is in the middle", () => {
  const single = numberAxis([[7, 7]]);
  assert.equal(position(single, "value", 0), 0.5);
  assert.equal(position(single, "order", 0), 0.5);
  for (const scale of ["value", "order"] as const) {
    assert.deepEqual(ticks(single, scale, 0, 1, 5), [{ at: 0.5, text: "7" }]);
  }
});

test("ticks are round numbers inside the window, in order", () => {
  assert.deepEqual(
    ticks(axis, "value", 0, 1, 5).map((tick) => [tick.at, tick.text]),
    [[0, "0"], [0.2, "200"], [0.4, "400"], [0.6, "600"], [0.8, "800"], [1, "1,000"]],
  );
});

test("large ticks are written alike, and as exactly as they differ", () => {
  const large = numberAxis([[0, 16_000_000]]);
  const texts = (from: number, to: number) => ticks(large, "value", from, to, 4).map((tick) => tick.text);
  assert.deepEqual(texts(0, 1), ["0", "5M", "10M", "15M"]);
  assert.deepEqual(texts(0.5, 0.5001), ["8,000,000", "8,000,500", "8,001,000", "8,001,500"]);
});

test("ticks of times are whole days, hours or minutes", () => {
  const start = Date.UTC(2026, 0, 1);
  const day = 86_400_000;
  const times = { ...numberAxis([[start, start + 4 * day]]), kind: "time" as const };
  assert.deepEqual(
    ticks(times, "value", 0, 1, 4).map((tick) => tick.text),
    ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04", "2026-01-05"],
  );
  assert.deepEqual(
    ticks(times, "value", 0, 1 / 48, 2).map((tick) => tick.text),
    ["2026-01-01 00:00", "2026-01-01 01:00", "2026-01-01 02:00"],
  );
});

test("ticks of texts are bounds", () => {
  const texts = { ...axis, kind: "text" as const, at: null, texts: ["ant", "bee", "cat"] };
  assert.deepEqual(
    ticks(texts, "order", 0, 1, 3).map((tick) => tick.text),
    ["ant", "bee", "cat"],
  );
  assert.equal(boundText(texts, 1), "bee");
  assert.equal(boundText(texts, -1), "not known");
});

test("one far key does not squeeze all others: the scale is by order then", () => {
  const near: [number, number][] = Array.from({ length: 20 }, (_, i) => [i * 10, i * 10 + 9]);
  assert.equal(bestScale(numberAxis(near)), "value");
  assert.equal(bestScale(numberAxis([...near, [1e15, 1e15]])), "order");
});
