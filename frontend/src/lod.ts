/**
 * The level of detail of the picture: a bar for each file where there is room, and otherwise bars
 * for files that share a line of pixels, so that 10,000 files are drawn with few rectangles.
 */

export interface Bars {
  /** The first file of the order that is drawn, and the one behind the last. */
  readonly first: number;
  readonly end: number;
  /** Whether each file has a line of its own. */
  readonly isExact: boolean;
  /** The height of one file in pixels. */
  readonly rowHeight: number;
}

/** The least height of a file, in pixels, for a bar of its own. */
const MIN_ROW = 1.5;

/** Which files a window shows, and in which detail. */
export function levelOf(y0: number, y1: number, files: number, height: number): Bars {
  const rowHeight = height / (y1 - y0);
  const first = Math.max(0, Math.floor(y0));
  const end = Math.min(files, Math.ceil(y1));
  return { first, end, isExact: rowHeight >= MIN_ROW, rowHeight };
}

export interface Span {
  readonly x0: number;
  readonly x1: number;
}

/**
 * Join ranges that overlap or are nearer than `gap`.
 *
 * The result covers what the ranges cover, and gaps that are too small to be seen.
 */
export function joined(spans: Span[], gap: number): Span[] {
  const sorted = spans.sort((a, b) => a.x0 - b.x0);
  const result: Span[] = [];
  let last: { x0: number; x1: number } | undefined;
  for (const span of sorted) {
    if (last !== undefined && span.x0 <= last.x1 + gap) last.x1 = Math.max(last.x1, span.x1);
    else {
      last = { x0: span.x0, x1: span.x1 };
      result.push(last);
    }
  }
  return result;
}

/** Files of one line of pixels with one meaning, from x0 to x1. */
export interface Block extends Span {
  readonly tone: number;
}

/**
 * The blocks of one line of pixels: files `from` to `to` of the order, joined by tone.
 *
 * Tones are drawn in ascending order, so the most important one has the greatest number and is
 * never hidden by the others.
 */
export function blocksOfLine(
  files: Iterable<number>,
  toneOf: (file: number) => number,
  rangeOf: (file: number) => Span | null,
  gap: number,
): Block[] {
  const byTone = new Map<number, Span[]>();
  for (const file of files) {
    const range = rangeOf(file);
    if (range === null) continue;
    const tone = toneOf(file);
    const spans = byTone.get(tone);
    if (spans === undefined) byTone.set(tone, [range]);
    else spans.push(range);
  }
  const tones = [...byTone.keys()].sort((a, b) => a - b);
  return tones.flatMap((tone) =>
    joined(byTone.get(tone) ?? [], gap).map(({ x0, x1 }) => ({ tone, x0, x1 })),
  );
}
