/** All that is known of one file: what happens to it and why, its row groups, and its history. */

import type { Data, DatedRewrite } from "./data.ts";
import { append, fill, h } from "./dom.ts";
import * as format from "./format.ts";
import type { Context, Grouping } from "./groups.ts";
import { columnsText, facts, link, swatch, workBars } from "./parts.ts";

const MAX_ROW_GROUPS = 200;
const MAX_NUMBERS = 20;

export interface DetailsLinks {
  readonly showCommit: (number: number) => void;
  readonly showFile: (file: number) => void;
}

/** Fill an element with the details of a file. */
export function showDetails(
  element: HTMLElement,
  data: Data,
  grouping: Grouping,
  context: Context,
  file: number,
  links: DetailsLinks,
): void {
  const group = grouping.groupOf(file);
  fill(
    element,
    h("h3", { id: "details-title", tabindex: "-1" }, data.name(file)),
    h("p", { class: "status" }, swatch(group.tone), group.label),
    evidence(data, context, file),
    data.error(file) === null ? null : h("p", { class: "problem" }, data.error(file)),
    factsOf(data, file, links),
  );
  append(element, [...findingsOf(data, file), ...rewritesOf(data, file, links)]);
  append(element, [rowGroupsOf(data, context, file)]);
}

/** The sentence that decided about the file. */
function evidence(data: Data, context: Context, file: number): HTMLElement | null {
  const { change } = data.model;
  if (context.kind !== "change" || change === null) return null;
  const found = change.evidences[change.evidence[file] ?? -1];
  if (found === undefined || found.text === "") return null;
  const touched = change.groups[String(file)]?.length ?? 0;
  const groups = data.groups(file) ?? 0;
  const where = `; in ${format.count(touched)} of ${format.counted(groups, "row group")}`;
  const decision = change.decisions[change.decision[file] ?? -1];
  const hasKeys = decision === "affected" || decision === "rewritten";
  const text = hasKeys && found.text === found.kind ? `${found.text}: it has keys of the source` : found.text;
  return h("p", { class: "evidence", id: "evidence" }, text, touched > 0 ? where : null);
}

function commitLink(data: Data, number: number | null, links: DetailsLinks): Node | string | null {
  if (number === null) return null;
  const text = `Commit ${number}`;
  return data.commit(number) === undefined ? text : link(text, () => links.showCommit(number));
}

function factsOf(data: Data, file: number, links: DetailsLinks): HTMLElement | null {
  const groups = data.groups(file);
  const rows = data.rows(file);
  const overlaps = data.overlaps(file);
  const ranges = data.model.axes.map(
    (axis, i): [string, string | null] => [axis.column, rangeWithNulls(data, file, i)],
  );
  return facts([
    ["Path", data.directory(file) === "" ? null : data.path(file)],
    ["Partition", data.partition(file)],
    ["Size", data.isGone(file) ? null : sizeText(data, file)],
    ["Rows", rows === null ? null : format.count(rows)],
    ["Row groups", groups === null ? null : format.count(groups)],
    ...ranges,
    ["Overlaps", overlaps === null ? null : overlapText(overlaps)],
    ["Added by", commitLink(data, data.addedBy(file), links)],
    ["Removed by", data.isGone(file) ? commitLink(data, data.removedBy(file), links) : null],
    ["Written by", data.writer(file)],
  ]);
}

function sizeText(data: Data, file: number): string {
  const text = format.bytes(data.bytes(file));
  if (!data.isSmall(file)) return text;
  return `${text}; small, under ${format.binary(data.model.dataset.smallBytes)}`;
}

function rangeWithNulls(data: Data, file: number, axis: number): string | null {
  const range = data.range(file, axis);
  const nulls = data.model.axes[axis]?.nulls[String(file)];
  return nulls === undefined ? range : `${range}; ${format.count(nulls)} NULL`;
}

function overlapText(overlaps: number): string {
  return overlaps === 0 ? "no other file" : format.counted(overlaps, "other file");
}

function findingsOf(data: Data, file: number): HTMLElement[] {
  return data.findings(file).map((finding) =>
    h(
      "div",
      { class: `finding ${finding.severity}` },
      h("p", {}, h("strong", {}, severityText(finding.severity)), ` ${finding.what}`),
      h("p", {}, `What to do: ${finding.advice}`),
    ),
  );
}

/** A severity as the beginning of a sentence. */
export function severityText(severity: "error" | "warning" | "note"): string {
  return { error: "Error:", warning: "Warning:", note: "Note:" }[severity];
}

