/** Small parts that several sections of the page share. */

import { h } from "./dom.ts";
import * as format from "./format.ts";
import type { Tone } from "./groups.ts";
import type { Rewrites } from "./model.ts";
import { encodedColumns, linesOf, totalOf, type Work } from "./work.ts";

const MAX_NAMES = 12;

/** A square in the colour of a meaning; the words beside it say the same. */
export function swatch(tone: Tone): HTMLElement {
  return h("span", { class: `swatch tone-${tone}`, "aria-hidden": "true" });
}

/** A list of names and values; what has no value is left out. Nothing if none has. */
export function facts(
  pairs: readonly (readonly [string, Node | string | null])[],
): HTMLElement | null {
  const shown = pairs.filter(([, value]) => value !== null && value !== "");
  if (shown.length === 0) return null;
  return h(
    "dl",
    { class: "facts" },
    ...shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

/** A button that looks like a link, for what leads to another part of the page. */
export function link(text: string, onClick: () => void, label?: string): HTMLButtonElement {
  return h("button", { type: "button", class: "link", "aria-label": label, click: onClick }, text);
}

export interface Share {
  readonly tone: Tone;
  readonly value: number;
}

/** A bar of shares; what it says stands beside it in words. */
export function shareBar(shares: readonly Share[]): HTMLElement {
  const total = shares.reduce((sum, share) => sum + share.value, 0);
  const bar = h("div", { class: "shares", "aria-hidden": "true" });
  for (const { tone, value } of shares) {
    if (value === 0 || total === 0) continue;
    const part = h("span", { class: `tone-${tone}` });
    part.style.flexGrow = String(value / total);
    bar.append(part);
  }
  return bar;
}

/** What was encoded and what copied in all rewritten files together. */
export function workOfAll(rewrites: Rewrites): HTMLElement | null {
  const names = encodedColumns(rewrites);
  const encoded = names === null || names.length === 0 ? "" : columnsText(names);
  return workBars(totalOf(rewrites), encoded, rewrites.from.length);
}

/** Names of columns, of which there may be many. */
export function columnsText(names: readonly string[]): string {
  const left = names.length - MAX_NAMES;
  const shown = format.listed(names.slice(0, MAX_NAMES));
  const which = names.length === 1 ? "column" : "columns";
  return left > 0 ? `${which} ${shown} and ${format.count(left)} more` : `${which} ${shown}`;
}

/** What was encoded and what copied, a bar for each part that is recorded; and what exactly. */
export function workBars(work: Work, encoded = "", files = 1): HTMLElement | null {
  const lines = linesOf(work, files);
  if (lines.length === 0) return null;
  return h(
    "div",
    { class: "work" },
    ...lines.map(({ label, encoded, copied, text }) =>
      h(
        "div",
        { class: "work-line" },
        h("span", { class: "work-label" }, label),
        shareBar([
          { tone: "changed", value: encoded },
          { tone: "kept", value: copied },
        ]),
        h("span", { class: "work-text" }, text),
      ),
    ),
    encoded === ""
      ? null
      : h(
          "div",
          { class: "work-line" },
          h("span", { class: "work-label" }, "Encoded"),
          h("span", { class: "work-names" }, encoded),
        ),
  );
}

/** A list of notes, or nothing. */
export function notes(lines: readonly string[]): HTMLElement | null {
  if (lines.length === 0) return null;
  return h("ul", { class: "notes" }, ...lines.map((line) => h("li", {}, line)));
}
