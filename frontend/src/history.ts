/** The section of the history: a time line of the commits, a table of them, and one in detail. */

import { type Bar, barsOf, dayMarks, type Measure, MEASURES } from "./bars.ts";
import type { Data } from "./data.ts";
import { append, byId, fill, h } from "./dom.ts";
import * as format from "./format.ts";
import type { Tone } from "./groups.ts";
import { Grid, type GridColumn } from "./grid.ts";
import type { Commit } from "./model.ts";
import { facts, link, notes, shareBar, workOfAll } from "./parts.ts";
import { colours, onColours, PICTURE_FONT } from "./theme.ts";
import { rowAfterKey } from "./rows.ts";

export interface HistoryLinks {
  /** Choose a commit, whose files are then marked; null for none. */
  readonly choose: (number: number | null) => void;
  readonly showFiles: () => void;
  readonly announce: (text: string) => void;
}

const HEIGHT = 132;
const TOP = 20;
const BOTTOM = 22;

const MEASURE_NAMES: Record<Measure, string> = {
  bytes: "Bytes written",
  rows: "Rows changed",
  files: "Files changed",
  seconds: "Duration",
};

const STATE_TONES: Record<Commit["state"], Tone> = {
  complete: "statistics",
  recovered: "open",
  pending: "changed",
  abandoned: "removed",
};

export class HistorySection {
  private data: Data;
  /** Newest first, as the table shows them. */
  private newestFirst: Commit[] = [];
  private chosen: number | null = null;
  private measure: Measure = "bytes";
  private bars: Bar[] = [];
  private readonly canvas: HTMLCanvasElement;
  private readonly tip: HTMLElement;
  private readonly grid: Grid<Commit>;
  private readonly details = byId("commit-details");
  private readonly measureField = byId<HTMLSelectElement>("measure");

  constructor(
    data: Data,
    private readonly links: HistoryLinks,
  ) {
    this.data = data;
    this.canvas = h("canvas", {
      id: "timeline",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "time line of commits",
    });
    this.tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
    const stage = h("div", { class: "stage" }, this.canvas, this.tip);
    byId("timeline-place").append(stage);
    this.grid = new Grid({
      id: "commits-grid",
      label: "Commits",
      columns: COLUMNS,
      onChoose: (commit, byKeyboard) => this.choose(commit.number, byKeyboard),
      empty: () => "No commit is on record.",
    });
    byId("commits-place").append(this.grid.element);
    fill(
      this.measureField,
      ...MEASURES.map((each) => h("option", { value: each }, MEASURE_NAMES[each])),
    );
    this.listen(stage);
    this.setData(data);
  }

  setData(data: Data): void {
    this.data = data;
    this.newestFirst = [...data.model.commits].reverse();
    byId("history-count").textContent = historyCount(data);
    for (const id of ["timeline-block", "commits-split"]) {
      byId(id).hidden = data.model.commits.length === 0;
    }
    this.refresh();
  }

  /** Show which commit is chosen; it is chosen by whoever owns the context. */
  setChosen(number: number | null): void {
    this.chosen = number;
    this.refresh();
  }

  private choose(number: number, focusDetails: boolean): void {
    this.links.choose(number);
    const commit = this.data.commit(number);
    if (commit !== undefined) this.links.announce(`Commit ${number}: ${whatOf(commit)}`);
    if (focusDetails) this.details.querySelector<HTMLElement>("h3")?.focus();
  }

  private refresh(): void {
    const row = this.newestFirst.findIndex((commit) => commit.number === this.chosen);
    const isComplete = this.newestFirst.every((commit) => commit.state === "complete");
    const columns = isComplete ? COLUMNS : [...COLUMNS, STATE_COLUMN];
    this.grid.update(this.newestFirst, row < 0 ? null : row, null, columns);
    const total = format.counted(this.newestFirst.length, "commit");
    this.canvas.setAttribute(
      "aria-label",
      `${MEASURE_NAMES[this.measure]} by commit, ${total}, the oldest first. Left and right arrow ` +
        "keys choose a commit. The table below has the same commits.",
    );
    this.showChosen();
    this.draw();
  }

