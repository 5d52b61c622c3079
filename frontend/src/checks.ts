/** The section of the checks: what doctor and verify found, and what to do about it. */

import { byId, fill, h } from "./dom.ts";
import { severityText } from "./details.ts";
import * as format from "./format.ts";
import type { Check, Finding, ReportModel } from "./model.ts";
import { link, notes } from "./parts.ts";
import { sizeOf } from "./runs.ts";

const NAMES: Record<Check["kind"], string> = { doctor: "Doctor", verify: "Verify" };
const ABOUT: Record<Check["kind"], string> = {
  doctor: "How well merges on the key would do.",
  verify: "Whether files and records say what is in them.",
};

/** How to get a check that was not made. */
const HOW: Record<Check["kind"], string> = {
  doctor: "Run: fsspeckit doctor.",
  verify: "To read every value: fsspeckit report --verify, or fsspeckit verify.",
};

/** Show the checks; `showFiles` marks the files of one finding. */
export function showChecks(model: ReportModel, showFiles: (finding: Finding) => void): void {
  const kinds = ["doctor", "verify"] as const;
  const problems = model.checks.reduce((sum, check) => sum + check.findings.length, 0);
  byId("checks-count").textContent = problems === 0 ? "" : format.counted(problems, "finding");
  fill(
    byId("checks-place"),
    ...kinds.map((kind) => {
      const check = model.checks.find((each) => each.kind === kind);
      return check === undefined ? notRun(kind) : checkOf(check, showFiles);
    }),
  );
}

function heading(kind: Check["kind"]): HTMLElement {
  return h("h3", {}, NAMES[kind], h("span", { class: "muted" }, ` ${ABOUT[kind]}`));
}

function notRun(kind: Check["kind"]): HTMLElement {
  return h(
    "div",
    { class: "check" },
    heading(kind),
    h("p", { class: "muted" }, `Not part of this report. ${HOW[kind]}`),
  );
}

function checkOf(check: Check, showFiles: (finding: Finding) => void): HTMLElement {
  return h(
    "div",
    { class: "check" },
    heading(check.kind),
    h("p", { class: `outcome ${check.outcome}` }, check.title),
    ...check.findings.map((finding) => findingOf(finding, showFiles)),
    notes(check.notes),
  );
}

function findingOf(finding: Finding, showFiles: (finding: Finding) => void): HTMLElement {
  const files = sizeOf(finding.files);
  return h(
    "div",
    { class: `finding ${finding.severity}` },
    h("p", {}, h("strong", {}, severityText(finding.severity)), ` ${finding.what}`),
    finding.where === "" ? null : h("p", { class: "muted" }, finding.where),
    h("p", {}, h("strong", {}, "What to do:"), ` ${finding.advice}`),
    files === 0
      ? null
      : h("p", {}, link(`Show ${format.counted(files, "file")}`, () => showFiles(finding))),
  );
}
