/** Models of small datasets for the tests of the pure parts. */

import { Data } from "../src/data.ts";
import type { Change, Commit, KeyAxis, ReportModel } from "../src/model.ts";

/** An axis of whole numbers with these ranges, one for each file; null if it is not known. */
export function numberAxis(ranges: readonly ([number, number] | null)[]): KeyAxis {
  const at = [...new Set(ranges.flatMap((range) => range ?? []))].sort((a, b) => a - b);
  const index = (end: 0 | 1) => ranges.map((range) => (range === null ? -1 : at.indexOf(range[end])));
  return {
    column: "id",
    type: "int64",
    kind: "number",
    length: at.length,
    texts: null,
    at,
    low: index(0),
    high: index(1),
    nulls: {},
  };
}

export function commit(number: number, change: Partial<Commit> = {}): Commit {
  return {
    number,
    time: `2026-03-${String(number).padStart(2, "0")}T04:00:00+00:00`,
    engine: "pyarrow",
    strategy: "upsert",
    keyColumns: ["id"],
    counts: { updated: 10 * number },
    sourceRows: null,
    addedFiles: 1,
    removedFiles: 0,
    addedBytes: 1000 * number,
    removedBytes: null,
    seconds: number / 10,
    state: "complete",
    published: "plain",
    id: `c${number}`,
    transaction: null,
    notes: [],
    schemaChanges: [],
    restores: null,
    purged: false,
    added: [],
    removed: [],
    detail: null,
    ...change,
  };
}

/** A plan that decides about each file with the evidence of the same number. */
export function plan(decisions: Change["decisions"], kinds: readonly string[]): Change {
  return {
    kind: "plan",
    title: "upsert of 3 rows",
    strategy: "upsert",
    keyColumns: ["id"],
    sourceRows: 3,
    where: null,
    counts: {},
    commit: null,
    decisions,
    decision: decisions.map((_, i) => i),
    evidences: kinds.map((kind) => ({ kind, columns: ["id"], text: `${kind} of id` })),
    evidence: kinds.map((_, i) => i),
    groups: {},
    rewrites: null,
    removed: [],
    seconds: {},
    notes: [],
  };
}

/** Four files in two partitions; the second and the third overlap, the last one is small. */
export function model(change: Partial<ReportModel> = {}): ReportModel {
  return {
    version: 1,
    fsspeckit: "0",
    time: "2026-03-09T00:00:00+00:00",
    view: "files",
    dataset: {
      path: "/data/orders",
      exists: true,
      rows: 400,
      bytes: 310,
      rowGroups: 5,
      columns: [],
      partitionColumns: ["day"],
      keyColumns: ["id"],
      smallBytes: 50,
      filesOfOneKey: 1.5,
      mostFilesOfOneKey: 2,
    },
    files: {
      directories: ["day=1", "day=2"],
      directory: [0, 0, 1, 1],
      name: ["b.parquet", "a.parquet", "c.parquet", "d10.parquet"],
      partitions: [["1"], [null]],
      rows: [100, 150, null, 50],
      bytes: [100, 100, 100, 10],
      groups: [1, 2, null, 2],
      commit: [null, 1, null, 2],
      writer: [0, 0, null, 0],
      writers: ["a writer"],
      overlaps: [0, 1, 1, 0],
      errors: { "2": "not a Parquet file" },
    },
    gone: { directories: ["day=1"], directory: [0], name: ["old.parquet"] },
    axes: [numberAxis([[0, 99], [100, 250], [200, 300], null])],
    rowGroups: null,
    commits: [commit(1, { added: [1, 1, 4, 1] }), commit(2, { added: [3, 1], removed: [4, 1] })],
    commitsLeftOut: 0,
    pending: [],
    change: null,
    checks: [
      {
        kind: "doctor",
        title: "poor",
        outcome: "warning",
        findings: [
          { severity: "warning", what: "Files overlap.", advice: "sort them.", files: [1, 2], where: "" },
        ],
        notes: [],
      },
    ],
    notes: [],
    live: null,
    generation: "1",
    ...change,
  };
}

export function data(change: Partial<ReportModel> = {}): Data {
  return new Data(model(change));
}
