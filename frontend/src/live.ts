/** The section of what happens now, on a page that `fsspeckit serve` shows. */

import { byId, fill, h, visible } from "./dom.ts";
import * as format from "./format.ts";
import type { LivePhase, LiveState, LiveWriter, ReportModel } from "./model.ts";
import { LIVE_PATH, MODEL_PATH } from "./model.ts";
import { facts, notes } from "./parts.ts";

const PERIOD = 1_000;
const MAX_STAGED = 12;

export interface LiveLinks {
  /** Another state of the dataset has arrived. */
  readonly onModel: (model: ReportModel) => void;
  readonly announce: (text: string) => void;
}

/** Ask for the live state every second, and for the model whenever it is another one. */
export class Live {
  private spoken = "";

  constructor(
    private generation: string,
    private readonly links: LiveLinks,
  ) {}

  start(first: LiveState): void {
    byId("live").hidden = false;
    this.show(first);
    window.setTimeout(() => void this.poll(), PERIOD);
  }

  private async poll(): Promise<void> {
    try {
      const state = await ask<LiveState>(LIVE_PATH);
      this.show(state);
      if (state.generation !== this.generation) {
        const model = await ask<ReportModel>(MODEL_PATH);
        this.generation = model.generation;
        this.links.onModel(model);
      }
      byId("live-problem").hidden = true;
    } catch (error) {
      showProblem(error instanceof Error ? error.message : String(error));
    }
    window.setTimeout(() => void this.poll(), PERIOD);
  }

  private show(state: LiveState): void {
    const { writers } = state;
    byId("live-time").textContent = `as of ${format.time(state.time)}`;
    fill(
      byId("live-place"),
      writers.length === 0 ? h("p", { class: "muted" }, "No merge is running.") : null,
      ...writers.map(writerOf),
      ...state.incoming.map((rows) =>
        h(
          "p",
          {},
          `Incoming rows of query ${rows.query}, batch ${rows.batch}: ` +
            `${format.counted(rows.files, "file")}, ${format.bytes(rows.bytes)}.`,
        ),
      ),
      notes(state.notes),
    );
    // Counts change all the time; only a new phase is worth an interruption.
    const phases = writers.map((writer) => writer.phases.at(-1)?.name ?? "").join(", ");
    if (phases !== this.spoken && phases !== "") this.links.announce(`Phase: ${phases}`);
    this.spoken = phases;
  }
}

function showProblem(reason: string): void {
  const problem = byId("live-problem");
  const text = visible(`The page is no longer live: ${reason}. It tries again every second.`);
  // A screen reader would read the same again every second.
  if (problem.textContent !== text) problem.textContent = text;
  problem.hidden = false;
}

/** Ask the server that the page came from; the query string has the token. */
async function ask<T>(path: string): Promise<T> {
  const response = await fetch(`${path}${location.search}`, { cache: "no-store" }).catch(() => {
    throw new Error("the server has stopped; start it again with 'fsspeckit serve', and open its new URL");
  });
  if (!response.ok) throw new Error(await reasonOf(response));
  return (await response.json()) as T;
}

/** Why the server gave no answer: in its words, such as that the dataset is gone. */
async function reasonOf(response: Response): Promise<string> {
  try {
    const { error } = (await response.json()) as { error?: unknown };
    if (typeof error === "string") return (error.split("\n")[0] ?? "").replace(/[.\s]+$/, "");
  } catch {
    // No words of its own.
  }
  return `the server answers ${response.status}`;
}

function writerOf(writer: LiveWriter): HTMLElement {
  const title = writer.strategy ?? "A writer";
  const state = { true: "running", false: "not running any more", null: "" }[String(writer.isRunning)];
  const left = writer.staged.length - MAX_STAGED;
  return h(
    "div",
    { class: "writer" },
    h("h3", {}, writer.engine === null ? title : `${title} with ${writer.engine}`),
    facts([
      ["State", state ?? null],
      ["Host", writer.host],
      ["Process", writer.process === null ? null : String(writer.process)],
      ["Started", writer.started === null ? null : format.time(writer.started)],
      ["Transaction", writer.transaction],
      ["Staged", `${format.counted(writer.stagedFiles, "file")}, ${format.bytes(writer.stagedBytes)}`],
    ]),
    h("ol", { class: "phases" }, ...writer.phases.map(phaseOf)),
    writer.staged.length === 0
      ? null
      : h(
          "ul",
          { class: "staged" },
          ...writer.staged
            .slice(0, MAX_STAGED)
            .map((file) => h("li", {}, h("span", {}, file.name), h("span", {}, format.bytes(file.bytes)))),
          left > 0 ? h("li", { class: "muted" }, `and ${format.count(left)} more`) : null,
        ),
  );
}

function phaseOf(phase: LivePhase): HTMLElement {
  const { name, done, total, isDone } = phase;
  const hasCount = total > 1;
  const progress = h("progress", { "aria-label": name, max: isDone || total === 0 ? 1 : total });
  if (isDone) progress.value = progress.max;
  else if (total > 0) progress.value = done;
  const words = [
    hasCount ? `${format.count(done)} of ${format.count(total)}` : "",
    format.duration(phase.seconds),
  ].filter(Boolean);
  return h(
    "li",
    { class: isDone ? "done" : "current" },
    h("span", { class: "phase-name" }, name),
    progress,
    h("span", { class: "phase-text" }, words.join(", ")),
  );
}
