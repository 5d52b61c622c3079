import assert from "node:assert/strict";
import { test } from "node:test";

import { barsOf, dayMarks, measureOf } from "../src/bars.ts";
import { visible } from "../src/dom.ts";
import * as format from "../src/format.ts";
import { rowAfterKey, rowsToRender } from "../src/rows.ts";
import { numbersOf, sizeOf } from "../src/runs.ts";
import { encodedColumns, encodedGroups, linesOf, rewriteAt, totalOf } from "../src/work.ts";
import { commit, data } from "./model.ts";

test("runs are numbers", () => {
  assert.deepEqual([...numbersOf([2, 3, 9, 1])], [2, 3, 4, 9]);
  assert.equal(sizeOf([2, 3, 9, 1]), 4);
  assert.deepEqual([...numbersOf([])], []);
});

test("sizes, durations and shares are short and not misleading", () => {
  assert.deepEqual([0, 999, 1000, 999_950, 1.5e12].map(format.bytes), ["0 B", "999 B", "1.0 kB", "1.0 MB", "1.5 TB"]);
  assert.deepEqual([0.012, 1.5, 99.95, 7_260].map(format.duration), ["12 ms", "1.5 s", "2 min", "2 h 1 min"]);
  assert.deepEqual(
    [format.percent(1, 10_000), format.percent(9_999, 10_000), format.percent(0, 5), format.percent(5, 5)],
    ["under 1 %", "over 99 %", "0 %", "100 %"],
  );
  assert.equal(format.counted(1, "file"), "1 file");
  assert.equal(format.baseName("s3://bucket/orders/"), "orders");
});

test("only rows in sight are rendered, and the one with the focus", () => {
  const rows = rowsToRender(34_000, 340, 34, 10_000, 3);
  assert.equal(rows[0], 3);
  assert.ok(rows.includes(1000) && rows.includes(1009));
  assert.ok(rows.length < 40);
  assert.deepEqual(rowsToRender(0, 340, 34, 2, null), [0, 1]);
});

test("keys move inside the table", () => {
  assert.equal(rowAfterKey("ArrowDown", 4, 5, 3), 4);
  assert.equal(rowAfterKey("PageUp", 1, 5, 3), 0);
  assert.equal(rowAfterKey("End", 0, 5, 3), 4);
  assert.equal(rowAfterKey("a", 0, 5, 3), null);
  assert.equal(rowAfterKey("Home", 0, 0, 3), null);
});

test("a time line has a bar for each commit, or for some where there is no room", () => {
  const commits = Array.from({ length: 1000 }, (_, i) => commit(i + 1, { time: "2026-03-01" }));
  const few = barsOf(commits.slice(0, 20), "bytes", 1000);
  assert.deepEqual([few.length, few[3]?.value], [20, 4000]);
  const many = barsOf(commits, "bytes", 1000);
  assert.ok(many.length <= 200);
  assert.deepEqual([many[0]?.first, many.at(-1)?.end], [0, 1000]);
  assert.ok(many.every((bar, i) => i === 0 || bar.first === many[i - 1]?.end));
  assert.equal(many.at(-1)?.value, 1_000_000);
  assert.deepEqual(barsOf([], "bytes", 1000), []);
});

test("measures of a commit", () => {
  const one = commit(3, { removedFiles: 2, addedBytes: null, counts: { updated: 4, inserted: 5 } });
  const measures = (["bytes", "rows", "files", "seconds"] as const).map((each) => measureOf(one, each));
  assert.deepEqual(measures, [0, 9, 3, 0.3]);
});

test("days are marked where they begin, if there is room", () => {
  const commits = [1, 1, 2, 3].map((day, i) => commit(i + 1, { time: `2026-03-0${day}T00:00` }));
  const bars = barsOf(commits, "files", 4 * 40);
  assert.deepEqual(dayMarks(commits, bars, 0).map((mark) => mark.day), ["2026-03-01", "2026-03-02", "2026-03-03"]);
  assert.deepEqual(dayMarks(commits, bars, 100).map((mark) => mark.day), ["2026-03-01", "2026-03-03"]);
});

const rewrites = {
  from: [7, 8],
  to: [1, null],
  method: [0, 1],
  methods: ["splice", "removed"],
  reason: null,
  rowGroupsEncoded: [1, 2],
  rowGroupsCopied: [9, 0],
  columnsEncoded: null,
  columnsCopied: null,
  pagesEncoded: [3, null],
  pagesCopied: [4, null],
  bytesEncoded: [1000, 500],
  bytesCopied: [9000, 0],
  groups: [[2], null],
  columns: [[1, 0], null],
  columnNames: ["amount", "note"],
};

test("work is summed up over what is recorded", () => {
  assert.deepEqual(
    linesOf(totalOf(rewrites)).map((line) => `${line.label}: ${line.text}`),
    [
      "Row groups: 3 encoded, 9 copied",
      "Columns: not recorded",
      "Pages: 3 encoded, 4 copied",
      "Bytes: 1.5 kB encoded, 9.0 kB copied",
    ],
  );
  const columns = { encoded: 2, copied: 4 };
  assert.equal(linesOf({ ...totalOf(rewrites), columns }, 2)[1]?.text, "2 encoded, 4 copied over 2 files");
  const nothing = { encoded: null, copied: null };
  assert.deepEqual(
    linesOf({ rowGroups: nothing, columns: nothing, pages: nothing, bytes: nothing }),
    [],
  );
  assert.deepEqual(rewriteAt(rewrites, 1).work.pages, { encoded: null, copied: null });
  assert.equal(rewriteAt(rewrites, 1).to, null);
});

test("what was encoded is known by file, and by column over all files", () => {
  assert.deepEqual([rewriteAt(rewrites, 0).groups, rewriteAt(rewrites, 0).columns], [[2], ["note", "amount"]]);
  assert.deepEqual([rewriteAt(rewrites, 1).groups, rewriteAt(rewrites, 1).columns], [null, null]);
  assert.deepEqual(encodedGroups(rewrites), { "1": [2] });
  assert.deepEqual(encodedColumns(rewrites), ["note", "amount"]);
  assert.equal(encodedColumns({ ...rewrites, to: [1, 2] }), null);
});

test("limits are written as the other commands write them", () => {
  assert.deepEqual([format.binary(8 * 2 ** 20), format.binary(1000)], ["8 MiB", "1.0 kB"]);
});

test("characters that are not seen are written out", () => {
  assert.equal(visible("a\u202eb\u0000\u200b"), "a\\u202eb\\u0000\\u200b");
  assert.equal(visible("Größe 👩‍🚀 \n"), "Größe 👩‍🚀 \n");
});

test("a file knows its path, its commits and its findings", () => {
  const dataset = data();
  assert.equal(dataset.path(3), "day=2/d10.parquet");
  assert.equal(dataset.path(4), "day=1/old.parquet");
  assert.deepEqual([dataset.isGone(3), dataset.isGone(4)], [false, true]);
  assert.deepEqual([dataset.addedBy(3), dataset.removedBy(4), dataset.removedBy(0)], [2, 2, null]);
  assert.deepEqual(dataset.partitions(), ["day=1", "day=NULL"]);
  assert.equal(dataset.findings(2).length, 1);
  assert.equal(dataset.range(0, 0), "0 – 99");
  assert.equal(dataset.range(3, 0), "not known");
});
