/** The bars of the time line: one for each commit, or for a few of them where there is no room. */

import type { Commit } from "./model.ts";

export const MEASURES = ["bytes", "rows", "files", "seconds"] as const;
export type Measure = (typeof MEASURES)[number];

/** How much a commit did. */
export function measureOf(commit: Commit, measure: Measure): number {
  if (measure === "files") return commit.addedFiles + commit.removedFiles;
  if (measure === "seconds") return commit.seconds ?? 0;
  if (measure === "bytes") return commit.addedBytes ?? 0;
  return Object.values(commit.counts).reduce((sum, count) => sum + count, 0);
}

export interface Bar {
  /** The commits of the bar, by their places in the list. */
  readonly first: number;
  readonly end: number;
  readonly x: number;
  readonly width: number;
  /** The greatest measure among them. */
  readonly value: number;
}

/** The least width of a bar with the gap behind it, in pixels. */
const MIN_STEP = 5;
const MAX_STEP = 48;

/** Bars from left to right, the oldest commit first, all of the same width. */
export function barsOf(commits: readonly Commit[], measure: Measure, width: number): Bar[] {
  if (commits.length === 0 || width <= 0) return [];
  const most = Math.max(1, Math.floor(width / MIN_STEP));
  const perBar = Math.ceil(commits.length / most);
  const bars = Math.ceil(commits.length / perBar);
  const step = Math.min(MAX_STEP, width / bars);
  return Array.from({ length: bars }, (_, i) => {
    const first = i * perBar;
    const end = Math.min(commits.length, first + perBar);
    const values = commits.slice(first, end).map((commit) => measureOf(commit, measure));
    return { first, end, x: i * step, width: step, value: Math.max(...values) };
  });
}

/** The places of the commits that are the first of their day, as far apart as texts need it. */
export function dayMarks(
  commits: readonly Commit[],
  bars: readonly Bar[],
  room: number,
): { x: number; day: string }[] {
  const marks: { x: number; day: string }[] = [];
  let last = "";
  let free = Number.NEGATIVE_INFINITY;
  for (const bar of bars) {
    const day = (commits[bar.first]?.time ?? "").slice(0, 10);
    if (day === last) continue;
    last = day;
    if (bar.x < free) continue;
    marks.push({ x: bar.x, day });
    free = bar.x + room;
  }
  return marks;
}
