/**
 * A table of any length that renders only the rows in sight.
 *
 * It is one stop of the Tab key behind its headings: arrow keys, Page Up, Page Down, Home and End go
 * from row to row, Enter or Space chooses one. Rows know their number, so a screen reader can say
 * which of how many it reads.
 */

import { fill, h } from "./dom.ts";
import { count } from "./format.ts";
import { rowAfterKey, rowsToRender } from "./rows.ts";

export interface GridColumn<Item> {
  readonly id: string;
  readonly title: string;
  /** Its least width in rem. */
  readonly least: number;
  /** Its share of the room that is left; 0 if it stays at its least width. */
  readonly share?: number;
  readonly isNumber?: boolean;
  /** Whether it stays on a narrow screen. */
  readonly isNarrow?: boolean;
  readonly isSortable?: boolean;
  readonly render: (item: Item) => (Node | string)[];
}

export interface GridOptions<Item> {
  readonly id: string;
  readonly label: string;
  readonly columns: readonly GridColumn<Item>[];
  readonly onChoose: (item: Item, byKeyboard: boolean) => void;
  readonly onSort?: (column: string) => void;
  /** What stands in place of the rows if there are none. */
  readonly empty: () => string;
}

interface GridSorting {
  readonly by: string;
  readonly descending: boolean;
}

const ROW_HEIGHT = 34;
const PRINTED_ROWS = 300;
/** On a narrow screen, so that the last column is in sight. */
const NARROW_SHARE = 0.6;

export class Grid<Item> {
  readonly element: HTMLElement;
  private readonly scroller: HTMLElement;
  private readonly body: HTMLElement;
  private readonly head: HTMLElement;
  private readonly empty: HTMLElement;
  private readonly notPrinted: HTMLElement;
  private readonly rendered = new Map<number, HTMLElement>();
  private columns: readonly GridColumn<Item>[];
  private items: readonly Item[] = [];
  private active = 0;
  private selected: number | null = null;
  private isPrinting = false;

  constructor(private readonly options: GridOptions<Item>) {
    this.columns = options.columns;
    this.head = h("div", { role: "row", class: "row heading", "aria-rowindex": 1 });
    this.body = h("div", { role: "rowgroup", class: "body" });
    this.empty = h("p", { class: "empty", hidden: true });
    const headGroup = h("div", { role: "rowgroup" }, this.head);
    this.scroller = h(
      "div",
      { role: "grid", id: options.id, class: "grid", "aria-label": options.label },
      headGroup,
      this.body,
    );
    this.notPrinted = h("p", { class: "empty print-only" });
    const parts = [this.scroller, this.empty, this.notPrinted];
    this.element = h("div", { class: "grid-frame" }, ...parts);
    this.scroller.addEventListener("scroll", () => this.render(), { passive: true });
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    this.body.addEventListener("click", (event) => this.onClick(event));
    this.body.addEventListener("focusin", (event) => this.onFocus(event));
    new ResizeObserver(() => this.render()).observe(this.scroller);
    window.addEventListener("beforeprint", () => this.renderForPaper());
    window.addEventListener("afterprint", () => {
      this.isPrinting = false;
      this.render();
    });
  }

  /** Show other items; the selected one is the active one, if it is among them. */
  update(
    items: readonly Item[],
    selected: number | null,
    sorting: GridSorting | null,
    columns: readonly GridColumn<Item>[] = this.columns,
  ): void {
    const isSame = items === this.items;
    const hadFocus = this.body.contains(document.activeElement);
    this.items = items;
    this.columns = columns;
    this.selected = selected;
    if (selected !== null) this.active = selected;
    else if (!isSame) this.active = 0;
    this.active = Math.min(this.active, Math.max(0, items.length - 1));
    this.scroller.setAttribute("aria-rowcount", String(items.length + 1));
    this.scroller.style.setProperty("--tracks", tracks(columns));
    const narrow = columns.filter((column) => column.isNarrow === true);
    this.scroller.style.setProperty("--tracks-narrow", tracks(narrow, NARROW_SHARE));
    const printed = columns.map(({ least }) => `minmax(0, ${least}fr)`);
    this.scroller.style.setProperty("--tracks-print", printed.join(" "));
    this.scroller.style.setProperty("--least", `${leastWidth(columns)}rem`);
    this.body.style.height = `${items.length * ROW_HEIGHT}px`;
    this.body.hidden = items.length === 0;
    this.empty.hidden = items.length > 0;
    this.empty.textContent = items.length > 0 ? "" : this.options.empty();
    this.renderHead(sorting);
    for (const row of this.rendered.values()) row.remove();
    this.rendered.clear();
    if (!isSame) this.scroller.scrollTop = 0;
    if (selected !== null) this.scrollTo(selected);
    this.render();
    // The row that had the focus was made again.
    if (hadFocus) this.rendered.get(this.active)?.focus({ preventScroll: true });
  }

  /** Move the focus into the table. */
  focus(): void {
    this.scrollTo(this.active);
    this.render();
    this.rendered.get(this.active)?.focus({ preventScroll: true });
  }

  private renderHead(sorting: GridSorting | null): void {
    const before = document.activeElement?.getAttribute("data-sort");
    const hadFocus = this.head.contains(document.activeElement);
    fill(this.head, ...this.columns.map((column) => this.heading(column, sorting)));
    if (hadFocus) {
      this.head.querySelector<HTMLElement>(`[data-sort="${before ?? ""}"]`)?.focus();
    }
  }

