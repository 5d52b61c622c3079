/**
 * The contract between the Python package and the page.
 *
 * Python fills the built page `src/fsspeckit/report/page.html`: it replaces the text `null` of
 * `<script type="application/json" id="report-data">null</script>` by one JSON document, a
 * `ReportModel`, in which `<`, `>` and `&` are written as `\u003c`, `\u003e` and `\u0026`.
 *
 * The template has `<head>` without attributes, and its script and style inline. It has no
 * Content-Security-Policy of its own: Python puts one in, right after `<head>`. It allows that
 * script and that style by their hashes, `data:` and `blob:` images, and, only if `live` is not
 * null, requests to the page's own server. So no `style="…"` in the HTML and no `on…=` attributes;
 * styles that the script sets on elements are allowed.
 *
 * Files are stored as columns: arrays of the same length, one entry for each file. A file is
 * referred to by its number: below `files.name.length` it is in the dataset, from there on it is
 * `gone[number - files.name.length]`. `null` means "not recorded" or "not known", never 0.
 * Every text of the model comes from a dataset and may hold any character: show it as text only.
 */

/** The id of the element with the model. */
export const DATA_ELEMENT_ID = "report-data";

/**
 * Only if `live` is not null: where the page, served from loopback, asks for more. Both are
 * relative to the page and take the page's own query string (`?token=…`). Ask for `LIVE_PATH` once
 * a second; if its `generation` is not that of the model, get the new model from `MODEL_PATH`.
 */
export const LIVE_PATH = "events";
export const MODEL_PATH = "data";

export const MODEL_VERSION = 1;

/** Longer texts of bounds are cut to this length, with "…" at the end. */
export const MAX_BOUND_TEXT = 80;

/** In place of the bounds of a file: where they are not known, and where it has no value at all. */
export const UNKNOWN = -1;
export const NO_VALUE = -2;

export interface ReportModel {
  version: number;
  /** The version of fsspeckit that made the page. */
  fsspeckit: string;
  /** When the model was made, ISO 8601 in UTC. */
  time: string;
  /** What the reader asked for, and what the page opens with. */
  view: View;
  dataset: Dataset;
  files: Files;
  /** Files that are not in the dataset, but that commits or the change name. */
  gone: FileNames;
  /** Ranges of the key columns, one axis for each; empty if no key is known. */
  axes: KeyAxis[];
  rowGroups: RowGroups | null;
  /** The commits, oldest first. */
  commits: Commit[];
  /** How many older commits are left out of the page. */
  commitsLeftOut: number;
  /** Commits that are recorded and not complete: recovery completes them. */
  pending: number[];
  /** A plan, or what a call did; null for a report of the dataset alone. */
  change: Change | null;
  checks: Check[];
  /** What the page does not show, and why, such as lists that were left out for its size. */
  notes: string[];
  live: LiveState | null;
  /** Identifies the state of the dataset that the model shows; compared with `LiveState`. */
  generation: string;
}

export type View = "files" | "change" | "history" | "checks" | "live";

// The dataset

export interface Dataset {
  /** As the user spelled it, without credentials. */
  path: string;
  exists: boolean;
  /** Null if the footers were not read. */
  rows: number | null;
  bytes: number;
  rowGroups: number | null;
  columns: Column[];
  partitionColumns: string[];
  /** Those asked for, or those of the last merge; empty if none are known. */
  keyColumns: string[];
  /** A file below this size is small: opening it takes longer than reading it. */
  smallBytes: number;
  /** In how many files one key may be, as far as paths and statistics say. */
  filesOfOneKey: number | null;
  mostFilesOfOneKey: number | null;
}

export interface Column {
  name: string;
  /** The Arrow type; several, with commas, where files differ. */
  type: string;
  isPartition: boolean;
  isKey: boolean;
  /** The least and the greatest value as text. */
  low: string | null;
  high: string | null;
  nulls: number | null;
  /** Row groups with usable bounds, and with bloom filters. */
  knownRowGroups: number;
  bloomRowGroups: number;
}

// Files

export interface FileNames {
  /** Directories below the dataset's own, which is ''. */
  directories: string[];
  /** For each file: its directory, an index into `directories`. */
  directory: number[];
  /** For each file: its name in that directory. */
  name: string[];
}

