/** The section of the files: what is shown of them, the picture, the table, and one in detail. */

import { bestScale, type Scale } from "./axis.ts";
import type { Data } from "./data.ts";
import { showDetails } from "./details.ts";
import { append, byId, fill, h, visible } from "./dom.ts";
import * as format from "./format.ts";
import { type Context, type Group, type Grouping, groupingOf } from "./groups.ts";
import { Grid, type GridColumn } from "./grid.ts";
import type { Scene } from "./layout.ts";
import { link, swatch } from "./parts.ts";
import { Picture } from "./picture.ts";
import {
  type Filter,
  filtered,
  isFiltering,
  isKey,
  keyValue,
  NO_FILTER,
  SORTS,
  type SortBy,
  type Sorting,
  sortFiles,
} from "./selection.ts";
import { onColours } from "./theme.ts";
import { encodedGroups } from "./work.ts";

export interface FilesLinks {
  readonly setContext: (context: Context) => void;
  readonly announce: (text: string) => void;
}

export class FilesSection {
  private data: Data;
  private context: Context = { kind: "dataset" };
  private grouping: Grouping;
  private filter: Filter = NO_FILTER;
  private sorting: Sorting = { by: "range", descending: false };
  private axis = 0;
  private scale: Scale = "order";
  private order: number[] = [];
  private selected: number | null = null;
  private readonly picture: Picture;
  private readonly grid: Grid<number>;
  private readonly details = byId("details");
  private readonly chips = byId("chips");
  private readonly countText = byId("files-count");
  private readonly textField = byId<HTMLInputElement>("search");
  private readonly keyField = byId<HTMLInputElement>("key");
  private readonly keyHint = byId("key-hint");
  private readonly partitionField = byId<HTMLSelectElement>("partition");
  private readonly axisField = byId<HTMLSelectElement>("axis");
  private readonly scaleField = byId<HTMLSelectElement>("scale");
  private readonly contextField = byId<HTMLSelectElement>("context");

  constructor(
    data: Data,
    private readonly links: FilesLinks,
  ) {
    this.data = data;
    this.grouping = groupingOf(data, this.context);
    this.picture = new Picture((file, byKeyboard) => this.select(file, byKeyboard));
    this.grid = new Grid({
      id: "files-grid",
      label: "Files",
      columns: this.columns(),
      onChoose: (file, byKeyboard) => this.select(file, byKeyboard),
      onSort: (column) => this.sort(column),
      empty: () =>
        this.grouping.files.length === 0 ? "The dataset has no files." : "No file passes the filter.",
    });
    byId("picture-place").append(this.picture.element);
    byId("grid-place").append(this.grid.element);
    onColours(() => this.picture.schedule());
    window.addEventListener("beforeprint", () => this.picture.draw());
    this.listen();
    this.setData(data);
  }

  /** Show another state of the dataset, with the same filter. */
  setData(data: Data): void {
    const isFirst = this.order.length === 0 && this.data === data;
    // Numbers of files belong to a model; a path means the same file in both.
    const path = this.selected === null ? null : this.data.path(this.selected);
    this.data = data;
    this.filter = { ...this.filter, only: null };
    if (path !== null) this.selected = numberOf(data, path);
    this.axis = Math.min(this.axis, Math.max(0, data.model.axes.length - 1));
    const axis = data.model.axes[this.axis];
    if (isFirst && axis !== undefined) this.scale = bestScale(axis);
    if (isFirst) this.sorting = { by: this.defaultSort(), descending: false };
    this.fillFields();
    this.setContext(this.context);
  }

  setContext(context: Context): void {
    this.context = context;
    this.grouping = groupingOf(this.data, context);
    const ids = new Set(this.grouping.groups.map((group) => group.id));
    const groups = new Set([...this.filter.groups].filter((id) => ids.has(id)));
    this.filter = { ...this.filter, groups };
    this.fillContexts();
    this.apply();
  }

