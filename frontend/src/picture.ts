/**
 * The picture of the files: a line for each, from its least to its greatest key, in the order of the
 * table. Above it stands how many files may hold a key, beside it how large each file is.
 *
 * It draws what fits: a bar for each file, with its row groups where there is room, or bars for all
 * files that share a line of pixels. The table below it says the same to those who cannot see it.
 */

import { h } from "./dom.ts";
import { Drawing } from "./drawing.ts";
import * as format from "./format.ts";
import { heightFor, Layout, type Places, placesOf, type Point, type Scene } from "./layout.ts";
import { colours } from "./theme.ts";
import { clamp, isWhole, pan, reveal, type Viewport, wholeOf, zoom } from "./viewport.ts";

const WHEEL_STEP = 1.0015;
/** A pointer that moves further than this drags, and does not choose. */
const MAX_CLICK_PIXELS = 5;

export class Picture {
  readonly element: HTMLElement;
  private readonly canvas: HTMLCanvasElement;
  private readonly tip: HTMLElement;
  private readonly showAll: HTMLButtonElement;
  private readonly legend: HTMLElement;
  private scene: Scene | null = null;
  private places: Places | null = null;
  private view: Viewport = wholeOf(0);
  private hovered: number | null = null;
  private rowOf = new Map<number, number>();
  private isScheduled = false;
  private readonly pointers = new Map<number, Point>();
  private dragged = 0;

  constructor(private readonly onSelect: (file: number, byKeyboard: boolean) => void) {
    this.canvas = h("canvas", {
      id: "picture",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "picture of files",
      "aria-describedby": "picture-keys",
    });
    this.tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.showAll = button("Show all", () => this.setView(wholeOf(this.files)));
    this.legend = h("p", { class: "hint" });
    const hint = h(
      "p",
      { class: "hint", id: "picture-keys" },
      "Arrow keys go from file to file, Enter shows one. Zoom with + and −, or with the wheel " +
        "after a click; move with a drag or Shift and the arrow keys; 0 shows all.",
    );
    const tools = h(
      "div",
      { class: "tools" },
      button("Zoom in", () => this.zoomBy(0.5)),
      button("Zoom out", () => this.zoomBy(2)),
      this.showAll,
    );
    const stage = h("div", { class: "stage" }, this.canvas, this.tip);
    this.element = h("div", { class: "picture" }, stage, h("div", { class: "under" }, this.legend, hint, tools));
    this.listen();
    new ResizeObserver(() => this.schedule()).observe(stage);
  }

  /** Show another scene; the window stays where it is if the files are the same. */
  update(scene: Scene): void {
    const { scene: before } = this;
    const isSameOrder = before?.order === scene.order && before.axis === scene.axis;
    if (!isSameOrder || before.scale !== scene.scale) this.places = placesOf(scene);
    this.scene = scene;
    if (!isSameOrder) {
      this.rowOf = new Map(scene.order.map((file, row) => [file, row]));
      this.view = wholeOf(this.files);
      this.hovered = null;
    }
    const hasPale =
      scene.data.model.rowGroups !== null &&
      Object.entries(scene.touchedGroups ?? {}).some(
        ([file, groups]) => groups.length < (scene.data.groups(Number(file)) ?? 0),
      );
    this.legend.textContent = hasPale ? `Pale row groups ${scene.othersAre}.` : "";
    this.legend.hidden = !hasPale;
    const row = this.selectedRow;
    if (row !== null) this.view = reveal(this.view, this.files, row);
    this.canvas.setAttribute("aria-label", this.description());
    this.schedule();
  }