export interface Files extends FileNames {
  /** For each directory: the values of `partitionColumns`; null is the NULL partition. */
  partitions: (string | null)[][];
  /** Null in an entry, here and below: the footer was not read, or cannot be. */
  rows: (number | null)[];
  bytes: number[];
  /** The number of row groups. */
  groups: (number | null)[];
  /** The commit that added it; null if no commit on record did. */
  commit: (number | null)[];
  /** The program that wrote it, an index into `writers`. */
  writer: (number | null)[];
  writers: string[];
  /** With how many other files its key range overlaps; null as a whole if no key is known. */
  overlaps: (number | null)[] | null;
  /** Why files cannot be read, by file number. */
  errors: Record<string, string>;
}

/**
 * The ranges of one key column. All bounds are in one sorted table; a bound is an index into it.
 * Equal values share an index, so indexes can be compared, and are an axis by rank.
 */
export interface KeyAxis {
  column: string;
  type: string;
  /** `number` and `time` also have a linear axis, `at`; `text` only has the order. */
  kind: "number" | "time" | "text";
  /** The number of bounds in the table. */
  length: number;
  /** The bounds as people read them; null if that is `String(at[index])`. */
  texts: string[] | null;
  /** The bounds on a linear axis: numbers, or milliseconds since 1970 in UTC. */
  at: number[] | null;
  /** For each file: the least and the greatest key; -1 if not known. Inclusive. */
  low: number[];
  high: number[];
  /** By file number: how many keys are NULL, where that is not 0. */
  nulls: Record<string, number>;
}

/** Row groups of all files, file after file: file i has `files.groups[i]` of them. */
export interface RowGroups {
  rows: number[];
  bytes: number[];
  /** For each axis, for each row group: an index into the axis, or -1. */
  low: number[][];
  high: number[][];
}

/** Numbers of files as runs: start, length, start, length, … */
export type Runs = number[];

// Commits

export interface Commit {
  number: number;
  /** ISO 8601 in UTC. */
  time: string;
  engine: string;
  /** What was done, such as `upsert`, `overwrite`, `compact`. */
  strategy: string;
  keyColumns: string[];
  /** Rows by what happened to them, such as `inserted`, `updated`, `deleted`; 0 is left out. */
  counts: Record<string, number>;
  sourceRows: number | null;
  addedFiles: number;
  removedFiles: number;
  addedBytes: number | null;
  removedBytes: number | null;
  seconds: number | null;
  state: "complete" | "pending" | "recovered" | "abandoned";
  published: string;
  /** The id of the commit, unique among all writers. */
  id: string;
  transaction: string | null;
  notes: string[];
  schemaChanges: string[];
  /** The commit whose state it brought back. */
  restores: number | null;
  purged: boolean;
  /** Null if left out for the size of the page. */
  added: Runs | null;
  removed: Runs | null;
  /** Null for commits of older versions, which did not record it. */
  detail: CommitDetail | null;
}

export interface CommitDetail {
  /** The files of the dataset before. */
  files: number;
  /** Files by the evidence that ruled them out, such as `{"statistics": 9}`. */
  prunedBy: Record<string, number>;
  /** The rewritten files; null if left out for the size of the page. */
  rewrites: Rewrites | null;
  /** Seconds by phase, in order. */
  seconds: Record<string, number>;
}

type Counts = (number | null)[] | null;

/**
 * Rewritten files as columns, one entry for each: how much was encoded again, and how much copied
 * as bytes. Sum up what is not null for all of them.
 */
export interface Rewrites {
  /** The replaced file, and the one that replaces it; null if all its rows went. */
  from: number[];
  to: (number | null)[];
  /** How, in a few words, such as `splice`: an index into `methods`. */
  method: number[];
  methods: string[];
  /** Why so. This and what follows is null as a whole if it is recorded for no file. */
  reason: string[] | null;
  rowGroupsEncoded: Counts;
  rowGroupsCopied: Counts;
  columnsEncoded: Counts;
  columnsCopied: Counts;
  pagesEncoded: Counts;
  pagesCopied: Counts;
  bytesEncoded: Counts;
  bytesCopied: Counts;
  /** The row groups of the new file that were encoded; null if not recorded. */
  groups: (number[] | null)[] | null;
  /** The columns that were encoded in some row group, indexes into `columnNames`. */
  columns: (number[] | null)[] | null;
  columnNames: string[];
}

