/** Numbers of files as runs: start, length, start, length, … */

import type { Runs } from "./model.ts";

/** How many numbers the runs have. */
export function sizeOf(runs: Runs): number {
  let total = 0;
  for (let i = 1; i < runs.length; i += 2) total += runs[i] ?? 0;
  return total;
}

/** The numbers of the runs, in order. */
export function* numbersOf(runs: Runs): Generator<number> {
  for (let i = 0; i + 1 < runs.length; i += 2) {
    const start = runs[i] ?? 0;
    const end = start + (runs[i + 1] ?? 0);
    for (let number = start; number < end; number += 1) yield number;
  }
}
