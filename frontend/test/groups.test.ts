import assert from "node:assert/strict";
import { test } from "node:test";

import { type Context, groupingOf } from "../src/groups.ts";
import type { ReportModel } from "../src/model.ts";
import { data, plan } from "./model.ts";

function labels(context: Context, change: Partial<ReportModel> = {}): Record<string, string> {
  const dataset = data(change);
  const grouping = groupingOf(dataset, context);
  const total = grouping.groups.reduce((sum, group) => sum + group.files, 0);
  assert.equal(total, grouping.files.length);
  return Object.fromEntries(
    [...grouping.files].map((file) => [dataset.name(file), grouping.groupOf(file).label]),
  );
}

test("a dataset shows what is wrong with files", () => {
  assert.deepEqual(labels({ kind: "dataset" }), {
    "a.parquet": "Of good size",
    "b.parquet": "Of good size",
    "c.parquet": "Unreadable",
    "d10.parquet": "Key range not known",
  });
});

test("a commit marks the files it touched, those that are gone included", () => {
  assert.deepEqual(labels({ kind: "commit", number: 1 }), {
    "a.parquet": "Added",
    "b.parquet": "Not touched",
    "c.parquet": "Not touched",
    "d10.parquet": "Not touched",
    "old.parquet": "Added, replaced since",
  });
  assert.equal(labels({ kind: "commit", number: 2 })["old.parquet"], "Removed");
  assert.equal(labels({ kind: "commit", number: 2 })["d10.parquet"], "Added");
});

test("a commit that is not on record leaves the dataset as it is", () => {
  assert.deepEqual(labels({ kind: "commit", number: 9 }), labels({ kind: "dataset" }));
});

test("a plan says what happens and by which evidence", () => {
  const change = plan(["affected", "pruned", "candidate", "pruned"], ["none", "statistics", "none", "bloom"]);
  assert.deepEqual(labels({ kind: "change" }, { change }), {
    "b.parquet": "To be rewritten",
    "a.parquet": "Pruned by statistics",
    "c.parquet": "May hold a key",
    "d10.parquet": "Pruned by bloom filter",
  });
});

test("a file that came after a plan was made is said to be later", () => {
  const change = { ...plan(["pruned"], ["partition"]), decision: [0, 0, 0, null] };
  assert.equal(labels({ kind: "change" }, { change })["d10.parquet"], "Came later");
});

test("a result names removed files as removed", () => {
  const change = { ...plan(["rewritten"], ["key scan"]), kind: "result" as const, removed: [4, 1] };
  const found = labels({ kind: "change" }, { change: { ...change, decision: [0, 0, 0, 0] } });
  assert.equal(found["old.parquet"], "Removed");
  assert.equal(found["a.parquet"], "Rewritten");
});