  /** Show only some files, such as those of a finding, or of one group. */
  setFilter(change: Partial<Filter>): void {
    this.filter = { ...this.filter, ...change };
    this.textField.value = this.filter.text;
    this.keyField.value = this.filter.key;
    this.partitionField.value = this.filter.partition;
    this.apply();
  }

  select(file: number, focusDetails: boolean): void {
    this.selected = file;
    this.refresh();
    this.links.announce(`${this.data.path(file)}: ${this.grouping.groupOf(file).label}`);
    if (focusDetails) this.details.querySelector<HTMLElement>("h3")?.focus();
  }

  private defaultSort(): SortBy {
    if (this.data.model.dataset.partitionColumns.length > 0) return "partition";
    return this.data.model.axes.length > 0 ? "range" : "file";
  }

  private sort(column: string): void {
    const by = SORTS.find((each) => each === column);
    if (by === undefined) return;
    const descending = this.sorting.by === by && !this.sorting.descending;
    this.sorting = { by, descending };
    this.apply();
  }

  /** Apply filter and order, and show the result. */
  private apply(): void {
    const files = filtered(this.data, this.grouping, this.filter, this.axis);
    this.order = sortFiles(files, this.data, this.grouping, this.sorting, this.axis);
    if (this.selected !== null && this.selected >= this.data.known) this.selected = null;
    this.fillChips();
    const all = this.grouping.files.length;
    const shown = this.order.length;
    fill(
      this.countText,
      shown === all
        ? `${format.counted(all, "file")}`
        : `${format.count(shown)} of ${format.counted(all, "file")}`,
    );
    this.showEmptiness();
    this.refresh();
  }

  /** Say what is missing, in place of a picture that shows nothing. */
  private showEmptiness(): void {
    const { axes, dataset } = this.data.model;
    const isEmpty = this.grouping.files.length === 0;
    for (const id of ["picture-place", "chips", "files-fields", "details"]) byId(id).hidden = isEmpty;
    const note = byId("files-note");
    note.hidden = isEmpty || axes.length > 0;
    note.textContent =
      dataset.keyColumns.length > 0
        ? "The ranges of the key are not part of this page; the lines are sizes."
        : "The key is not known, so the lines are sizes. Name it with --key to see key ranges.";
  }

  private refresh(): void {
    const { data, grouping, order, axis, scale, selected } = this;
    const keyAxis = data.model.axes[axis];
    this.picture.update({
      data,
      grouping,
      order,
      axis,
      scale,
      selected,
      touchedGroups: touchedGroups(data, this.context),
      othersAre:
        this.context.kind === "change" && data.model.change?.kind === "plan"
          ? "hold no key of the source"
          : "were copied as bytes",
      key: keyAxis === undefined ? null : keyValue(keyAxis, this.filter.key),
    });
    const row = selected === null ? -1 : order.indexOf(selected);
    this.grid.update(order, row < 0 ? null : row, this.sorting, this.columns());
    this.showSelected();
  }

  private showSelected(): void {
    const { selected } = this;
    this.details.classList.toggle("unused", selected === null);
    if (selected === null) {
      fill(
        this.details,
        h("h3", { id: "details-title" }, "No file chosen"),
        h("p", { class: "muted" }, "Choose a file in the picture or the table to read what is known of it."),
      );
      return;
    }
    showDetails(this.details, this.data, this.grouping, this.context, selected, {
      showCommit: (number) => this.links.setContext({ kind: "commit", number }),
      showFile: (file) => this.select(file, true),
    });
    append(this.details, [
      h(
        "p",
        { class: "back" },
        link("Back to the table", () => this.grid.focus()),
      ),
    ]);
  }

  // Fields

