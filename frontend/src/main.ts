/** The page: reads the model that Python has embedded, and lets its sections speak to each other. */

import { showChecks } from "./checks.ts";
import { Data } from "./data.ts";
import { byId } from "./dom.ts";
import { FilesSection } from "./files.ts";
import type { Context } from "./groups.ts";
import { HistorySection, whatOf } from "./history.ts";
import { Live } from "./live.ts";
import { DATA_ELEMENT_ID, type Finding, MODEL_VERSION, type ReportModel } from "./model.ts";
import { numbersOf } from "./runs.ts";
import { NO_FILTER } from "./selection.ts";
import { showSummary } from "./summary.ts";
import { startTheme } from "./theme.ts";

class Page {
  private data: Data;
  private context: Context;
  private readonly files: FilesSection;
  private readonly history: HistorySection;

  constructor(model: ReportModel) {
    this.data = new Data(model);
    this.context = { kind: model.change === null ? "dataset" : "change" };
    showSummary(this.data);
    this.files = new FilesSection(this.data, {
      setContext: (context) => this.setContext(context),
      announce,
    });
    this.history = new HistorySection(this.data, {
      choose: (number) => {
        this.setContext(number === null ? { kind: "dataset" } : { kind: "commit", number });
      },
      showFiles: () => this.showTouched(),
      announce,
    });
    this.showChecks();
    this.setContext(this.context);
    this.open(model);
    if (model.live !== null) {
      const onModel = (next: ReportModel) => this.setModel(next);
      new Live(model.generation, { onModel, announce }).start(model.live);
    }
  }

  private setContext(context: Context): void {
    this.context = context;
    this.files.setContext(context);
    this.history.setChosen(context.kind === "commit" ? context.number : null);
    byId("context-note").textContent = this.contextNote();
  }

  private contextNote(): string {
    if (this.context.kind !== "commit") return "";
    const commit = this.data.commit(this.context.number);
    if (commit === undefined) return "";
    return `Marked: what commit ${commit.number} (${whatOf(commit)}) touched.`;
  }

  private setModel(model: ReportModel): void {
    const before = this.data.model.commits.at(-1)?.number ?? 0;
    this.data = new Data(model);
    showSummary(this.data);
    this.files.setData(this.data);
    this.history.setData(this.data);
    this.showChecks();
    this.setContext(this.context);
    const last = model.commits.at(-1);
    if (last !== undefined && last.number > before) {
      announce(`New commit ${last.number}: ${whatOf(last)}`);
    }
  }

  private showChecks(): void {
    showChecks(this.data.model, (finding) => this.showFinding(finding));
  }

  private showFinding(finding: Finding): void {
    this.setContext({ kind: "dataset" });
    const files = new Set(numbersOf(finding.files));
    this.files.setFilter({ ...NO_FILTER, only: { label: "Of one finding", files } });
    goTo("files");
  }

  private showTouched(): void {
    this.files.setFilter({ ...NO_FILTER, groups: new Set(["added", "added, gone", "removed"]) });
    goTo("files");
  }

  /** Open with what the reader asked for. */
  private open(model: ReportModel): void {
    if (model.view === "history" || model.view === "checks") {
      byId(model.view).scrollIntoView({ block: "start" });
    }
  }
}

function goTo(section: string): void {
  byId(section).scrollIntoView({ block: "start" });
  byId(`${section}-title`).focus({ preventScroll: true });
}

/** Let a screen reader say something when it has time. */
function announce(text: string): void {
  byId("announcements").textContent = text;
}

function fail(text: string): void {
  const problem = byId("problem");
  problem.textContent = text;
  problem.hidden = false;
}

function start(): void {
  startTheme();
  const model = JSON.parse(byId(DATA_ELEMENT_ID).textContent ?? "null") as ReportModel | null;
  if (model === null) {
    fail("This page has no report in it. Make one with: fsspeckit report DATASET");
  } else if (model.version !== MODEL_VERSION) {
    fail(`This page shows reports of version ${MODEL_VERSION}, and has one of ${model.version}.`);
  } else {
    byId("page").hidden = false;
    new Page(model);
  }
}

start();