  /** Draw again soon, such as after the colours have changed. */
  schedule(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => {
      this.isScheduled = false;
      this.draw();
    });
  }

  /** Draw now, as printing does not wait. */
  draw(): void {
    const { canvas } = this;
    const width = canvas.parentElement?.clientWidth ?? 0;
    const height = heightFor(this.files);
    const layout = this.layout(width, height);
    const context = canvas.getContext("2d");
    if (layout === null || context === null || width === 0) return;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    context.scale(ratio, ratio);
    const drawing = new Drawing(context, layout, colours());
    drawing.draw({ selected: this.selectedRow, hovered: this.hovered });
    this.showAll.disabled = isWhole(this.view, this.files);
  }

  private layout(
    width = this.canvas.clientWidth,
    height = this.canvas.clientHeight,
  ): Layout | null {
    const { scene, places } = this;
    if (scene === null || places === null) return null;
    return new Layout(scene, places, this.view, width, height);
  }

  private get files(): number {
    return this.scene?.order.length ?? 0;
  }

  private get selectedRow(): number | null {
    const selected = this.scene?.selected ?? null;
    return selected === null ? null : (this.rowOf.get(selected) ?? null);
  }

  private description(): string {
    const axis = this.scene?.data.model.axes[this.scene.axis];
    const what = axis === undefined ? "Sizes" : `Ranges of the key ${axis.column}`;
    const most = this.places?.depth?.max ?? 0;
    const overlap = most > 0 ? ` A key may be in up to ${format.counted(most, "file")}.` : "";
    const files = format.counted(this.files, "file");
    return `${what} of ${files}.${overlap} The table below has the same files.`;
  }

  private setView(view: Viewport): void {
    this.view = clamp(view, this.files);
    this.schedule();
  }

  /** Zoom around a point; without one around the selected file, or else around the middle. */
  private zoomBy(factor: number, at: Point | undefined = this.center()): void {
    const hasAxis = this.scene?.data.model.axes[this.scene.axis] !== undefined;
    const factors = { x: hasAxis ? factor : 1, y: factor };
    if (at !== undefined) this.setView(zoom(this.view, this.files, factors, at));
  }

  private center(): Point | undefined {
    const { x0, x1, y0, y1 } = this.view;
    const row = this.selectedRow;
    if (row === null || row < y0 || row > y1) return { x: (x0 + x1) / 2, y: (y0 + y1) / 2 };
    const span = this.layout()?.spanOf(this.scene?.selected ?? -1);
    const middle = span ? (span.x0 + span.x1) / 2 : (x0 + x1) / 2;
    return { x: Math.min(Math.max(middle, x0), x1), y: row + 0.5 };
  }

  private listen(): void {
    const { canvas } = this;
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.onPointerDown(event));
    canvas.addEventListener("pointermove", (event) => this.onPointerMove(event));
    canvas.addEventListener("pointerup", (event) => this.onPointerUp(event));
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => this.hover(null, 0, 0));
    canvas.addEventListener("dblclick", (event) => {
      this.zoomBy(0.4, this.layout()?.fromPoint(event.offsetX, event.offsetY));
    });
  }

  private onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || this.files === 0) return;
    const isHandled = event.shiftKey
      ? this.panByKey(event.key) || this.zoomByKey(event.key)
      : this.moveByKey(event.key) || this.panByKey(event.key) || this.zoomByKey(event.key);
    if (isHandled) event.preventDefault();
  }

  private moveByKey(key: string): boolean {
    const selected = this.scene?.selected ?? null;
    if (key === "Enter" && selected !== null) {
      this.onSelect(selected, true);
      return true;
    }
    const page = Math.max(1, Math.floor(this.view.y1 - this.view.y0) - 1);
    const moves: Record<string, number> = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: Number.NEGATIVE_INFINITY,
      End: Number.POSITIVE_INFINITY,
    };
    const by = moves[key];
    if (by === undefined) return false;
    const from = this.selectedRow ?? (by > 0 ? Math.floor(this.view.y0) - 1 : this.files);
    const row = Math.min(Math.max(from + by, 0), this.files - 1);
    const file = this.scene?.order[row];
    if (file !== undefined) this.onSelect(file, false);
    return true;
  }

  private panByKey(key: string): boolean {
    const { x0, x1, y0, y1 } = this.view;
    const steps: Record<string, Point> = {
      ArrowDown: { x: 0, y: (y1 - y0) / 5 },
      ArrowUp: { x: 0, y: (y0 - y1) / 5 },
      ArrowRight: { x: (x1 - x0) / 5, y: 0 },
      ArrowLeft: { x: (x0 - x1) / 5, y: 0 },
    };
    const by = steps[key];
    if (by !== undefined) this.setView(pan(this.view, this.files, by));
    return by !== undefined;
  }

  private zoomByKey(key: string): boolean {
    if (key === "0") this.setView(wholeOf(this.files));
    else if (key === "+" || key === "=") this.zoomBy(0.5);
    else if (key === "-" || key === "_") this.zoomBy(2);
    else return false;
    return true;
  }

  private onWheel(event: WheelEvent): void {
    // Otherwise a page with a picture could not be scrolled past it.
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.canvas) return;
    event.preventDefault();
    const amount = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 * event.deltaY : event.deltaY;
    const at = this.layout()?.fromPoint(event.offsetX, event.offsetY);
    if (at === undefined) return;
    if (!event.shiftKey) this.zoomBy(WHEEL_STEP ** amount, at);
    else this.setView(zoom(this.view, this.files, { x: WHEEL_STEP ** amount, y: 1 }, at));
  }

  private onPointerDown(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    this.dragged = 0;
    this.canvas.setPointerCapture(event.pointerId);
  }

  private onPointerMove(event: PointerEvent): void {
    const layout = this.layout();
    if (layout === null) return;
    const now = { x: event.offsetX, y: event.offsetY };
    const before = this.pointers.get(event.pointerId);
    if (before === undefined) {
      this.hover(layout.rowAt(now.x, now.y), now.x, now.y);
      return;
    }
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.pointers.set(event.pointerId, now);
    this.dragged += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    this.hover(null, 0, 0);
    if (other !== undefined) {
      const factor = distance(before, other) / distance(now, other);
      this.zoomBy(factor, layout.fromPoint(other.x, other.y));
      return;
    }
    const from = layout.fromPoint(before.x, before.y);
    const to = layout.fromPoint(now.x, now.y);
    this.setView(pan(this.view, this.files, { x: from.x - to.x, y: from.y - to.y }));
  }

  private onPointerUp(event: PointerEvent): void {
    const wasDown = this.pointers.delete(event.pointerId);
    if (!wasDown || this.dragged > MAX_CLICK_PIXELS) return;
    const row = this.layout()?.rowAt(event.offsetX, event.offsetY) ?? null;
    const file = row === null ? undefined : this.scene?.order[row];
    if (file !== undefined) this.onSelect(file, false);
  }

  private hover(row: number | null, x: number, y: number): void {
    const isChanged = row !== this.hovered;
    this.hovered = row;
    this.canvas.classList.toggle("over-file", row !== null);
    const file = row === null ? undefined : this.scene?.order[row];
    this.tip.hidden = file === undefined;
    if (this.scene !== null && file !== undefined) {
      if (isChanged) this.tip.replaceChildren(...tipLines(this.scene, file));
      const room = Math.max(0, this.canvas.clientWidth - this.tip.offsetWidth);
      const left = Math.min(Math.max(0, x + 14), room);
      this.tip.style.transform = `translate(${left}px, ${y + 18}px)`;
    }
    if (isChanged) this.schedule();
  }
}

function tipLines({ data, grouping, axis: axisNumber }: Scene, file: number): HTMLElement[] {
  const axis = data.model.axes[axisNumber];
  const rows = data.rows(file);
  const sizes = [format.bytes(data.bytes(file))];
  if (rows !== null) sizes.push(format.counted(rows, "row"));
  const lines = [h("strong", {}, data.path(file)), h("span", {}, grouping.groupOf(file).label)];
  if (axis !== undefined) {
    lines.push(h("span", {}, `${axis.column}: ${data.range(file, axisNumber)}`));
  }
  lines.push(h("span", {}, format.listed(sizes)));
  return lines;
}

function distance(a: Point, b: Point): number {
  return Math.max(10, Math.hypot(a.x - b.x, a.y - b.y));
}

function button(text: string, onClick: () => void): HTMLButtonElement {
  return h("button", { type: "button", class: "quiet", click: onClick }, text);
}