function rewritesOf(data: Data, file: number, links: DetailsLinks): HTMLElement[] {
  return data.rewrites(file).map((rewrite) => {
    const reason = [rewrite.method, rewrite.reason].filter(Boolean).join(": ");
    return h(
      "div",
      { class: "rewrite" },
      h("h4", {}, rewriteTitle(rewrite, file)),
      otherFile(data, rewrite, file, links),
      reason === "" ? null : h("p", {}, reason),
      workBars(rewrite.work, encodedText(rewrite)),
    );
  });
}

/** Which columns and row groups were encoded; everything else was copied as bytes. */
function encodedText({ columns, groups, method }: DatedRewrite): string {
  if (method === "full") return "every column of every row group";
  if (!columns || !groups || groups.length === 0) return "";
  const which = groups.length === 1 ? "row group" : "row groups";
  const numbers = format.listed(groups.slice(0, MAX_NUMBERS).map(String));
  const left = groups.length - MAX_NUMBERS;
  const more = left > 0 ? ` and ${format.count(left)} more` : "";
  return `${columnsText(columns)}, in ${which} ${numbers}${more}`;
}

function rewriteTitle(rewrite: DatedRewrite, file: number): string {
  const by = rewrite.commit === null ? "" : ` by commit ${rewrite.commit}`;
  if (rewrite.to === null) return `Removed${by}`;
  return rewrite.to === file ? `Rewritten${by}` : `Replaced${by}`;
}

function otherFile(
  data: Data,
  rewrite: DatedRewrite,
  file: number,
  links: DetailsLinks,
): HTMLElement | null {
  const other = rewrite.to === file ? rewrite.from : rewrite.to;
  if (other === null || other < 0) return null;
  const name = data.name(other);
  const shown = data.isGone(other) ? name : link(name, () => links.showFile(other));
  return h("p", {}, rewrite.to === file ? "It replaces " : "Replaced by ", shown);
}

interface GroupWork {
  readonly title: string;
  readonly numbers: readonly number[];
  readonly inside: string;
  readonly outside: string;
}

/** What a plan says of the row groups of a file, or what the shown change did to them. */
function groupWork(data: Data, context: Context, file: number): GroupWork | null {
  const { change } = data.model;
  const shown = context.kind === "commit" ? context.number : (change?.commit ?? null);
  const rewrite = data.rewrites(file).find(({ to, commit }) => to === file && commit === shown);
  if (context.kind !== "dataset" && rewrite?.groups) {
    return { title: "Work", numbers: rewrite.groups, inside: "encoded", outside: "copied" };
  }
  const touched = context.kind === "change" ? change?.groups[String(file)] : undefined;
  if (touched === undefined) return null;
  return { title: "Keys", numbers: touched, inside: "has keys", outside: "none" };
}

function rowGroupsOf(data: Data, context: Context, file: number): HTMLElement | null {
  const groups = data.model.rowGroups;
  const first = data.firstGroup[file];
  const end = data.firstGroup[file + 1];
  if (groups === null || first === undefined || end === undefined || first === end) return null;
  const work = groupWork(data, context, file);
  const axis = data.model.axes[0];
  const shown = Math.min(end - first, MAX_ROW_GROUPS);
  const lines = Array.from({ length: shown }, (_, i) => {
    const group = first + i;
    return h(
      "tr",
      {},
      h("td", { class: "number" }, String(i)),
      h("td", { class: "number" }, format.count(groups.rows[group] ?? 0)),
      h("td", { class: "number" }, format.bytes(groups.bytes[group])),
      axis === undefined ? null : h("td", {}, data.groupRange(group, 0)),
      work === null ? null : h("td", { class: "word" }, work.numbers.includes(i) ? work.inside : work.outside),
    );
  });
  const left = end - first - shown;
  return h(
    "div",
    { class: "row-groups" },
    h("h4", {}, "Row groups"),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Row groups" },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col", class: "number" }, "No."),
            h("th", { scope: "col", class: "number" }, "Rows"),
            h("th", { scope: "col", class: "number" }, "Raw size"),
            axis === undefined ? null : h("th", { scope: "col" }, h("span", { class: "clamped" }, axis.column)),
            work === null ? null : h("th", { scope: "col" }, work.title),
          ),
        ),
        h("tbody", {}, ...lines),
      ),
    ),
    left > 0 ? h("p", { class: "muted" }, `${format.counted(left, "more row group")}`) : null,
  );
}
