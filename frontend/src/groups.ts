/** What files mean in a context, as groups: each file is in one of them, which gives its colour. */

import type { Data } from "./data.ts";
import { type Change, type Commit, type Decision, UNKNOWN } from "./model.ts";
import { numbersOf } from "./runs.ts";

/** What the page is about: the dataset as it is, a plan or a result, or one commit. */
export type Context =
  | { readonly kind: "dataset" }
  | { readonly kind: "change" }
  | { readonly kind: "commit"; readonly number: number };

/** Meanings that have a colour, the least important first: later ones are drawn over them. */
export const TONES = [
  "kept",
  "scan",
  "bloom",
  "partition",
  "statistics",
  "plain",
  "open",
  "added",
  "changed",
  "removed",
] as const;
export type Tone = (typeof TONES)[number];

export interface Group {
  readonly id: string;
  readonly label: string;
  readonly tone: Tone;
  readonly files: number;
  readonly bytes: number;
}

export interface Grouping {
  readonly groups: readonly Group[];
  /** The files of the context, in the order of their numbers. */
  readonly files: Int32Array;
  /** The group of a file of the context. */
  groupOf(file: number): Group;
}

interface Kind {
  readonly id: string;
  readonly label: string;
  readonly tone: Tone;
}

/** Put the files of a context into groups. */
export function groupingOf(data: Data, context: Context): Grouping {
  const { change } = data.model;
  if (context.kind === "change" && change !== null) return ofChange(data, change);
  if (context.kind === "commit") {
    const commit = data.commit(context.number);
    if (commit !== undefined) return ofCommit(data, commit);
  }
  return ofDataset(data);
}

function collect(data: Data, files: Iterable<number>, kindOf: (file: number) => Kind): Grouping {
  const numbers = Int32Array.from(files);
  const totals = new Map<string, { kind: Kind; files: number; bytes: number }>();
  const idOf = new Map<number, string>();
  for (const file of numbers) {
    const kind = kindOf(file);
    const total = totals.get(kind.id) ?? { kind, files: 0, bytes: 0 };
    total.files += 1;
    total.bytes += data.bytes(file) ?? 0;
    totals.set(kind.id, total);
    idOf.set(file, kind.id);
  }
  const groups = [...totals.values()].map(({ kind, ...rest }) => ({ ...kind, ...rest }));
  groups.sort((a, b) => TONES.indexOf(b.tone) - TONES.indexOf(a.tone) || b.files - a.files);
  const byId = new Map(groups.map((group) => [group.id, group]));
  const nothing: Group = { id: "none", label: "Other", tone: "kept", files: 0, bytes: 0 };
  return {
    groups,
    files: numbers,
    groupOf: (file) => byId.get(idOf.get(file) ?? "") ?? nothing,
  };
}

function upTo(end: number): number[] {
  return Array.from({ length: end }, (_, number) => number);
}

const UNREADABLE: Kind = { id: "unreadable", label: "Unreadable", tone: "removed" };
const NO_RANGE: Kind = { id: "no range", label: "Key range not known", tone: "kept" };
const SMALL: Kind = { id: "small", label: "Small", tone: "open" };
const PLAIN: Kind = { id: "plain", label: "Of good size", tone: "plain" };

function ofDataset(data: Data): Grouping {
  const axis = data.model.axes[0];
  const kindOf = (file: number): Kind => {
    if (data.error(file) !== null) return UNREADABLE;
    if (axis !== undefined && axis.low[file] === UNKNOWN) return NO_RANGE;
    return data.isSmall(file) ? SMALL : PLAIN;
  };
  return collect(data, upTo(data.files), kindOf);
}

const ADDED: Kind = { id: "added", label: "Added", tone: "added" };
const ADDED_GONE: Kind = { id: "added, gone", label: "Added, replaced since", tone: "scan" };
const REMOVED: Kind = { id: "removed", label: "Removed", tone: "removed" };
const NOT_TOUCHED: Kind = { id: "not touched", label: "Not touched", tone: "kept" };

function ofCommit(data: Data, commit: Commit): Grouping {
  const added = new Set(numbersOf(commit.added ?? []));
  const removed = new Set(numbersOf(commit.removed ?? []));
  const kindOf = (file: number): Kind => {
    if (data.addedBy(file) === commit.number) return ADDED;
    if (removed.has(file) && data.isGone(file)) return REMOVED;
    if (added.has(file)) return data.isGone(file) ? ADDED_GONE : ADDED;
    return NOT_TOUCHED;
  };
  const gone = [...new Set([...added, ...removed])].filter((file) => data.isGone(file));
  return collect(data, [...upTo(data.files), ...gone.sort((a, b) => a - b)], kindOf);
}

const DECISIONS: Record<Exclude<Decision, "pruned">, [plan: string, result: string, tone: Tone]> = {
  affected: ["To be rewritten", "Rewritten", "changed"],
  rewritten: ["To be rewritten", "Rewritten", "changed"],
  candidate: ["May hold a key", "Read", "open"],
  guarded: ["Read, never rewritten", "Read, not rewritten", "open"],
  added: ["To be added", "Added", "added"],
  unchanged: ["Read, nothing changes", "Read, nothing changed", "kept"],
};

const PRUNED_BY: Record<string, Tone> = {
  partition: "partition",
  statistics: "statistics",
  bloom: "bloom",
};

const EVIDENCE_NAMES: Record<string, string> = { bloom: "bloom filter", partition: "partition" };

function prunedBy(evidence: string): Kind {
  if (evidence === "none") return { id: "pruned", label: "Not touched", tone: "kept" };
  const label = `Pruned by ${EVIDENCE_NAMES[evidence] ?? evidence}`;
  return { id: `pruned by ${evidence}`, label, tone: PRUNED_BY[evidence] ?? "scan" };
}

const LATER: Kind = { id: "later", label: "Came later", tone: "scan" };

function ofChange(data: Data, change: Change): Grouping {
  const removed = new Set(numbersOf(change.removed));
  const isPlan = change.kind === "plan";
  const kindOf = (file: number): Kind => {
    if (removed.has(file)) return REMOVED;
    const decision = change.decisions[change.decision[file] ?? -1];
    if (decision === undefined) return LATER;
    const evidence = change.evidences[change.evidence[file] ?? -1]?.kind ?? "none";
    if (decision === "pruned") return prunedBy(evidence);
    const [plan, result, tone] = DECISIONS[decision];
    if (evidence === "unreadable") return UNREADABLE;
    return { id: decision, label: isPlan ? plan : result, tone };
  };
  const gone = [...removed].filter((file) => data.isGone(file));
  return collect(data, [...upTo(data.files), ...gone.sort((a, b) => a - b)], kindOf);
}
