/** Where everything of the picture is on a canvas of some size, for one window of it. */

import { position, positions, type Scale } from "./axis.ts";
import type { Data } from "./data.ts";
import { type Depth, depthOf } from "./depth.ts";
import type { Grouping } from "./groups.ts";
import { type Bars, levelOf, type Span } from "./lod.ts";
import { type KeyAxis, NO_VALUE } from "./model.ts";
import type { Viewport } from "./viewport.ts";

export interface Scene {
  readonly data: Data;
  readonly grouping: Grouping;
  /** The files that are shown, from top to bottom. */
  readonly order: readonly number[];
  readonly axis: number;
  readonly scale: Scale;
  readonly selected: number | null;
  /** Row groups that may hold, or do hold, a key of the source, by file number. */
  readonly touchedGroups: Readonly<Record<string, readonly number[]>> | null;
  /** What the row groups have in common that are none of these, such as "hold no key". */
  readonly othersAre: string;
  /** A key that is looked for, on the linear axis; null if there is none. */
  readonly key: number | null;
}

export interface PartitionRun {
  readonly name: string;
  readonly from: number;
  readonly end: number;
}

export interface Point {
  readonly x: number;
  readonly y: number;
}

export const CAPTION = 18;
export const DEPTH = 34;
export const GAP = 12;
const TICKS = 24;
const LINE = 26;
const MAX_HEIGHT = 420;
const NARROW = 560;

/** The height of the picture: a line for each file, as far as that fits on a screen. */
export function heightFor(files: number): number {
  return CAPTION + DEPTH + GAP + TICKS + Math.min(MAX_HEIGHT, Math.max(2, files) * LINE);
}

/** What does not depend on the window, and is found once for a scene. */
export interface Places {
  /** The range of each file on the axis; NaN where it is not known. */
  readonly low: Float64Array;
  readonly high: Float64Array;
  /** The same of all row groups; empty if they are not part of the report. */
  readonly groupLow: Float64Array;
  readonly groupHigh: Float64Array;
  readonly depth: Depth | null;
  readonly maxBytes: number;
}

export function placesOf(scene: Scene): Places {
  const { data, order, scale } = scene;
  const axis = data.model.axes[scene.axis];
  const groups = data.model.rowGroups;
  const maxBytes = order.reduce((most, file) => Math.max(most, data.bytes(file) ?? 0), 1);
  const none = new Float64Array();
  if (axis === undefined) {
    return { low: none, high: none, groupLow: none, groupHigh: none, depth: null, maxBytes };
  }
  return {
    low: positions(axis, scale, axis.low),
    high: positions(axis, scale, axis.high),
    groupLow: positions(axis, scale, groups?.low[scene.axis] ?? []),
    groupHigh: positions(axis, scale, groups?.high[scene.axis] ?? []),
    depth: depthOf(axis.low, axis.high, order, axis.length, (rank) => position(axis, scale, rank)),
    maxBytes,
  };
}

export class Layout {
  /** The column of the key axis, if there is one; without one the lines are sizes. */
  readonly axis: KeyAxis | undefined;
  readonly files: number;
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
  readonly sizesLeft: number;
  readonly sizesRight: number;

  constructor(
    readonly scene: Scene,
    readonly places: Places,
    readonly view: Viewport,
    width: number,
    height: number,
  ) {
    const { model } = scene.data;
    this.axis = model.axes[scene.axis];
    this.files = scene.order.length;
    const isNarrow = width < NARROW;
    const hasPartitions = model.dataset.partitionColumns.length > 0;
    const sizes = this.axis === undefined ? 0 : isNarrow ? 48 : 104;
    this.left = hasPartitions ? (isNarrow ? 84 : 128) : 0;
    this.right = width - sizes - (sizes > 0 ? GAP : 0);
    this.top = CAPTION + (this.axis === undefined ? 0 : DEPTH + GAP);
    this.bottom = height - TICKS;
    this.sizesLeft = width - sizes;
    this.sizesRight = width;
  }

  get width(): number {
    return this.right - this.left;
  }

  get height(): number {
    return this.bottom - this.top;
  }

  get level(): Bars {
    return levelOf(this.view.y0, this.view.y1, this.files, this.height);
  }

  toX(at: number): number {
    const { x0, x1 } = this.view;
    return this.left + ((at - x0) / (x1 - x0)) * this.width;
  }

  toY(row: number): number {
    const { y0, y1 } = this.view;
    return this.top + ((row - y0) / (y1 - y0)) * this.height;
  }

