/** How much of rewritten files was encoded again, and how much copied as bytes. */

import * as format from "./format.ts";
import type { Rewrites } from "./model.ts";

const PARTS = ["rowGroups", "columns", "pages", "bytes"] as const;
type Part = (typeof PARTS)[number];

/** What was encoded and what copied; null where that is not recorded. */
export type Work = Readonly<Record<Part, { encoded: number | null; copied: number | null }>>;

export interface Rewrite {
  readonly from: number;
  readonly to: number | null;
  readonly method: string;
  readonly reason: string;
  readonly work: Work;
  /** The row groups of the new file that were encoded, and the columns; null if not recorded. */
  readonly groups: readonly number[] | null;
  readonly columns: readonly string[] | null;
}

/** One of the rewritten files. */
export function rewriteAt(rewrites: Rewrites, i: number): Rewrite {
  const of = (part: Part) => ({
    encoded: rewrites[`${part}Encoded`]?.[i] ?? null,
    copied: rewrites[`${part}Copied`]?.[i] ?? null,
  });
  return {
    from: rewrites.from[i] ?? -1,
    to: rewrites.to[i] ?? null,
    method: rewrites.methods[rewrites.method[i] ?? -1] ?? "",
    reason: rewrites.reason?.[i] ?? "",
    work: { rowGroups: of("rowGroups"), columns: of("columns"), pages: of("pages"), bytes: of("bytes") },
    groups: rewrites.groups?.[i] ?? null,
    columns: rewrites.columns?.[i]?.map((column) => rewrites.columnNames[column] ?? "") ?? null,
  };
}

/** By the number of the new file: its row groups that were encoded, as far as that is recorded. */
export function encodedGroups(rewrites: Rewrites): Record<string, readonly number[]> {
  const found: Record<string, readonly number[]> = {};
  rewrites.to.forEach((file, i) => {
    const groups = rewrites.groups?.[i];
    if (file !== null && groups) found[String(file)] = groups;
  });
  return found;
}

/** The columns that were encoded in some file; null if that is not recorded for all of them. */
export function encodedColumns(rewrites: Rewrites): string[] | null {
  const found = new Set<string>();
  for (let i = 0; i < rewrites.to.length; i += 1) {
    if (rewrites.to[i] === null) continue;
    const columns = rewrites.columns?.[i];
    if (!columns) return null;
    for (const column of columns) found.add(rewrites.columnNames[column] ?? "");
  }
  return [...found];
}

function sum(values: readonly (number | null)[] | null): number | null {
  const known = (values ?? []).filter((value) => value !== null);
  return known.length === 0 ? null : known.reduce((total, value) => total + value, 0);
}

/** The sum over all rewritten files. */
export function totalOf(rewrites: Rewrites): Work {
  const of = (part: Part) => ({
    encoded: sum(rewrites[`${part}Encoded`]),
    copied: sum(rewrites[`${part}Copied`]),
  });
  return { rowGroups: of("rowGroups"), columns: of("columns"), pages: of("pages"), bytes: of("bytes") };
}

export interface WorkLine {
  readonly label: string;
  readonly encoded: number;
  readonly copied: number;
  /** The same in words. */
  readonly text: string;
}

const LABELS: Record<Part, string> = {
  rowGroups: "Row groups",
  columns: "Columns",
  pages: "Pages",
  bytes: "Bytes",
};

/** A line for each part of so many files, or none if nothing is recorded at all. */
export function linesOf(work: Work, files = 1): WorkLine[] {
  const isRecorded = (part: Part) => work[part].encoded !== null || work[part].copied !== null;
  if (!PARTS.some(isRecorded)) return [];
  return PARTS.map((part) => {
    const { encoded, copied } = work[part];
    if (!isRecorded(part)) {
      return { label: LABELS[part], encoded: 0, copied: 0, text: "not recorded" };
    }
    const write = part === "bytes" ? format.bytes : format.count;
    const words = [];
    if (encoded !== null) words.push(`${write(encoded)} encoded`);
    if (copied !== null) words.push(`${write(copied)} copied`);
    // The same column of two files counts twice.
    const over = part === "columns" && files > 1 ? ` over ${format.count(files)} files` : "";
    const text = words.join(", ") + over;
    return { label: LABELS[part], encoded: encoded ?? 0, copied: copied ?? 0, text };
  });
}
