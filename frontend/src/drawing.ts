/** Draws the picture of the files onto a canvas, part by part. */

import { ticks } from "./axis.ts";
import { depthBySlice } from "./depth.ts";
import { visible } from "./dom.ts";
import * as format from "./format.ts";
import { TONES, type Tone } from "./groups.ts";
import { CAPTION, DEPTH, GAP, type Layout } from "./layout.ts";
import { type Block, blocksOfLine, type Span } from "./lod.ts";
import { type Palette, PICTURE_FONT } from "./theme.ts";

const MAX_BAR = 26;
const MIN_ROW_FOR_GROUPS = 9;
/** Tones from here on say that a file changes, may change, or needs attention. */
const FIRST_IMPORTANT = TONES.indexOf("added");
/** The most bars that are drawn larger than they are; more of them are seen anyway. */
const MAX_ENLARGED = 60;
/** The share of the picture that bars cover at most to be drawn larger than they are. */
const MAX_SPARSE = 0.02;
const TICK_ROOM = 110;
const LABEL_ROOM = 16;

/** The rows that are marked. */
export interface Marks {
  readonly selected: number | null;
  readonly hovered: number | null;
}

export class Drawing {
  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly layout: Layout,
    private readonly palette: Palette,
  ) {}

  draw(marks: Marks): void {
    this.context.font = PICTURE_FONT;
    this.context.textBaseline = "middle";
    this.drawBackground();
    this.drawFiles();
    this.drawMarks(marks);
    if (this.layout.axis !== undefined) this.drawSizes();
    this.drawDepth();
    this.drawTicks();
    this.drawPartitions();
  }

  private drawBackground(): void {
    const { context, layout } = this;
    const { left, top, width, height, sizesLeft, sizesRight } = layout;
    context.fillStyle = this.palette.well;
    context.fillRect(left, top, width, height);
    if (sizesRight > sizesLeft) context.fillRect(sizesLeft, top, sizesRight - sizesLeft, height);
  }

  private drawFiles(): void {
    const { layout } = this;
    this.clip(layout.left, layout.top, layout.width, layout.height, () => {
      const { isExact, first, end, rowHeight } = layout.level;
      if (!isExact) this.drawLines();
      else for (let row = first; row < end; row += 1) this.drawFile(row, rowHeight);
    });
  }

  private drawFile(row: number, rowHeight: number): void {
    const { context, layout } = this;
    const file = layout.scene.order[row] ?? -1;
    const span = layout.spanOf(file);
    if (span === null) return;
    const [y, height] = barOf(layout.toY(row), rowHeight);
    const { tone } = layout.scene.grouping.groupOf(file);
    const [x, width] = layout.extent(span);
    const isKnown = layout.axis === undefined || layout.isRangeKnown(file);
    const first = layout.scene.data.firstGroup[file] ?? 0;
    const end = layout.scene.data.firstGroup[file + 1] ?? first;
    const hasRoom = isKnown && layout.axis !== undefined && rowHeight >= MIN_ROW_FOR_GROUPS;
    const hasGroups = hasRoom && layout.places.groupLow.length > 0;
    context.fillStyle = this.palette.tones[tone];
    context.globalAlpha = hasGroups ? 0.28 : isKnown ? 1 : 0.3;
    context.fillRect(x, y, width, height);
    context.globalAlpha = 1;
    if (hasGroups) this.drawGroups(file, first, end, tone, y, height);
  }

  /** The row groups of a file side by side, or as steps from its first to its last if they overlap. */
  private drawGroups(
    file: number,
    first: number,
    end: number,
    tone: Tone,
    y: number,
    height: number,
  ): void {
    const { context, layout } = this;
    const { groupLow, groupHigh } = layout.places;
    const touched = layout.scene.touchedGroups?.[String(file)];
    const step = height / Math.max(1, end - first);
    const isStepped = step >= 1 && layout.groupsOverlap(first, end);
    context.fillStyle = this.palette.tones[tone];
    for (let group = first; group < end; group += 1) {
      const span = { x0: groupLow[group] ?? Number.NaN, x1: groupHigh[group] ?? Number.NaN };
      if (Number.isNaN(span.x0) || Number.isNaN(span.x1)) continue;
      const [x, width] = layout.extent(span);
      // What has no key of the source stays pale: it will be copied as bytes, or was.
      const isTouched = touched === undefined || touched.includes(group - first);
      context.globalAlpha = isTouched ? 1 : 0.35;
      const top = isStepped ? y + (group - first) * step : y;
      const gap = width > 6 && group + 1 < end ? 1 : 0;
      context.fillRect(x, top, Math.max(2, width - gap), isStepped ? Math.max(1.5, step) : height);
    }
    context.globalAlpha = 1;
  }

  /** Files that share lines of pixels. */
  private drawLines(): void {
    const { context, layout } = this;
    const { grouping, order } = layout.scene;
    const spanOf = (file: number): Span | null =>
      layout.axis === undefined || layout.isRangeKnown(file) ? layout.spanOf(file) : null;
    const toneOf = (file: number) => TONES.indexOf(grouping.groupOf(file).tone);
    const gap = (layout.view.x1 - layout.view.x0) / (2 * Math.max(1, layout.width));
    const important: { y: number; block: Block }[] = [];
    const others: { y: number; block: Block }[] = [];
    const draw = (y: number, block: Block, least: number, height: number) => {
      const [x, width] = layout.extent(block);
      const more = width === 0 ? 0 : Math.max(0, least - width);
      context.fillStyle = this.palette.tones[TONES[block.tone] ?? "plain"];
      context.fillRect(x - more / 2, y - (height - 1) / 2, width + more, height);
    };
    for (const { y, from, end } of layout.lines()) {
      for (const block of blocksOfLine(order.slice(from, end), toneOf, spanOf, gap)) {
        (block.tone >= FIRST_IMPORTANT ? important : others).push({ y, block });
      }
    }
    // Short ranges with much room around them would be single pixels, which nobody sees.
    const covered = others.reduce((sum, { block }) => sum + layout.extent(block)[1], 0);
    const isSparse = covered < MAX_SPARSE * layout.width * layout.height;
    for (const { y, block } of others) draw(y, block, isSparse ? 4 : 0, isSparse ? 2 : 1);
    // One file that changes among ten thousand must be seen, so it is drawn larger, and last.
    const isRare = important.length < MAX_ENLARGED;
    important.sort((a, b) => a.block.tone - b.block.tone);
    for (const { y, block } of important) draw(y, block, isRare ? 6 : 0, isRare ? 4 : 1);
  }

  /** The selected file, the one under the pointer, and the key that is looked for. */
  private drawMarks({ selected, hovered }: Marks): void {
    const { context, layout, palette } = this;
    this.clip(0, layout.top - 1, layout.sizesRight, layout.height + 2, () => {
      if (selected !== null) this.strokeRow(selected, palette.ink, 1.5);
      if (hovered !== null && hovered !== selected) this.strokeRow(hovered, palette.muted, 1);
      const at = layout.keyPosition;
      if (at === null) return;
      context.strokeStyle = palette.ink;
      context.setLineDash([4, 3]);
      context.beginPath();
      context.moveTo(layout.toX(at), layout.top);
      context.lineTo(layout.toX(at), layout.bottom);
      context.stroke();
      context.setLineDash([]);
    });
  }

  private strokeRow(row: number, colour: string, width: number): void {
    const { context, layout } = this;
    const top = layout.toY(row);
    const height = layout.toY(row + 1) - top;
    const more = Math.max(0, 4 - height);
    context.strokeStyle = colour;
    context.lineWidth = width;
    const right = layout.sizesRight - layout.left - 1.5;
    context.strokeRect(layout.left + 0.75, top - more / 2, right, height + more);
    context.lineWidth = 1;
  }

  private drawSizes(): void {
    const { context, layout } = this;
    const { sizesLeft, sizesRight, top, height } = layout;
    const { data, order } = layout.scene;
    const width = sizesRight - sizesLeft;
    const draw = (size: number, isSmall: boolean, y: number, thickness: number) => {
      const length = Math.max(1.5, (size / layout.places.maxBytes) * width);
      context.fillStyle = this.palette.tones[isSmall ? "open" : "kept"];
      context.fillRect(sizesLeft, y, length, thickness);
    };
    this.clip(sizesLeft, top, width, height, () => {
      const { isExact, first, end, rowHeight } = layout.level;
      for (let row = first; isExact && row < end; row += 1) {
        const file = order[row] ?? -1;
        const size = data.bytes(file);
        if (size !== null) draw(size, data.isSmall(file), ...barOf(layout.toY(row), rowHeight));
      }
      if (isExact) return;
      for (const line of layout.lines()) {
        const files = order.slice(line.from, line.end).filter((file) => data.bytes(file) !== null);
        const total = files.reduce((sum, file) => sum + (data.bytes(file) ?? 0), 0);
        const small = files.filter((file) => data.isSmall(file)).length;
        if (files.length > 0) draw(total / files.length, 2 * small >= files.length, line.y, 1);
      }
    });
    const caption = this.sizeCaption();
    this.write(context.measureText(caption).width <= width ? caption : "Size", sizesLeft);
  }

  private sizeCaption(): string {
    return `Size, to ${format.bytes(this.layout.places.maxBytes)}`;
  }

  private drawDepth(): void {
    const { context, layout, palette } = this;
    const { depth } = layout.places;
    if (depth === null) {
      this.write(this.sizeCaption(), layout.left);
      return;
    }
    const width = Math.max(1, Math.floor(layout.width));
    const slices = depthBySlice(depth, layout.view.x0, layout.view.x1, width);
    const most = slices.reduce((a, b) => Math.max(a, b), 0);
    const caption = `Files that may hold a key: up to ${format.count(most)}`;
    this.write(this.cut(caption, width), layout.left);
    context.fillStyle = palette.well;
    context.fillRect(layout.left, CAPTION, width, DEPTH);
    slices.forEach((value, x) => {
      if (value === 0) return;
      const height = Math.max(2, (value / Math.max(2, depth.max)) * DEPTH);
      context.fillStyle = value > 1 ? palette.tones.open : palette.tones.kept;
      context.fillRect(layout.left + x, CAPTION + DEPTH - height, 1, height);
    });
  }

  private drawTicks(): void {
    const { context, layout, palette } = this;
    const { axis, scene, view, left, right, bottom } = layout;
    if (axis === undefined || axis.length === 0) return;
    context.fillStyle = palette.muted;
    context.textAlign = "center";
    let free = Number.NEGATIVE_INFINITY;
    const most = Math.max(2, Math.floor(layout.width / TICK_ROOM));
    for (const tick of ticks(axis, scene.scale, view.x0, view.x1, most)) {
      const x = layout.toX(tick.at);
      if (x < left - 1 || x > right + 1) continue;
      const text = this.cut(tick.text, TICK_ROOM - 6);
      const half = context.measureText(text).width / 2;
      const at = Math.min(Math.max(x, left + half), right - half);
      if (at - half < free) continue;
      free = at + half + 10;
      context.fillRect(Math.min(x, right - 1), bottom, 1, 5);
      context.fillText(text, at, bottom + 14);
    }
  }

  private drawPartitions(): void {
    const { context, layout, palette } = this;
    if (layout.left === 0) return;
    const room = layout.left - GAP;
    const columns = format.listed(layout.scene.data.model.dataset.partitionColumns);
    this.write(this.cut(columns, room), 0);
    let free = layout.top;
    for (const { name, from, end } of layout.partitionLabels(LABEL_ROOM)) {
      const top = Math.max(layout.toY(from), layout.top);
      const bottom = Math.min(layout.toY(end), layout.bottom);
      if (top < free || top + 12 > layout.bottom || bottom <= layout.top) continue;
      context.fillStyle = palette.line;
      context.fillRect(0, top, layout.left, 1);
      context.fillStyle = palette.ink;
      context.fillText(this.cut(name, room), 0, top + 9);
      free = top + LABEL_ROOM;
    }
  }

  /** Write a caption at the top. */
  private write(text: string, x: number): void {
    this.context.fillStyle = this.palette.muted;
    this.context.textAlign = "left";
    this.context.fillText(text, x, CAPTION / 2);
  }

  /** The text, or its beginning if it is wider than so many pixels. */
  private cut(name: string, width: number): string {
    const { context } = this;
    const text = visible(name);
    if (context.measureText(text).width <= width) return text;
    let length = text.length;
    while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
    return `${text.slice(0, length)}…`;
  }

  private clip(x: number, y: number, width: number, height: number, draw: () => void): void {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, width, height);
    this.context.clip();
    draw();
    this.context.restore();
  }
}

/** Top and height of the bar in a line, which leaves some room to the lines around it. */
function barOf(top: number, rowHeight: number): [y: number, height: number] {
  const height = Math.min(MAX_BAR, rowHeight);
  const inset = height >= 4 ? Math.min(3, height * 0.18) : 0;
  return [top + (rowHeight - height) / 2 + inset, Math.max(1, height - 2 * inset)];
}