  /** What is at a point of the canvas: a position on the axis, and a row. */
  fromPoint(x: number, y: number): Point {
    const { x0, x1, y0, y1 } = this.view;
    return {
      x: x0 + ((x - this.left) / this.width) * (x1 - x0),
      y: y0 + ((y - this.top) / this.height) * (y1 - y0),
    };
  }

  /** Left edge and width of a range in pixels, cut where it leaves the picture. */
  extent(span: Span): [x: number, width: number] {
    const x = Math.max(this.left - 4, this.toX(span.x0));
    const right = Math.min(this.right + 4, this.toX(span.x1));
    if (right < x) return [x, 0];
    return [Math.min(x, this.right - 2), Math.max(2, right - x)];
  }

  isRangeKnown(file: number): boolean {
    return !Number.isNaN(this.places.low[file] ?? Number.NaN);
  }

  /**
   * What the line of a file shows: its range, all of the axis if that is not known, nothing if it
   * has no key; or its size.
   */
  spanOf(file: number): Span | null {
    if (this.axis === undefined) {
      const size = this.scene.data.bytes(file);
      return size === null ? null : { x0: 0, x1: size / this.places.maxBytes };
    }
    if (this.axis.low[file] === NO_VALUE) return null;
    const [low, high] = [this.places.low[file], this.places.high[file]];
    if (low === undefined || high === undefined) return null;
    return Number.isNaN(low) || Number.isNaN(high) ? { x0: 0, x1: 1 } : { x0: low, x1: high };
  }

  /** Whether a row group begins before the one before it ends, or this is not known. */
  groupsOverlap(first: number, end: number): boolean {
    for (let group = first + 1; group < end; group += 1) {
      const low = this.places.groupLow[group] ?? Number.NaN;
      const before = this.places.groupHigh[group - 1] ?? Number.NaN;
      if (!(low >= before)) return true;
    }
    return false;
  }

  /** Where the key that is looked for is on the axis, if it can be said. */
  get keyPosition(): number | null {
    const { key, scale } = this.scene;
    if (this.axis?.at == null || key === null || scale !== "value") return null;
    const low = this.axis.at[0] ?? 0;
    const span = (this.axis.at[this.axis.length - 1] ?? low) - low;
    return span > 0 ? (key - low) / span : null;
  }

  /** The lines of pixels, and which files share each. */
  *lines(): Generator<{ y: number; from: number; end: number }> {
    const perLine = (this.view.y1 - this.view.y0) / this.height;
    for (let y = Math.ceil(this.top); y < this.bottom; y += 1) {
      const at = this.view.y0 + (y - this.top) * perLine;
      const from = Math.max(0, Math.floor(at));
      const end = Math.min(this.files, Math.max(from + 1, Math.floor(at + perLine)));
      if (from < end) yield { y, from, end };
    }
  }

  /** The row at a point: of several on the same line, one whose range holds the point. */
  rowAt(x: number, y: number): number | null {
    if (y < this.top || y >= this.bottom || x < 0) return null;
    const at = this.fromPoint(x, y);
    const perLine = (this.view.y1 - this.view.y0) / this.height;
    const from = Math.max(0, Math.floor(at.y));
    const end = Math.min(this.files, Math.max(from + 1, Math.ceil(at.y + perLine)));
    for (let row = from; row < end; row += 1) {
      const span = this.spanOf(this.scene.order[row] ?? -1);
      if (span !== null && span.x0 <= at.x && at.x <= span.x1) return row;
    }
    return from < this.files ? from : null;
  }

  /**
   * Files in a row that are in the same partition, with the values of the partition: of all
   * partition columns where labels of so many pixels have room, and else of the first ones.
   */
  partitionLabels(room: number): PartitionRun[] {
    const columns = this.scene.data.model.dataset.partitionColumns.length;
    for (let depth = columns; depth > 1; depth -= 1) {
      const runs = this.partitionRuns(depth);
      const rows = runs.length === 0 ? 0 : this.files / runs.length;
      if (this.toY(rows) - this.toY(0) >= room) return runs;
    }
    return this.partitionRuns(1);
  }

  private partitionRuns(depth: number): PartitionRun[] {
    const { data, order } = this.scene;
    const nameOf = (row: number) => data.partitionValues(order[row] ?? -1).slice(0, depth).join(" / ");
    const runs: PartitionRun[] = [];
    let from = 0;
    let name = nameOf(0);
    for (let row = 1; row <= this.files; row += 1) {
      const next = row < this.files ? nameOf(row) : null;
      if (next === name) continue;
      runs.push({ name, from, end: row });
      [from, name] = [row, next ?? ""];
    }
    return runs;
  }
}
