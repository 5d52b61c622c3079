/** Which part of a picture is shown: a window of key values (x, from 0 to 1) and of files (y). */

export interface Viewport {
  readonly x0: number;
  readonly x1: number;
  readonly y0: number;
  readonly y1: number;
}

/** The smallest window: a ten-millionth of the key range, and three files. */
const MIN_WIDTH = 1e-7;
const MIN_FILES = 3;

/** The whole picture of so many files. */
export function wholeOf(files: number): Viewport {
  return { x0: 0, x1: 1, y0: 0, y1: Math.max(1, files) };
}

/** Whether everything is shown. */
export function isWhole(view: Viewport, files: number): boolean {
  const all = wholeOf(files);
  return view.x0 <= all.x0 && view.x1 >= all.x1 && view.y0 <= all.y0 && view.y1 >= all.y1;
}

function moved(low: number, high: number, min: number, max: number): [number, number] {
  const span = Math.min(high - low, max - min);
  const start = Math.min(Math.max(low, min), max - span);
  return [start, start + span];
}

/** The window, moved and cut so that it is inside the picture. */
export function clamp(view: Viewport, files: number): Viewport {
  const all = wholeOf(files);
  const [x0, x1] = moved(view.x0, view.x1, all.x0, all.x1);
  const [y0, y1] = moved(view.y0, view.y1, all.y0, all.y1);
  return { x0, x1, y0, y1 };
}

function scaled(
  low: number,
  high: number,
  at: number,
  factor: number,
  least: number,
  most: number,
): [number, number] {
  const span = Math.min(Math.max((high - low) * factor, least), most);
  const share = high === low ? 0.5 : (at - low) / (high - low);
  return [at - share * span, at + (1 - share) * span];
}

/** Zoom around a point, which stays where it is; a factor below 1 shows less and larger. */
export function zoom(
  view: Viewport,
  files: number,
  factor: { x: number; y: number },
  at: { x: number; y: number },
): Viewport {
  const rows = Math.max(1, files);
  const [x0, x1] = scaled(view.x0, view.x1, at.x, factor.x, MIN_WIDTH, 1);
  const least = Math.min(MIN_FILES, rows);
  const [y0, y1] = scaled(view.y0, view.y1, at.y, factor.y, least, rows);
  return clamp({ x0, x1, y0, y1 }, files);
}

/** Move the window. */
export function pan(view: Viewport, files: number, by: { x: number; y: number }): Viewport {
  const { x, y } = by;
  return clamp({ x0: view.x0 + x, x1: view.x1 + x, y0: view.y0 + y, y1: view.y1 + y }, files);
}

/** Move the window as little as needed to show one file. */
export function reveal(view: Viewport, files: number, row: number): Viewport {
  if (row < view.y0) return pan(view, files, { x: 0, y: row - view.y0 });
  if (row + 1 > view.y1) return pan(view, files, { x: 0, y: row + 1 - view.y1 });
  return view;
}