  // The time line

  private draw(): void {
    const { canvas } = this;
    const width = canvas.parentElement?.clientWidth ?? 0;
    if (width === 0) return;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(HEIGHT * ratio);
    canvas.style.height = `${HEIGHT}px`;
    const context = canvas.getContext("2d");
    if (context === null) return;
    context.scale(ratio, ratio);
    context.font = PICTURE_FONT;
    context.textBaseline = "middle";
    const { commits } = this.data.model;
    const palette = colours();
    this.bars = barsOf(commits, this.measure, width);
    const most = Math.max(...this.bars.map((bar) => bar.value), 0);
    const base = HEIGHT - BOTTOM;
    context.fillStyle = palette.muted;
    const unit = this.newestFirst.length > this.bars.length ? ", the greatest of each bar" : "";
    context.fillText(`${MEASURE_NAMES[this.measure]}, to ${this.valueText(most)}${unit}`, 0, 8);
    context.fillStyle = palette.line;
    context.fillRect(0, base, width, 1);
    for (const bar of this.bars) this.drawBar(context, bar, most, base);
    context.fillStyle = palette.muted;
    for (const { x, day } of dayMarks(commits, this.bars, 90)) {
      if (x + 66 > width && x > 0) continue;
      context.fillRect(x, base, 1, 5);
      context.fillText(day, x, base + 14);
    }
  }

  private drawBar(context: CanvasRenderingContext2D, bar: Bar, most: number, base: number): void {
    const palette = colours();
    const commits = this.data.model.commits.slice(bar.first, bar.end);
    const isChosen = commits.some((commit) => commit.number === this.chosen);
    const worst = commits.find((commit) => commit.state !== "complete") ?? commits[0];
    const height = Math.max(2, (bar.value / Math.max(most, Number.MIN_VALUE)) * (base - TOP - 4));
    const gap = bar.width > 8 ? 2 : 1;
    if (isChosen) {
      context.fillStyle = palette.well;
      context.fillRect(bar.x, TOP - 4, bar.width - gap, base - TOP + 4);
    }
    context.fillStyle = palette.tones[STATE_TONES[worst?.state ?? "complete"]];
    context.fillRect(bar.x, base - height, bar.width - gap, height);
    if (isChosen) {
      context.strokeStyle = palette.ink;
      context.lineWidth = 1.5;
      context.strokeRect(bar.x - 0.25, TOP - 4, Math.max(3, bar.width - gap), base - TOP + 4);
      context.lineWidth = 1;
    }
  }

  private valueText(value: number): string {
    if (this.measure === "bytes") return format.bytes(value);
    return this.measure === "seconds" ? format.duration(value) : format.count(value);
  }

