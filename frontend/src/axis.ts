/** An axis of key values: where a bound is on it, from 0 to 1, and which ticks it gets. */

import type { KeyAxis } from "./model.ts";

/** `value`: distances are differences of keys. `order`: every different bound has the same room. */
export type Scale = "value" | "order";

/** Where a bound is on the axis, from 0 to 1. */
export function position(axis: KeyAxis, scale: Scale, index: number): number {
  if (scale === "value" && axis.at !== null) {
    const low = axis.at[0] ?? 0;
    const span = (axis.at[axis.length - 1] ?? low) - low;
    return span > 0 ? ((axis.at[index] ?? low) - low) / span : 0.5;
  }
  return axis.length > 1 ? index / (axis.length - 1) : 0.5;
}

/** The positions of many bounds; NaN for those that are not known. */
export function positions(axis: KeyAxis, scale: Scale, indexes: readonly number[]): Float64Array {
  const found = new Float64Array(indexes.length);
  for (let i = 0; i < indexes.length; i += 1) {
    const index = indexes[i] ?? -1;
    found[i] = index < 0 ? Number.NaN : position(axis, scale, index);
  }
  return found;
}

/** The share of the axis that the middle of the bounds must take for a scale by value. */
const MIN_MIDDLE = 0.05;

/** The scale to begin with: by order where a few far values would squeeze all others together. */
export function bestScale(axis: KeyAxis): Scale {
  if (axis.at === null) return "order";
  const at = (share: number) =>
    position(axis, "value", Math.round(share * Math.max(0, axis.length - 1)));
  return at(0.9) - at(0.1) < MIN_MIDDLE ? "order" : "value";
}

/** A bound as text. */
export function boundText(axis: KeyAxis, index: number): string {
  if (index < 0) return "not known";
  const text = axis.texts?.[index];
  if (text !== undefined) return text;
  const value = axis.at?.[index];
  return value === undefined ? "" : axis.kind === "time" ? timeText(value, 0) : String(value);
}

interface Tick {
  /** From 0 to 1. */
  readonly at: number;
  readonly text: string;
}

const DAY = 86_400_000;
const TIME_STEPS = [
  1,
  10,
  100,
  1_000,
  5_000,
  15_000,
  60_000,
  300_000,
  900_000,
  3_600_000,
  10_800_000,
  43_200_000,
  DAY,
  2 * DAY,
  7 * DAY,
  28 * DAY,
  91 * DAY,
  365 * DAY,
  3_652 * DAY,
  36_525 * DAY,
];

/** A time as text, as exactly as a step between ticks needs it. */
function timeText(milliseconds: number, step: number): string {
  const date = new Date(milliseconds);
  if (Number.isNaN(date.getTime())) return "";
  const text = date.toISOString();
  if (step >= DAY) return text.slice(0, 10);
  const clock = text.slice(0, 19).replace("T", " ");
  if (step >= 60_000) return clock.slice(0, 16);
  return step >= 1_000 || milliseconds % 1_000 === 0 ? clock : text.slice(0, 23).replace("T", " ");
}

/** The next round number: 1, 2 or 5 times a power of ten. */
function roundStep(step: number): number {
  const power = 10 ** Math.floor(Math.log10(step));
  const digit = [1, 2, 5].find((candidate) => candidate * power >= step) ?? 10;
  return digit * power;
}

const numbers = new Intl.NumberFormat("en", { maximumFractionDigits: 6 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

/** A number as short as all ticks of a window can be written alike. */
function numberText(value: number, step: number, greatest: number): string {
  const isLong = greatest >= 1e6;
  return isLong && step >= greatest / 1_000 ? compact.format(value) : numbers.format(value);
}

function linearTicks(axis: KeyAxis, from: number, to: number, most: number): Tick[] {
  const low = axis.at?.[0] ?? 0;
  const span = (axis.at?.[axis.length - 1] ?? low) - low;
  if (span <= 0) return [{ at: 0.5, text: boundText(axis, 0) }];
  const least = ((to - from) * span) / Math.max(1, most);
  const isTime = axis.kind === "time";
  const step = isTime ? (TIME_STEPS.find((each) => each >= least) ?? least) : roundStep(least);
  const ticks: Tick[] = [];
  const greatest = Math.max(Math.abs(low + from * span), Math.abs(low + to * span));
  const first = Math.ceil((low + from * span) / step);
  for (let i = first; i * step <= low + to * span && ticks.length <= 2 * most; i += 1) {
    const value = i * step;
    const text = isTime ? timeText(value, step) : numberText(value, step, greatest);
    ticks.push({ at: (value - low) / span, text });
  }
  return ticks;
}

function orderTicks(axis: KeyAxis, from: number, to: number, most: number): Tick[] {
  if (axis.length === 1) return [{ at: 0.5, text: boundText(axis, 0) }];
  const last = Math.max(1, axis.length - 1);
  const step = Math.max(1, Math.ceil(((to - from) * last) / Math.max(1, most)));
  const ticks: Tick[] = [];
  for (let i = Math.ceil((from * last) / step) * step; i <= to * last; i += step) {
    if (i < axis.length) ticks.push({ at: i / last, text: boundText(axis, i) });
  }
  return ticks;
}

/** At most about so many ticks for a window of the axis. */
export function ticks(
  axis: KeyAxis,
  scale: Scale,
  from: number,
  to: number,
  most: number,
): Tick[] {
  const isLinear = scale === "value" && axis.at !== null;
  return isLinear ? linearTicks(axis, from, to, most) : orderTicks(axis, from, to, most);
}
