/** Light and dark: what the system prefers, or what the reader chose; and the colours of pictures. */

import { byId, h } from "./dom.ts";
import { TONES, type Tone } from "./groups.ts";

const CHOICES = ["automatic", "light", "dark"] as const;
type Choice = (typeof CHOICES)[number];
const STORED = "fsspeckit-theme";

/** The font of texts in pictures: that of the page. */
export const PICTURE_FONT = '12px -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

export interface Palette {
  readonly ink: string;
  readonly muted: string;
  readonly line: string;
  readonly well: string;
  readonly tones: Readonly<Record<Tone, string>>;
}

let palette: Palette | null = null;
const listeners: (() => void)[] = [];

/** The colours of the style sheet as the theme resolves them. */
export function colours(): Palette {
  if (palette !== null) return palette;
  const probe = h("span", { hidden: true });
  document.body.append(probe);
  const read = (name: string): string => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const tones = Object.fromEntries(TONES.map((tone) => [tone, read(`tone-${tone}`)]));
  palette = {
    ink: read("ink"),
    muted: read("muted"),
    line: read("line"),
    well: read("well"),
    tones: tones as Record<Tone, string>,
  };
  probe.remove();
  return palette;
}

/** Call a function whenever the colours change. */
export function onColours(listener: () => void): void {
  listeners.push(listener);
}

function renew(): void {
  palette = null;
  for (const listener of listeners) listener();
}

// Storage may be forbidden, such as for a file opened from a disk; the choice then lasts as long
// as the page.
function stored(): string | null {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null;
  }
}

function store(choice: Choice): void {
  try {
    localStorage.setItem(STORED, choice);
  } catch {
    // Nothing is lost but the memory of a choice.
  }
}

function apply(choice: Choice, button: HTMLButtonElement): void {
  if (choice === "automatic") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = choice;
  button.textContent = `Theme: ${choice}`;
  renew();
}

/** Set the theme up, with the button that changes it. */
export function startTheme(): void {
  const button = byId<HTMLButtonElement>("theme");
  let choice = CHOICES.find((each) => each === stored()) ?? "automatic";
  apply(choice, button);
  button.addEventListener("click", () => {
    choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length] ?? "automatic";
    store(choice);
    apply(choice, button);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", renew);
  matchMedia("print").addEventListener("change", renew);
}
