/** The model with the questions that the page asks of it. */

import { boundText } from "./axis.ts";
import {
  type Commit,
  type FileNames,
  type Finding,
  NO_VALUE,
  type ReportModel,
  type Rewrites,
} from "./model.ts";
import { numbersOf } from "./runs.ts";
import { type Rewrite, rewriteAt } from "./work.ts";

/** A rewrite, and the commit that did it; null if it belongs to the change of the page. */
export interface DatedRewrite extends Rewrite {
  readonly commit: number | null;
}

/** The partition of a value that is not there. */
const NULL_TEXT = "NULL";

export class Data {
  /** How many files are in the dataset. */
  readonly files: number;
  /** How many are known by name, those that are gone included. */
  readonly known: number;
  /** The first row group of each file, and behind them their number. */
  readonly firstGroup: Uint32Array;
  private readonly commitsByNumber: Map<number, Commit>;
  private readonly findingsByFile: Map<number, Finding[]>;
  private readonly rewritesByFile: Map<number, DatedRewrite[]>;
  private readonly removers: Map<number, number>;
  private readonly partitionTexts: string[];

  constructor(readonly model: ReportModel) {
    const { files, gone } = model;
    this.files = files.name.length;
    this.known = this.files + gone.name.length;
    this.firstGroup = firstGroups(files.groups);
    this.commitsByNumber = new Map(model.commits.map((commit) => [commit.number, commit]));
    this.findingsByFile = findingsByFile(model);
    this.rewritesByFile = rewritesByFile(model);
    this.removers = new Map();
    for (const commit of model.commits) {
      for (const file of numbersOf(commit.removed ?? [])) this.removers.set(file, commit.number);
    }
    const columns = model.dataset.partitionColumns;
    this.partitionTexts = files.partitions.map((values) =>
      columns.map((column, i) => `${column}=${values[i] ?? NULL_TEXT}`).join(" / "),
    );
  }

  private namesOf(file: number): [FileNames, number] {
    const { files, gone } = this.model;
    return file < this.files ? [files, file] : [gone, file - this.files];
  }

  isGone(file: number): boolean {
    return file >= this.files;
  }

  name(file: number): string {
    const [names, i] = this.namesOf(file);
    return names.name[i] ?? "";
  }

  directory(file: number): string {
    const [names, i] = this.namesOf(file);
    return names.directories[names.directory[i] ?? -1] ?? "";
  }

  /** The path below the dataset's directory. */
  path(file: number): string {
    const directory = this.directory(file);
    return directory === "" ? this.name(file) : `${directory}/${this.name(file)}`;
  }

  /** The partition as text; empty if the dataset has none. */
  partition(file: number): string {
    if (this.isGone(file)) return this.directory(file);
    return this.partitionTexts[this.model.files.directory[file] ?? -1] ?? "";
  }

  /** The values of the partition columns; those of a file that is gone are parts of its path. */
  partitionValues(file: number): readonly string[] {
    if (this.isGone(file)) return this.directory(file).split("/").map((part) => part.replace(/^[^=]*=/, ""));
    const values = this.model.files.partitions[this.model.files.directory[file] ?? -1] ?? [];
    return values.map((value) => value ?? NULL_TEXT);
  }

  /** All partitions that have files, by the first directory of each. */
  partitions(): string[] {
    const { partitionColumns } = this.model.dataset;
    if (partitionColumns.length === 0) return [];
    const used = new Set(this.model.files.directory.map((each) => this.partitionTexts[each] ?? ""));
    return [...used].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  }

  rows(file: number): number | null {
    return this.model.files.rows[file] ?? null;
  }

  bytes(file: number): number | null {
    return this.model.files.bytes[file] ?? null;
  }

  groups(file: number): number | null {
    return this.model.files.groups[file] ?? null;
  }

  overlaps(file: number): number | null {
    return this.model.files.overlaps?.[file] ?? null;
  }

  error(file: number): string | null {
    return this.model.files.errors[String(file)] ?? null;
  }

  writer(file: number): string {
    const number = this.model.files.writer[file];
    return number == null ? "" : (this.model.files.writers[number] ?? "");
  }

  isSmall(file: number): boolean {
    const size = this.bytes(file);
    return size !== null && size < this.model.dataset.smallBytes;
  }

  /** The commit that added a file, if one on record did. */
  addedBy(file: number): number | null {
    return this.model.files.commit[file] ?? null;
  }

  /** The commit that removed a file, if one on record did. */
  removedBy(file: number): number | null {
    return this.removers.get(file) ?? null;
  }

  commit(number: number | null): Commit | undefined {
    return number === null ? undefined : this.commitsByNumber.get(number);
  }

  findings(file: number): readonly Finding[] {
    return this.findingsByFile.get(file) ?? [];
  }

  /** The rewrites that read or wrote a file. */
  rewrites(file: number): readonly DatedRewrite[] {
    return this.rewritesByFile.get(file) ?? [];
  }

  /** The range of a key column in a file, as text; empty if the file is gone. */
  range(file: number, axisNumber: number): string {
    const axis = this.model.axes[axisNumber];
    if (axis === undefined || this.isGone(file)) return "";
    const low = axis.low[file] ?? -1;
    const high = axis.high[file] ?? -1;
    if (low === NO_VALUE) return this.rows(file) === 0 ? "no row" : "only NULL";
    return rangeText(boundText(axis, low), boundText(axis, high), low < 0 || high < 0);
  }

  /** The range of a key column in a row group, as text. */
  groupRange(group: number, axisNumber: number): string {
    const axis = this.model.axes[axisNumber];
    const low = this.model.rowGroups?.low[axisNumber]?.[group] ?? -1;
    const high = this.model.rowGroups?.high[axisNumber]?.[group] ?? -1;
    if (axis === undefined) return "";
    return rangeText(boundText(axis, low), boundText(axis, high), low < 0 || high < 0);
  }
}

function rangeText(low: string, high: string, isUnknown: boolean): string {
  if (isUnknown) return "not known";
  return low === high ? low : `${low} – ${high}`;
}

function firstGroups(groups: readonly (number | null)[]): Uint32Array {
  const first = new Uint32Array(groups.length + 1);
  groups.forEach((number, file) => {
    first[file + 1] = (first[file] ?? 0) + (number ?? 0);
  });
  return first;
}

function addTo<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const there = lists.get(key);
  if (there === undefined) lists.set(key, [value]);
  else there.push(value);
}

function rewritesByFile(model: ReportModel): Map<number, DatedRewrite[]> {
  const found = new Map<number, DatedRewrite[]>();
  const add = (rewrites: Rewrites | null | undefined, commit: number | null) => {
    if (!rewrites) return;
    for (let i = 0; i < rewrites.from.length; i += 1) {
      const rewrite = { ...rewriteAt(rewrites, i), commit };
      addTo(found, rewrite.from, rewrite);
      if (rewrite.to !== null) addTo(found, rewrite.to, rewrite);
    }
  };
  const ofChange = model.change?.commit ?? null;
  for (const commit of model.commits) {
    // A result has the rewrites of its own commit, too.
    if (commit.number !== ofChange) add(commit.detail?.rewrites, commit.number);
  }
  add(model.change?.rewrites, ofChange);
  return found;
}

function findingsByFile(model: ReportModel): Map<number, Finding[]> {
  const found = new Map<number, Finding[]>();
  for (const finding of model.checks.flatMap((check) => check.findings)) {
    for (const file of numbersOf(finding.files)) addTo(found, file, finding);
  }
  return found;
}
