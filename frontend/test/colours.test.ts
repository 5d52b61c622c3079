import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

// Tests run from the directory of the front-end.
const css = readFileSync("src/page.css", "utf8");
const colours = new Map(
  [...css.matchAll(/--([a-z-]+): light-dark\(#(\w{6}), #(\w{6})\)/g)].map(
    ([, name = "", light = "", dark = ""]) => [name, [light, dark]],
  ),
);

/** The relative luminance of a colour, as WCAG 2 defines it. */
function luminance(hex: string): number {
  const [red = 0, green = 0, blue = 0] = [0, 2, 4].map((at) => {
    const value = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(name: string, ground: string, theme: 0 | 1): number {
  const [a = 0, b = 0] = [name, ground]
    .map((each) => luminance(colours.get(each)?.[theme] ?? ""))
    .sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}

const themes = [0, 1] as const;

test("contrast is computed as it is defined", () => {
  assert.equal(luminance("ffffff"), 1);
  assert.equal(luminance("000000"), 0);
});

test("texts have a contrast of 4.5 to whatever is behind them, in both themes", () => {
  for (const text of ["ink", "muted", "accent", "error", "warning", "good"]) {
    for (const ground of ["paper", "raised", "accent-paper"]) {
      for (const theme of themes) {
        const found = contrast(text, ground, theme);
        assert.ok(found >= 4.5, `${text} on ${ground}: ${found.toFixed(2)}`);
      }
    }
  }
});

test("colours of pictures and edges of fields have a contrast of 3, in both themes", () => {
  const tones = [...colours.keys()].filter((name) => name.startsWith("tone-"));
  assert.equal(tones.length, 10);
  for (const [name, grounds] of [
    ...tones.map((tone) => [tone, ["paper", "well"]] as const),
    ["field-line", ["paper"]] as const,
  ]) {
    for (const ground of grounds) {
      for (const theme of themes) {
        const found = contrast(name, ground, theme);
        assert.ok(found >= 3, `${name} on ${ground}: ${found.toFixed(2)}`);
      }
    }
  }
});