  private heading(column: GridColumn<Item>, sorting: GridSorting | null): HTMLElement {
    const isSorted = sorting?.by === column.id;
    const direction = isSorted && sorting.descending ? "descending" : "ascending";
    const { onSort } = this.options;
    const content =
      onSort === undefined || column.isSortable === false
        ? column.title
        : h(
            "button",
            { type: "button", "data-sort": column.id, click: () => onSort(column.id) },
            column.title,
            h("span", { class: "arrow", "aria-hidden": "true" }, sortMark(isSorted, direction)),
          );
    const attributes = {
      role: "columnheader",
      class: classOf(column),
      "aria-sort": isSorted ? direction : null,
    };
    return h("div", attributes, content);
  }

  /** Paper does not scroll, so the first rows are printed, and the number of those left out. */
  private renderForPaper(): void {
    this.isPrinting = true;
    const printed = Math.min(PRINTED_ROWS, this.items.length);
    this.renderRows(Array.from({ length: printed }, (_, row) => row));
    const left = this.items.length - printed;
    this.notPrinted.hidden = left === 0;
    this.notPrinted.textContent = `${count(left)} more are not printed.`;
  }

  private render(): void {
    if (this.isPrinting) return;
    const height = this.scroller.clientHeight - ROW_HEIGHT;
    const top = this.scroller.scrollTop;
    this.renderRows(rowsToRender(top, height, ROW_HEIGHT, this.items.length, this.active));
  }

  private renderRows(numbers: readonly number[]): void {
    const wanted = new Set(numbers);
    for (const [number, row] of this.rendered) {
      if (wanted.has(number)) continue;
      row.remove();
      this.rendered.delete(number);
    }
    for (const number of numbers) {
      if (this.rendered.has(number)) continue;
      const row = this.row(number);
      if (row === null) continue;
      this.insert(number, row);
    }
  }

  /** Rows are in the order of their numbers, as a screen reader reads them. */
  private insert(number: number, row: HTMLElement): void {
    let next: HTMLElement | null = null;
    let nearest = Number.POSITIVE_INFINITY;
    for (const [other, element] of this.rendered) {
      if (other > number && other < nearest) [nearest, next] = [other, element];
    }
    this.body.insertBefore(row, next);
    this.rendered.set(number, row);
  }

  private row(number: number): HTMLElement | null {
    const item = this.items[number];
    if (item === undefined) return null;
    const row = h(
      "div",
      {
        role: "row",
        class: "row",
        tabindex: number === this.active ? "0" : "-1",
        "aria-rowindex": number + 2,
        "aria-selected": number === this.selected ? "true" : "false",
        "data-row": number,
      },
      ...this.columns.map((column) =>
        h("div", { role: "gridcell", class: classOf(column) }, ...column.render(item)),
      ),
    );
    row.style.top = `${number * ROW_HEIGHT}px`;
    return row;
  }

  private scrollTo(row: number): void {
    const { scroller } = this;
    const top = row * ROW_HEIGHT;
    const height = scroller.clientHeight - ROW_HEIGHT;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + ROW_HEIGHT > scroller.scrollTop + height) {
      scroller.scrollTop = top + ROW_HEIGHT - height;
    }
  }

  private setActive(row: number): void {
    this.rendered.get(this.active)?.setAttribute("tabindex", "-1");
    this.active = row;
    this.scrollTo(row);
    this.render();
    const element = this.rendered.get(row);
    element?.setAttribute("tabindex", "0");
    element?.focus({ preventScroll: true });
  }

  private onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW_HEIGHT) - 2);
    const target = rowAfterKey(event.key, this.active, this.items.length, page);
    if (target !== null) this.setActive(target);
    else if (event.key === "Enter" || event.key === " ") this.choose(this.active, true);
    else return;
    event.preventDefault();
  }

  private onClick(event: Event): void {
    const row = rowOf(event.target);
    if (row === null) return;
    this.setActive(row);
    this.choose(row, false);
  }

  private onFocus(event: Event): void {
    const row = rowOf(event.target);
    if (row !== null && row !== this.active) this.setActive(row);
  }

  private choose(row: number, byKeyboard: boolean): void {
    const item = this.items[row];
    if (item !== undefined) this.options.onChoose(item, byKeyboard);
  }
}

/** The tracks of a row; columns that share what room there is may be cut to a part of their width. */
function tracks<Item>(columns: readonly GridColumn<Item>[], part = 1): string {
  return columns
    .map(({ least, share }) => (share ? `minmax(${least * part}rem, ${share}fr)` : `${least}rem`))
    .join(" ");
}

/** The least width of a row in rem: its columns, the gaps between them, and its padding. */
function leastWidth<Item>(columns: readonly GridColumn<Item>[]): number {
  return columns.reduce((sum, { least }) => sum + least + 0.75, 0.75);
}

function classOf<Item>(column: GridColumn<Item>): string {
  const classes = ["cell"];
  if (column.isNumber === true) classes.push("number");
  if (column.isNarrow !== true) classes.push("wide-only");
  return classes.join(" ");
}

function sortMark(isSorted: boolean, direction: string): string {
  if (!isSorted) return "";
  return direction === "descending" ? " ↓" : " ↑";
}

function rowOf(target: EventTarget | null): number | null {
  const row = target instanceof Element ? target.closest<HTMLElement>("[data-row]") : null;
  return row === null ? null : Number(row.dataset["row"]);
}