  private listen(stage: HTMLElement): void {
    new ResizeObserver(() => this.draw()).observe(stage);
    onColours(() => this.draw());
    window.addEventListener("beforeprint", () => this.draw());
    this.measureField.addEventListener("change", () => {
      this.measure = MEASURES.find((each) => each === this.measureField.value) ?? "bytes";
      this.refresh();
    });
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("click", (event) => {
      const bar = this.barAt(event.offsetX);
      const last = bar === undefined ? undefined : this.data.model.commits[bar.end - 1];
      if (last !== undefined) this.choose(last.number, false);
    });
    this.canvas.addEventListener("pointermove", (event) => this.hover(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.hover(-1));
    this.details.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.grid.focus();
    });
  }

  private barAt(x: number): Bar | undefined {
    return this.bars.find((bar) => x >= bar.x && x < bar.x + bar.width);
  }

  private hover(x: number): void {
    const bar = this.barAt(x);
    this.tip.hidden = bar === undefined;
    if (bar === undefined) return;
    const { commits } = this.data.model;
    const last = commits[bar.end - 1];
    const first = commits[bar.first];
    if (first === undefined || last === undefined) return;
    const title =
      first === last ? `Commit ${last.number}` : `Commits ${first.number} to ${last.number}`;
    fill(
      this.tip,
      h("strong", {}, title),
      h("span", {}, first === last ? whatOf(last) : `${MEASURE_NAMES[this.measure]}: the greatest`),
      h("span", {}, `${this.valueText(bar.value)} at ${format.time(last.time)}`),
      statesText(commits.slice(bar.first, bar.end)),
    );
    const most = Math.max(0, this.canvas.clientWidth - this.tip.offsetWidth);
    this.tip.style.transform = `translate(${Math.min(x + 12, most)}px, ${TOP}px)`;
  }

  private onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { commits } = this.data.model;
    const at = commits.findIndex((commit) => commit.number === this.chosen);
    const key = { ArrowLeft: "ArrowUp", ArrowRight: "ArrowDown" }[event.key] ?? event.key;
    const from = at < 0 ? commits.length : at;
    const target = rowAfterKey(key, from, commits.length, 10);
    const commit = target === null ? undefined : commits[target];
    if (event.key === "Escape") this.links.choose(null);
    else if (event.key === "Enter" && at >= 0) this.choose(commits[at]?.number ?? 0, true);
    else if (commit !== undefined) this.choose(commit.number, false);
    else return;
    event.preventDefault();
  }

  // One commit

  private showChosen(): void {
    const commit = this.data.commit(this.chosen);
    this.details.classList.toggle("unused", commit === undefined);
    if (commit === undefined) {
      fill(
        this.details,
        h("h3", {}, "No commit chosen"),
        h("p", { class: "muted" }, "Choose a commit to mark the files that it touched."),
      );
      return;
    }
    fill(
      this.details,
      h("h3", { tabindex: "-1" }, `Commit ${commit.number}`),
      h("p", {}, whatOf(commit)),
      factsOf(commit),
    );
    append(this.details, [prunedOf(commit), workOf(commit), secondsOf(commit)]);
    append(this.details, [
      notes([...commit.schemaChanges.map((change) => `Column ${change}.`), ...commit.notes]),
      commit.added === null || commit.removed === null
        ? h("p", { class: "muted" }, "Its list of files was left out for the size of the page.")
        : null,
      h(
        "p",
        { class: "back" },
        link("Show its files", () => this.links.showFiles()),
        link("Choose none", () => this.links.choose(null)),
      ),
    ]);
  }
}

/** Which states other than complete some commits are in; their bar has another colour. */
function statesText(commits: readonly Commit[]): HTMLElement | null {
  const states = new Set(commits.map((commit) => commit.state).filter((state) => state !== "complete"));
  return states.size === 0 ? null : h("span", {}, `State: ${format.listed([...states])}`);
}

function historyCount(data: Data): string {
  const left = data.model.commitsLeftOut;
  if (data.model.commits.length === 0) return "No commit is on record.";
  const shown = format.counted(data.model.commits.length, "commit");
  return left === 0 ? shown : `${shown}, and ${format.count(left)} older ones left out`;
}

/** What a commit did, in a few words. */
export function whatOf(commit: Commit): string {
  const keys = commit.keyColumns.length > 0 ? ` by ${format.listed(commit.keyColumns)}` : "";
  if (commit.restores !== null) return `${commit.strategy} to commit ${commit.restores}`;
  return `${commit.strategy}${keys}`;
}

/** Which rows changed, in words. */
export function countsText(counts: Readonly<Record<string, number>>): string {
  const words = Object.entries(counts).filter(([, count]) => count > 0);
  return words
    .map(([name, count]) => `${format.count(count)} ${name.replaceAll("_", " ")}`)
    .join(", ");
}

function filesText(commit: Commit): string {
  return `+${format.count(commit.addedFiles)} −${format.count(commit.removedFiles)}`;
}

function bytesText(commit: Commit): string {
  const removed = commit.removedBytes;
  const text = `${format.bytes(commit.addedBytes)} written`;
  return removed === null || removed === 0 ? text : `${text}, ${format.bytes(removed)} replaced`;
}

