/** Which rows of a long table are rendered: those in sight, some around them, and the active one. */

/** Rows that are rendered above and below those in sight, so that scrolling shows no gap. */
const AROUND = 8;

export function rowsToRender(
  scrollTop: number,
  height: number,
  rowHeight: number,
  rows: number,
  active: number | null,
): number[] {
  const first = Math.max(0, Math.floor(scrollTop / rowHeight) - AROUND);
  const end = Math.min(rows, Math.ceil((scrollTop + height) / rowHeight) + AROUND);
  const inSight = Array.from({ length: Math.max(0, end - first) }, (_, i) => first + i);
  if (active === null || active >= rows || (active >= first && active < end)) return inSight;
  // The row with the focus stays, or the focus would be lost.
  return active < first ? [active, ...inSight] : [...inSight, active];
}

/** The row that a key moves to; null if it is not a key that moves. */
export function rowAfterKey(key: string, row: number, rows: number, page: number): number | null {
  const targets: Record<string, number> = {
    ArrowDown: row + 1,
    ArrowUp: row - 1,
    PageDown: row + page,
    PageUp: row - page,
    Home: 0,
    End: rows - 1,
  };
  const target = targets[key];
  return target === undefined || rows === 0 ? null : Math.min(Math.max(target, 0), rows - 1);
}
