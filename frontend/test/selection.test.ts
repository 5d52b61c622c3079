import assert from "node:assert/strict";
import { test } from "node:test";

import { groupingOf } from "../src/groups.ts";
import { type Filter, filtered, keyValue, NO_FILTER, type SortBy, sortFiles } from "../src/selection.ts";
import { data, numberAxis } from "./model.ts";

const dataset = data();
const grouping = groupingOf(dataset, { kind: "dataset" });

const pass = (change: Partial<Filter>) =>
  filtered(dataset, grouping, { ...NO_FILTER, ...change }, 0);

test("no filter passes every file", () => {
  assert.deepEqual(pass({}), [0, 1, 2, 3]);
});

test("every word of a search must be in the path", () => {
  assert.deepEqual(pass({ text: "DAY=1" }), [0, 1]);
  assert.deepEqual(pass({ text: "day=1  a.par" }), [1]);
  assert.deepEqual(pass({ text: "day=1 nothing" }), []);
});

test("a key is looked for in the ranges, and may be in a file without one", () => {
  assert.deepEqual(pass({ key: "220" }), [1, 2, 3]);
  assert.deepEqual(pass({ key: "99" }), [0, 3]);
  assert.deepEqual(pass({ key: "-1" }), [3]);
});

test("keys of an axis of texts are compared as texts", () => {
  const axis = { ...numberAxis([[1, 2], [2, 3]]), kind: "text" as const, at: null };
  const texts = data({ axes: [{ ...axis, texts: ["ant", "bee", "cat"] }] });
  const found = (key: string) => filtered(texts, grouping, { ...NO_FILTER, key }, 0);
  assert.deepEqual([found("ape"), found("cat"), found("dog")], [[0, 2, 3], [1, 2, 3], [2, 3]]);
  assert.deepEqual(found("  "), [0, 1, 2, 3]);
});

test("a long text is found in the ranges of which the page has the beginning", () => {
  const cut = `${"a".repeat(79)}…`;
  const axis = { ...numberAxis([[1, 2], [2, 3]]), kind: "text" as const, at: null };
  const texts = data({ axes: [{ ...axis, texts: ["a", cut, "b"] }] });
  const found = (key: string) => filtered(texts, grouping, { ...NO_FILTER, key }, 0);
  assert.deepEqual(found("a".repeat(200)), [0, 1, 2, 3]);
  assert.deepEqual([found("aa"), found("ab")], [[0, 2, 3], [1, 2, 3]]);
});

test("texts are in the order of their code points, as in Parquet", () => {
  const axis = { ...numberAxis([[1, 2], [2, 3]]), kind: "text" as const, at: null };
  const texts = data({ axes: [{ ...axis, texts: ["a", "\u{ff5e}", "\u{1f600}"] }] });
  assert.deepEqual(filtered(texts, grouping, { ...NO_FILTER, key: "\u{1f600}" }, 0), [1, 2, 3]);
});

test("a file without a value holds no key", () => {
  const axis = numberAxis([[0, 9], null, [5, 9], null]);
  const some = data({ axes: [{ ...axis, low: [0, -2, 1, -1], high: [2, -2, 2, -1] }] });
  assert.deepEqual(filtered(some, grouping, { ...NO_FILTER, key: "6" }, 0), [0, 2, 3]);
  assert.equal(some.range(1, 0), "only NULL");
});

test("what is no key does not filter", () => {
  assert.deepEqual(pass({ key: "abc" }), [0, 1, 2, 3]);
});

test("partition, group, overlap, findings and numbers filter, and all together", () => {
  assert.deepEqual(pass({ partition: "day=NULL" }), [2, 3]);
  assert.deepEqual(pass({ groups: new Set(["unreadable"]) }), [2]);
  assert.deepEqual(pass({ onlyOverlapping: true }), [1, 2]);
  assert.deepEqual(pass({ onlyWithFindings: true }), [1, 2]);
  assert.deepEqual(pass({ only: { label: "", files: new Set([0, 2]) } }), [0, 2]);
  assert.deepEqual(pass({ onlyOverlapping: true, partition: "day=1", key: "220" }), [1]);
});

test("keys of an axis of times are dates or times in UTC", () => {
  const axis = { ...numberAxis([[0, 1]]), kind: "time" as const };
  assert.equal(keyValue(axis, "2026-03-01"), Date.UTC(2026, 2, 1));
  assert.equal(keyValue(axis, "2026-03-01 12:30"), Date.UTC(2026, 2, 1, 12, 30));
  assert.equal(keyValue(axis, "2026-03-01T12:30:00+02:00"), Date.UTC(2026, 2, 1, 10, 30));
  assert.equal(keyValue(axis, "soon"), null);
});

const sorted = (by: SortBy, descending = false) =>
  sortFiles([3, 1, 0, 2], dataset, grouping, { by, descending }, 0);

test("what is not known is last in both directions", () => {
  assert.deepEqual(sorted("rows"), [3, 0, 1, 2]);
  assert.deepEqual(sorted("rows", true), [1, 0, 3, 2]);
  assert.deepEqual(sorted("range"), [0, 1, 2, 3]);
  assert.deepEqual(sorted("range", true), [2, 1, 0, 3]);
});

test("equal values are in the order of their numbers", () => {
  assert.deepEqual(sorted("bytes"), [3, 0, 1, 2]);
  assert.deepEqual(sorted("overlaps", true), [1, 2, 0, 3]);
});

test("paths are sorted as people count, partitions by range inside", () => {
  assert.deepEqual(sorted("file"), [1, 0, 2, 3]);
  assert.deepEqual(sorted("partition", true), [2, 3, 0, 1]);
});