function factsOf(commit: Commit): HTMLElement | null {
  return facts([
    ["Time", format.time(commit.time)],
    ["Rows", countsText(commit.counts)],
    ["Source rows", commit.sourceRows === null ? null : format.count(commit.sourceRows)],
    ["Files", `${format.count(commit.addedFiles)} added, ${format.count(commit.removedFiles)} removed`],
    ["Bytes", commit.addedBytes === null ? null : bytesText(commit)],
    ["Duration", commit.seconds === null ? null : format.duration(commit.seconds)],
    ["Engine", commit.engine],
    ["State", commit.state],
    ["Published", commit.published],
    ["Transaction", commit.transaction],
    ["Trash", commit.purged ? "emptied" : null],
    ["Id", commit.id],
  ]);
}

const PRUNED_TONES: Record<string, Tone> = {
  partition: "partition",
  statistics: "statistics",
  bloom: "bloom",
};

function prunedOf(commit: Commit): HTMLElement | null {
  const { detail } = commit;
  if (detail === null || Object.keys(detail.prunedBy).length === 0) return null;
  const pruned = Object.entries(detail.prunedBy);
  const rest = detail.files - pruned.reduce((sum, [, files]) => sum + files, 0);
  const shares = pruned.map(([kind, value]) => ({ tone: PRUNED_TONES[kind] ?? "scan", value }) as const);
  const words = pruned.map(([kind, files]) => `${format.count(files)} pruned by ${kind}`);
  return h(
    "div",
    {},
    h("h4", {}, `${format.counted(detail.files, "file")} before`),
    shareBar([...shares, { tone: "changed", value: rest }]),
    h("p", {}, [...words, `${format.count(rest)} read or rewritten`].join(", ")),
  );
}

function workOf(commit: Commit): HTMLElement | null {
  const rewrites = commit.detail?.rewrites;
  if (!rewrites || rewrites.from.length === 0) return null;
  const bars = workOfAll(rewrites);
  if (bars === null) return null;
  return h("div", {}, h("h4", {}, `${format.counted(rewrites.from.length, "file")} rewritten`), bars);
}

function secondsOf(commit: Commit): HTMLElement | null {
  const phases = Object.entries(commit.detail?.seconds ?? {});
  if (phases.length === 0) return null;
  return h(
    "div",
    {},
    h("h4", {}, "Phases"),
    facts(phases.map(([name, seconds]): [string, string] => [name, format.duration(seconds)])),
  );
}

const COLUMNS: GridColumn<Commit>[] = [
  {
    id: "number",
    title: "Commit",
    least: 4,
    isNumber: true,
    isNarrow: true,
    render: (commit) => [format.count(commit.number)],
  },
  {
    id: "time",
    title: "Time (UTC)",
    least: 9,
    render: (commit) => [commit.time.slice(0, 19).replace("T", " ")],
  },
  { id: "what", title: "What", least: 6.5, share: 1, isNarrow: true, render: (commit) => [whatOf(commit)] },
  {
    id: "rows",
    title: "Rows",
    least: 7.25, share: 1.4,
    render: (commit) => [countsText(commit.counts)],
  },
  { id: "files", title: "Files", least: 5, isNumber: true, isNarrow: true, render: (commit) => [filesText(commit)] },
  { id: "bytes", title: "Written", least: 5, isNumber: true, render: (commit) => [format.bytes(commit.addedBytes)] },
  { id: "seconds", title: "Duration", least: 4.5, isNumber: true, render: (commit) => [format.duration(commit.seconds)] },
  { id: "engine", title: "Engine", least: 4.5, render: (commit) => [commit.engine] },
];

/** Shown if a commit is not complete; nobody needs to read "complete" a thousand times. */
const STATE_COLUMN: GridColumn<Commit> = {
  id: "state",
  title: "State",
  least: 5.5,
  render: (commit) => [commit.state],
};