// A plan, or what a call did

export type Decision =
  /** Plan: proved to hold no key of the source. Result: the same, and so left alone. */
  | "pruned"
  /** Read for keys that would move, never rewritten. */
  | "guarded"
  /** Plan: may hold a key; reading the keys decides. */
  | "candidate"
  /** Plan: will be rewritten, or removed if all its rows go. */
  | "affected"
  /** Result: the file replaces another one, see `rewrites`. */
  | "rewritten"
  /** Result: a new file with new rows. */
  | "added"
  /** Result: has matching rows, and no value of them changed; or was read in vain. */
  | "unchanged";

export interface Change {
  kind: "plan" | "result";
  /** In one line, such as "upsert of 100 rows into 'events' by id". */
  title: string;
  strategy: string;
  keyColumns: string[];
  sourceRows: number | null;
  /** The condition whose rows are deleted, if it is not keys that decide. */
  where: string | null;
  counts: Record<string, number>;
  /** Of a result: its commit, which may be in `commits`; null if nothing was committed. */
  commit: number | null;
  decisions: Decision[];
  /** For each file: an index into `decisions`; null if it came later, and the plan has not seen it. */
  decision: (number | null)[];
  evidences: Evidence[];
  /** For each file: what decided, an index into `evidences`. */
  evidence: (number | null)[];
  /** By file number: the row groups that may hold, or do hold, a key of the source. */
  groups: Record<string, number[]>;
  /** Of a result; null for a plan. */
  rewrites: Rewrites | null;
  /** Files that were removed without a new one in their place, as runs. */
  removed: Runs;
  seconds: Record<string, number>;
  notes: string[];
}

export interface Evidence {
  /** `partition`, `statistics`, `bloom`, `key index`, `key scan`, `row scan`, `schema`, …, `none` */
  kind: string;
  columns: string[];
  /** The whole sentence. */
  text: string;
}

// Checks

/** One run of doctor or verify. */
export interface Check {
  kind: "doctor" | "verify";
  /** The outcome in one line. */
  title: string;
  /** `unknown` if there was nothing to check, such as merges on a key that is not known. */
  outcome: "good" | "warning" | "error" | "unknown";
  findings: Finding[];
  /** What could not be checked. */
  notes: string[];
}

export interface Finding {
  severity: "error" | "warning" | "note";
  what: string;
  /** What to do about it. */
  advice: string;
  /** The files it is about, as runs. */
  files: Runs;
  /** A file that is not a data file, a row group, a column, if it is about one. */
  where: string;
}

// Live

export interface LiveState {
  generation: string;
  /** When it was looked at, ISO 8601 in UTC. */
  time: string;
  writers: LiveWriter[];
  /** Rows that tasks of streams have written, and that no commit has taken yet. */
  incoming: Incoming[];
  pending: number[];
  /** Why something cannot be seen, such as phases on an object store. */
  notes: string[];
}

export interface LiveWriter {
  /** The name of its staging directory. */
  id: string;
  host: string | null;
  process: number | null;
  /** Whether it is certainly running; null if that cannot be known from here. */
  isRunning: boolean | null;
  /** ISO 8601 in UTC. */
  started: string | null;
  engine: string | null;
  strategy: string | null;
  transaction: string | null;
  /** In order; the last one is the current one. Empty if the writer does not publish them. */
  phases: LivePhase[];
  stagedFiles: number;
  stagedBytes: number;
  /** The newest staged files, at most 200. */
  staged: { name: string; bytes: number }[];
}

export interface LivePhase {
  name: string;
  /** Such as files or tasks; total is 0 if it is not known yet. */
  done: number;
  total: number;
  /** How long it took, or has taken so far. */
  seconds: number;
  isDone: boolean;
}

export interface Incoming {
  query: string;
  batch: string;
  files: number;
  bytes: number;
}
