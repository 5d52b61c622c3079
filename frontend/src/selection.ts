/** Which files are shown, and in which order. */

import type { Data } from "./data.ts";
import type { Grouping } from "./groups.ts";
import { type KeyAxis, MAX_BOUND_TEXT, NO_VALUE } from "./model.ts";

export const SORTS = [
  "file",
  "status",
  "partition",
  "rows",
  "bytes",
  "range",
  "overlaps",
  "commit",
] as const;
export type SortBy = (typeof SORTS)[number];

export interface Filter {
  /** Words that the path must have, each of them. */
  readonly text: string;
  /** A partition as `Data.partition` writes it; empty for all. */
  readonly partition: string;
  /** Groups by id; none of them for all. */
  readonly groups: ReadonlySet<string>;
  readonly onlyOverlapping: boolean;
  readonly onlyWithFindings: boolean;
  /** A value that the key range must hold; empty for all. */
  readonly key: string;
  /** Some files by their numbers, such as those of one finding, and what they are; null for all. */
  readonly only: { readonly label: string; readonly files: ReadonlySet<number> } | null;
}

export const NO_FILTER: Filter = {
  text: "",
  partition: "",
  groups: new Set(),
  onlyOverlapping: false,
  onlyWithFindings: false,
  key: "",
  only: null,
};

export interface Sorting {
  readonly by: SortBy;
  readonly descending: boolean;
}

export function isFiltering(filter: Filter): boolean {
  return (
    filter.text.trim() !== "" ||
    filter.partition !== "" ||
    filter.groups.size > 0 ||
    filter.onlyOverlapping ||
    filter.onlyWithFindings ||
    filter.only !== null ||
    filter.key.trim() !== ""
  );
}

/** The value of a key on the linear axis, or null if the text is no such value. */
export function keyValue(axis: KeyAxis, text: string): number | null {
  const trimmed = text.trim();
  if (trimmed === "" || axis.at === null) return null;
  if (axis.kind === "number") {
    const value = Number(trimmed.replaceAll(",", ""));
    return Number.isFinite(value) ? value : null;
  }
  const hasZone = /(?:Z|[+-]\d\d:?\d\d)$/i.test(trimmed);
  const hasClock = /\d:\d/.test(trimmed);
  const iso = trimmed.replace(/^(\d{4}-\d\d-\d\d)[ T]/, "$1T");
  const value = Date.parse(hasClock && !hasZone ? `${iso}Z` : iso);
  return Number.isNaN(value) ? null : value;
}

/** Compare texts by code points, which is their order in Parquet. */
function compareTexts(a: readonly string[], b: readonly string[]): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i += 1) {
    const difference = (a[i]?.codePointAt(0) ?? 0) - (b[i]?.codePointAt(0) ?? 0);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}

/** Compare a bound with a key; of a bound that was cut, only what is left of it. */
function compareWithBound(bound: string, key: string): number {
  const [points, wanted] = [[...bound], [...key]];
  const isCut = points.length === MAX_BOUND_TEXT && points.at(-1) === "…";
  if (!isCut) return compareTexts(points, wanted);
  const left = MAX_BOUND_TEXT - 1;
  return compareTexts(points.slice(0, left), wanted.slice(0, left));
}

/** A test whether a file may hold a key; a file without a known range may hold any. */
function mayHold(axis: KeyAxis, text: string): (file: number) => boolean {
  const value = keyValue(axis, text);
  const wanted = text.trim();
  /** Below 0 if a bound is before the key, 0 if it cannot be told apart from it. */
  const compare = (index: number): number =>
    value === null ? compareWithBound(axis.texts?.[index] ?? "", wanted) : (axis.at?.[index] ?? 0) - value;
  return (file) => {
    const low = axis.low[file] ?? -1;
    const high = axis.high[file] ?? -1;
    if (low === NO_VALUE) return false;
    return low < 0 || high < 0 || (compare(low) <= 0 && compare(high) >= 0);
  };
}

/** Whether the text can be looked for in the ranges of this axis. */
export function isKey(axis: KeyAxis, text: string): boolean {
  if (text.trim() === "") return false;
  return axis.kind === "text" ? axis.texts !== null : keyValue(axis, text) !== null;
}

/** The files that pass a filter, in the order of their numbers. */
export function filtered(
  data: Data,
  grouping: Grouping,
  filter: Filter,
  axisNumber: number,
): number[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const axis = data.model.axes[axisNumber];
  const holds = axis !== undefined && isKey(axis, filter.key) ? mayHold(axis, filter.key) : null;
  const result: number[] = [];
  for (const file of grouping.files) {
    if (filter.groups.size > 0 && !filter.groups.has(grouping.groupOf(file).id)) continue;
    if (filter.only !== null && !filter.only.files.has(file)) continue;
    if (filter.partition !== "" && data.partition(file) !== filter.partition) continue;
    if (filter.onlyOverlapping && (data.overlaps(file) ?? 0) === 0) continue;
    if (filter.onlyWithFindings && data.findings(file).length === 0) continue;
    if (holds !== null && (data.isGone(file) || !holds(file))) continue;
    if (words.length > 0) {
      const path = data.path(file).toLowerCase();
      if (!words.every((word) => path.includes(word))) continue;
    }
    result.push(file);
  }
  return result;
}

/** Compare two files by what is not known last, then by value, then by number. */
function byNumber(value: (file: number) => number | null, descending: boolean) {
  const sign = descending ? -1 : 1;
  return (a: number, b: number): number => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return x === y ? a - b : x === null ? 1 : -1;
    return sign * (x - y) || a - b;
  };
}

const collator = new Intl.Collator("en", { numeric: true });

/** Sort files in place; what a column does not say is last in both directions. */
export function sortFiles(
  files: number[],
  data: Data,
  grouping: Grouping,
  sorting: Sorting,
  axisNumber: number,
): number[] {
  const { by, descending } = sorting;
  const axis = data.model.axes[axisNumber];
  const low = (file: number): number | null => {
    const index = axis?.low[file] ?? -1;
    return index < 0 ? null : index;
  };
  const sign = descending ? -1 : 1;
  const ranks = new Map(grouping.groups.map((group, i) => [group.id, i]));
  const numeric: Partial<Record<SortBy, (file: number) => number | null>> = {
    rows: (file) => data.rows(file),
    bytes: (file) => data.bytes(file),
    overlaps: (file) => data.overlaps(file),
    commit: (file) => data.addedBy(file),
    status: (file) => ranks.get(grouping.groupOf(file).id) ?? null,
    range: low,
  };
  const value = numeric[by];
  if (value !== undefined) return files.sort(byNumber(value, descending));
  const byRange = byNumber(low, false);
  if (by === "partition") {
    const order = partitionRanks(files, data);
    const rank = (file: number) => order.get(data.partition(file)) ?? 0;
    return files.sort((a, b) => sign * (rank(a) - rank(b)) || byRange(a, b));
  }
  return files.sort((a, b) => sign * collator.compare(data.path(a), data.path(b)) || a - b);
}

function partitionRanks(files: readonly number[], data: Data): Map<string, number> {
  const names = [...new Set(files.map((file) => data.partition(file)))];
  return new Map(names.sort(collator.compare).map((name, rank) => [name, rank]));
}