  private listen(): void {
    this.textField.addEventListener("input", () => {
      this.filter = { ...this.filter, text: this.textField.value };
      this.apply();
    });
    this.keyField.addEventListener("input", () => {
      this.filter = { ...this.filter, key: this.keyField.value };
      this.showKeyHint();
      this.apply();
    });
    this.partitionField.addEventListener("change", () => {
      this.setFilter({ partition: this.partitionField.value });
    });
    this.axisField.addEventListener("change", () => {
      this.axis = Number(this.axisField.value);
      const axis = this.data.model.axes[this.axis];
      this.scale = axis === undefined ? "order" : bestScale(axis);
      this.fillFields();
      this.apply();
    });
    this.scaleField.addEventListener("change", () => {
      this.scale = this.scaleField.value === "value" ? "value" : "order";
      this.refresh();
    });
    this.contextField.addEventListener("change", () => {
      const { value } = this.contextField;
      const number = Number(value);
      if (value === "dataset" || value === "change") this.links.setContext({ kind: value });
      else this.links.setContext({ kind: "commit", number });
    });
    this.details.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.grid.focus();
    });
  }

  private fillFields(): void {
    const { data } = this;
    const partitions = data.partitions();
    fillSelect(
      this.partitionField,
      [["", "All partitions"], ...partitions.map((name): [string, string] => [name, name])],
      this.filter.partition,
    );
    showField(this.partitionField, partitions.length > 0);
    const { axes } = data.model;
    fillSelect(
      this.axisField,
      axes.map((axis, i): [string, string] => [String(i), axis.column]),
      String(this.axis),
    );
    showField(this.axisField, axes.length > 1);
    const axis = axes[this.axis];
    fillSelect(this.scaleField, [["value", "By value"], ["order", "By order"]], this.scale);
    showField(this.scaleField, axis?.at != null);
    showField(this.keyField, axis !== undefined);
    byId("key-label").textContent = visible(`Key ${axis?.column ?? ""}`);
  }

  private showKeyHint(): void {
    const axis = this.data.model.axes[this.axis];
    const { key } = this.filter;
    const isWrong = key.trim() !== "" && axis !== undefined && !isKey(axis, key);
    this.keyField.setAttribute("aria-invalid", String(isWrong));
    this.keyHint.textContent = isWrong ? `Not a ${axis.kind === "time" ? "time" : "number"}` : "";
  }

  private fillContexts(): void {
    const { model } = this.data;
    const options: [string, string][] = [["dataset", "Dataset now"]];
    if (model.change !== null) {
      options.push(["change", model.change.kind === "plan" ? "The plan" : "The result"]);
    }
    for (let i = model.commits.length - 1; i >= 0; i -= 1) {
      const commit = model.commits[i];
      if (commit === undefined) continue;
      options.push([String(commit.number), `Commit ${commit.number}: ${commit.strategy}`]);
    }
    const { context } = this;
    const value = context.kind === "commit" ? String(context.number) : context.kind;
    fillSelect(this.contextField, options, value);
  }

  // Chips

  private fillChips(): void {
    const { groups } = this.grouping;
    const focused = this.chips.contains(document.activeElement)
      ? document.activeElement?.getAttribute("data-chip")
      : null;
    const chips: HTMLElement[] = groups.map((group) => this.groupChip(group));
    const overlapping = this.countFiles((file) => (this.data.overlaps(file) ?? 0) > 0);
    const marked = this.countFiles((file) => this.data.findings(file).length > 0);
    const { onlyOverlapping, onlyWithFindings } = this.filter;
    if (overlapping > 0 || onlyOverlapping) {
      const toggle = () => this.setFilter({ onlyOverlapping: !onlyOverlapping });
      chips.push(chip("overlapping", "Overlapping", overlapping, onlyOverlapping, toggle));
    }
    if (marked > 0 || onlyWithFindings) {
      const toggle = () => this.setFilter({ onlyWithFindings: !onlyWithFindings });
      chips.push(chip("findings", "With findings", marked, onlyWithFindings, toggle));
    }
    const { only } = this.filter;
    if (only !== null) {
      chips.push(chip("only", only.label, only.files.size, true, () => this.setFilter({ only: null })));
    }
    if (isFiltering(this.filter)) chips.push(link("Clear filter", () => this.clear()));
    fill(this.chips, ...chips);
    if (focused) this.chips.querySelector<HTMLElement>(`[data-chip="${CSS.escape(focused)}"]`)?.focus();
  }

  private countFiles(predicate: (file: number) => boolean): number {
    return this.grouping.files.reduce((sum, file) => sum + (predicate(file) ? 1 : 0), 0);
  }

  private groupChip(group: Group): HTMLElement {
    const isOn = this.filter.groups.has(group.id);
    const toggle = () => {
      const groups = new Set(this.filter.groups);
      if (isOn) groups.delete(group.id);
      else groups.add(group.id);
      this.setFilter({ groups });
    };
    const element = chip(group.id, group.label, group.files, isOn, toggle);
    element.prepend(swatch(group.tone));
    if (group.bytes > 0) element.append(h("span", { class: "muted" }, format.bytes(group.bytes)));
    return element;
  }

  private clear(): void {
    this.setFilter(NO_FILTER);
    this.showKeyHint();
    this.textField.focus();
  }

  // The table

  private columns(): GridColumn<number>[] {
    const { data } = this;
    const { dataset, axes } = data.model;
    const axis = axes[this.axis];
    const hasOverlaps = data.model.files.overlaps !== null;
    const number = (value: number | null) => [value === null ? "–" : format.count(value)];
    const columns: (GridColumn<number> | false)[] = [
      { id: "file", title: "File", least: 6.5, share: 2, isNarrow: true, render: (file) => [data.name(file)] },
      {
        id: "status",
        title: "Status",
        least: 9.25, share: 1,
        isNarrow: true,
        render: (file) => {
          const group = this.grouping.groupOf(file);
          return [swatch(group.tone), group.label];
        },
      },
      dataset.partitionColumns.length > 0 && {
        id: "partition",
        title: dataset.partitionColumns.join(" / "),
        least: 6.5, share: 1,
        render: (file) => [data.partitionValues(file).join(" / ")],
      },
      axis !== undefined && {
        id: "range",
        title: `Range of ${axis.column}`,
        least: 7.5, share: 1.5,
        render: (file) => [data.range(file, this.axis)],
      },
      hasOverlaps && {
        id: "overlaps",
        title: "Overlaps",
        least: 4.25,
        isNumber: true,
        render: (file) => number(data.overlaps(file)),
      },
      { id: "rows", title: "Rows", least: 4.25, isNumber: true, render: (file) => number(data.rows(file)) },
      {
        id: "bytes",
        title: "Size",
        least: 4.5,
        isNumber: true,
        isNarrow: true,
        render: (file) => [format.bytes(data.bytes(file))],
      },
      {
        id: "commit",
        title: "Commit",
        least: 4.25,
        isNumber: true,
        render: (file) => number(data.addedBy(file)),
      },
    ];
    return columns.filter((column) => column !== false);
  }
}

