/** The head of the page: which dataset it is, its figures, and what a plan or a result is about. */

import type { Data } from "./data.ts";
import { byId, fill, h, visible } from "./dom.ts";
import * as format from "./format.ts";
import { groupingOf } from "./groups.ts";
import { countsText } from "./history.ts";
import type { Column, ReportModel } from "./model.ts";
import { facts, notes, shareBar, swatch, workOfAll } from "./parts.ts";

/** Show the head of the page. */
export function showSummary(data: Data): void {
  const { model } = data;
  const name = format.baseName(model.dataset.path) || model.dataset.path;
  document.title = visible(`${name} – fsspeckit report`);
  byId("name").textContent = visible(name);
  byId("path").textContent = name === model.dataset.path ? "" : visible(model.dataset.path);
  byId("made").textContent = `As of ${format.time(model.time)}, by fsspeckit ${model.fsspeckit}`;
  const missing = model.dataset.exists ? [] : ["There are no data files and no commits at this path."];
  fill(byId("page-notes"), notes([...missing, ...model.notes]));
  showFigures(model);
  showColumns(model);
  showChange(data);
}

/** The schema, with what footers say of each column; closed until somebody opens it. */
function showColumns(model: ReportModel): void {
  const { columns } = model.dataset;
  byId("columns").hidden = columns.length === 0;
  byId("columns-title").textContent = format.counted(columns.length, "column");
  fill(
    byId("columns-place"),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Columns" },
      h(
        "table",
        { class: "plain-table" },
        h(
          "thead",
          {},
          h("tr", {}, ...COLUMN_TITLES.map((title) => h("th", { scope: "col", class: title === "NULL" ? "number" : null }, title))),
        ),
        h("tbody", {}, ...columns.map((column) => columnLine(column, model.dataset.rowGroups))),
      ),
    ),
  );
}

const COLUMN_TITLES = ["Column", "Type", "Range", "NULL", "Statistics", "Bloom filter"];

function columnLine(column: Column, rowGroups: number | null): HTMLElement {
  const { name, type, low, high, nulls, knownRowGroups, bloomRowGroups } = column;
  const role = column.isPartition ? "partition" : column.isKey ? "key" : "";
  const range = low === null || high === null ? "–" : low === high ? low : `${low} – ${high}`;
  const share = (groups: number) =>
    groups === 0 ? "none" : groups === rowGroups ? "all row groups" : `${format.count(groups)} row groups`;
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, name, role === "" ? null : h("span", { class: "muted" }, ` ${role}`)),
    h("td", {}, type),
    h("td", {}, range),
    h("td", { class: "number" }, nulls === null ? "–" : format.count(nulls)),
    h("td", {}, column.isPartition ? "path" : share(knownRowGroups)),
    h("td", {}, column.isPartition ? "–" : share(bloomRowGroups)),
  );
}

function showFigures(model: ReportModel): void {
  const { dataset, files, commits, commitsLeftOut } = model;
  const { rows, rowGroups, filesOfOneKey, mostFilesOfOneKey } = dataset;
  const partitions = new Set(files.directory).size;
  const hasPartitions = dataset.partitionColumns.length > 0;
  const figures: [label: string, value: string | null, about?: string | undefined][] = [
    ["Files", format.count(files.name.length)],
    ["Rows", rows === null ? null : format.count(rows)],
    ["Size", format.bytes(dataset.bytes)],
    ["Partitions", hasPartitions ? format.count(partitions) : null, format.listed(dataset.partitionColumns)],
    ["Row groups", rowGroups === null ? null : format.count(rowGroups)],
    ["Key", dataset.keyColumns.length > 0 ? format.listed(dataset.keyColumns) : null],
    [
      "Files that may hold one key",
      filesOfOneKey === null ? null : oneDecimal(filesOfOneKey),
      mostFilesOfOneKey === null ? "on average" : `on average, at most ${format.count(mostFilesOfOneKey)}`,
    ],
    ["Commits", format.count(commits.length + commitsLeftOut)],
  ];
  fill(
    byId("figures"),
    ...figures.map(([label, value, about]) =>
      value === null
        ? null
        : h(
            "div",
            {},
            h("dt", {}, label),
            h("dd", {}, value, about ? h("span", { class: "muted" }, ` ${about}`) : null),
          ),
    ),
  );
}

function oneDecimal(value: number): string {
  return Number.isInteger(value) ? format.count(value) : value.toFixed(1);
}

function showChange(data: Data): void {
  const { change } = data.model;
  const section = byId("change");
  section.hidden = change === null;
  if (change === null) return;
  byId("change-title").textContent = change.kind === "plan" ? "The plan" : "The result";
  const { groups } = groupingOf(data, { kind: "change" });
  const work = change.rewrites === null ? null : workOfAll(change.rewrites);
  const phases = Object.entries(change.seconds).map(
    ([name, seconds]) => `${name} ${format.duration(seconds)}`,
  );
  const total = groups.reduce((sum, group) => sum + group.files, 0);
  fill(
    byId("change-place"),
    h("p", { class: "lead" }, change.title),
    shareBar(groups.map((group) => ({ tone: group.tone, value: group.files }))),
    h(
      "ul",
      { class: "legend" },
      ...groups.map((group) =>
        h(
          "li",
          {},
          swatch(group.tone),
          h("strong", {}, format.count(group.files)),
          ` ${group.label.toLowerCase()} `,
          h("span", { class: "muted" }, format.percent(group.files, total)),
        ),
      ),
    ),
    facts([
      ["Condition", change.where],
      ["Rows", countsText(change.counts)],
      ["Commit", change.commit === null ? null : String(change.commit)],
      ["Phases", phases.join(", ")],
    ]),
    work,
    notes(change.notes),
  );
}
