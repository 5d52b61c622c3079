/** How many files may hold a key, along the axis. */

import { NO_VALUE, UNKNOWN } from "./model.ts";

/** A step function: `depth[i]` files at `at[i]` itself, `after[i]` between it and the next one. */
export interface Depth {
  readonly at: Float64Array;
  readonly depth: Uint32Array;
  readonly after: Uint32Array;
  readonly max: number;
}

/**
 * Count over all ranges; a file whose range is not known may hold any key. Both ends belong to a range, so two that share an end overlap there.
 * The ends are ranks, which are exact where positions may be rounded.
 */
export function depthOf(
  low: readonly number[],
  high: readonly number[],
  files: Iterable<number>,
  bounds: number,
  positionOf: (rank: number) => number,
): Depth {
  const starts = new Uint32Array(bounds);
  const ends = new Uint32Array(bounds);
  let open = 0;
  for (const file of files) {
    const from = low[file] ?? NO_VALUE; // a file that is gone
    const to = high[file] ?? NO_VALUE;
    if (from === UNKNOWN) open += 1;
    if (from < 0 || to < 0) continue;
    starts[from] = (starts[from] ?? 0) + 1;
    ends[to] = (ends[to] ?? 0) + 1;
  }
  const at = new Float64Array(bounds);
  const depth = new Uint32Array(bounds);
  const after = new Uint32Array(bounds);
  let max = open;
  for (let rank = 0; rank < bounds; rank += 1) {
    at[rank] = positionOf(rank);
    open += starts[rank] ?? 0;
    depth[rank] = open;
    max = Math.max(max, open);
    open -= ends[rank] ?? 0;
    after[rank] = open;
  }
  return { at, depth, after, max };
}

/** The greatest depth in each of some equal slices of a window of the axis. */
export function depthBySlice(found: Depth, from: number, to: number, slices: number): Uint32Array {
  const result = new Uint32Array(slices);
  if (found.at.length === 0) return result.fill(found.max);
  const scale = slices / (to - from);
  const sliceOf = (at: number) => Math.floor((at - from) * scale);
  const put = (slice: number, value: number) => {
    if (slice >= 0 && slice < slices) result[slice] = Math.max(result[slice] ?? 0, value);
  };
  for (let i = 0; i < found.at.length; i += 1) {
    const here = found.at[i] ?? 0;
    // The last bound is on the right edge of the last slice.
    const slice = here === to ? slices - 1 : sliceOf(here);
    put(slice, found.depth[i] ?? 0);
    const between = found.after[i] ?? 0;
    if (between === 0 || i + 1 >= found.at.length) continue;
    const last = Math.min(slices - 1, sliceOf(found.at[i + 1] ?? 0));
    for (let each = Math.max(0, slice); each <= last; each += 1) put(each, between);
  }
  return result;
}