/** Row groups that a plan will change, or that a result or a commit has encoded. */
function touchedGroups(data: Data, context: Context): Scene["touchedGroups"] {
  const { change } = data.model;
  if (context.kind === "change") {
    if (change?.rewrites == null) return change?.groups ?? null;
    return { ...change.groups, ...encodedGroups(change.rewrites) };
  }
  const commit = context.kind === "commit" ? data.commit(context.number) : undefined;
  return commit?.detail?.rewrites ? encodedGroups(commit.detail.rewrites) : null;
}

function numberOf(data: Data, path: string): number | null {
  for (let file = 0; file < data.known; file += 1) {
    if (data.path(file) === path) return file;
  }
  return null;
}

function chip(
  id: string,
  label: string,
  files: number,
  isOn: boolean,
  onClick: () => void,
): HTMLButtonElement {
  return h(
    "button",
    { type: "button", class: "chip", "aria-pressed": String(isOn), "data-chip": id, click: onClick },
    h("span", {}, label),
    h("strong", {}, format.count(files)),
  );
}

function fillSelect(
  select: HTMLSelectElement,
  options: readonly (readonly [string, string])[],
  value: string,
): void {
  fill(select, ...options.map(([each, text]) => h("option", { value: each }, text)));
  select.value = value;
}

function showField(field: HTMLElement, isShown: boolean): void {
  const label = field.closest<HTMLElement>(".field");
  if (label !== null) label.hidden = !isShown;
}
