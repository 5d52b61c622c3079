/**
 * What a reader does with the page, in a real browser.
 *
 * The pages are made by Python from real datasets: `tests/report/test_browser.py` says which.
 * Every scenario gets a page that was just opened, and fails if the page says something on the
 * console or requests anything.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import { drawn } from "./driver.mjs";

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** By name: the page it opens, options of the browser, and what is done. */
export const scenarios = new Map();

function scenario(name, opened, run, options = {}) {
  scenarios.set(name, { opened, run, options });
}

const text = (page, selector) => page.locator(selector).innerText();
const files = (page) => page.locator("#files-grid .body .row");
const rowCount = async (page, grid) =>
  Number(await page.locator(grid).getAttribute("aria-rowcount")) - 1;

/** How many pixels of a canvas have the colour of a meaning, as the theme resolves it. */
function pixels(page, canvas, tone) {
  return page.evaluate(
    ([selector, name]) => {
      const element = document.querySelector(selector);
      const { width, height } = element;
      const options = { willReadFrequently: true };
      const probe = new OffscreenCanvas(width, height).getContext("2d", options);
      const span = document.createElement("span");
      span.style.color = `var(--tone-${name})`;
      document.body.append(span);
      probe.fillStyle = getComputedStyle(span).color;
      span.remove();
      probe.fillRect(0, 0, 1, 1);
      const wanted = probe.getImageData(0, 0, 1, 1).data;
      probe.clearRect(0, 0, 1, 1);
      probe.drawImage(element, 0, 0);
      const { data } = probe.getImageData(0, 0, width, height);
      let found = 0;
      for (let i = 0; i < data.length; i += 4) {
        if (data[i] === wanted[0] && data[i + 1] === wanted[1] && data[i + 2] === wanted[2]) found += 1;
      }
      return found;
    },
    [canvas, tone],
  );
}

async function violations(page) {
  await page.evaluate(axeSource);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.flatMap(({ id, nodes }) =>
    nodes.map((node) => `${id}: ${node.target.join(" ")}: ${node.failureSummary}`),
  );
}

const overflow = (page) =>
  page.evaluate(() => document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth);

scenario("shows the files of the dataset", "report", async (page) => {
  assert.equal(await text(page, "h1"), "orders");
  assert.equal(await text(page, "#files-count"), "12 files");
  assert.equal(await rowCount(page, "#files-grid"), 12);
  assert.ok((await pixels(page, "#picture", "open")) > 500, "small files are drawn");
  const label = await page.locator("#picture").getAttribute("aria-label");
  assert.match(label, /Ranges of the key id of 12 files\. A key may be in up to \d+ files?\./);
});

scenario("filters by text, partition and status, and clears", "report", async (page) => {
  await page.locator("#search").fill("day=2026-03-01");
  const byText = await rowCount(page, "#files-grid");
  assert.ok(byText > 0 && byText < 12);
  assert.equal(await text(page, "#files-count"), `${byText} of 12 files`);
  await page.locator("#search").fill("");
  await page.locator("#partition").selectOption("day=2026-03-01");
  assert.equal(await rowCount(page, "#files-grid"), byText);
  for (const row of await files(page).all()) assert.match(await row.innerText(), /2026-03-01/);
  await page.locator("#search").fill("no such file");
  assert.equal(await text(page, ".grid-frame .empty >> visible=true"), "No file passes the filter.");
  await page.getByRole("button", { name: "Clear filter" }).click();
  assert.equal(await rowCount(page, "#files-grid"), 12);
});

scenario("finds the files that may hold a key", "report", async (page) => {
  await page.locator("#key").fill("41");
  const found = await rowCount(page, "#files-grid");
  assert.ok(found >= 1 && found < 12, `${found} files`);
  for (const row of await files(page).all()) {
    const range = await row.locator(".cell").nth(3).innerText();
    const [low, high] = range.split(" – ").map(Number);
    assert.ok(range === "not known" || (low <= 41 && 41 <= high), range);
  }
  await page.locator("#key").fill("abc");
  assert.equal(await text(page, "#key-hint"), "Not a number");
  assert.equal(await rowCount(page, "#files-grid"), 12);
});

scenario("sorts by any column, in both directions", "report", async (page) => {
  const rows = async () => {
    const texts = await files(page).locator(".cell:nth-child(6)").allInnerTexts();
    // What is not known is last in both directions.
    assert.equal(texts.pop(), "–");
    return texts.map(Number);
  };
  await page.getByRole("button", { name: "Rows" }).click();
  const ascending = await rows();
  assert.deepEqual(ascending, [...ascending].sort((a, b) => a - b));
  await page.getByRole("button", { name: "Rows" }).click();
  assert.deepEqual(await rows(), [...ascending].reverse());
  assert.equal(await page.locator('[aria-sort="descending"]').innerText(), "Rows ↓");
});

scenario("marks the files that a commit touched", "report", async (page) => {
  await page.locator("#commits-grid .body .row").first().click();
  const number = (await text(page, "#commit-details h3")).replace("Commit ", "");
  assert.match(await text(page, "#commit-details"), /added, .* removed/);
  assert.match(await text(page, "#context-note"), new RegExp(`commit ${number} .* touched`));
  const chips = await text(page, "#chips");
  assert.match(chips, /Added/);
  assert.match(chips, /Removed/);
  assert.ok((await pixels(page, "#picture", "added")) > 50);
  await page.getByRole("button", { name: "Show its files" }).click();
  const shown = await rowCount(page, "#files-grid");
  assert.ok(shown > 0 && shown < 12);
  for (const row of await files(page).all()) assert.match(await row.innerText(), /Added|Removed/);
});

scenario("says what a commit did, and how it was pruned", "report", async (page) => {
  await page.locator("#commits-grid .body .row").first().click();
  const details = await text(page, "#commit-details");
  assert.match(details, /pruned by statistics/);
  assert.match(details, /encoded/);
  assert.match(details, /pyarrow/);
  assert.match(details, /Phases/);
});

scenario("reads the evidence of a file in a plan", "plan", async (page) => {
  assert.match(await text(page, "#change"), /to be rewritten/);
  assert.ok((await pixels(page, "#picture", "changed")) > 50);
  await page.getByRole("button", { name: /^Pruned by statistics/ }).click();
  const pruned = await rowCount(page, "#files-grid");
  assert.ok(pruned > 0);
  await files(page).first().click();
  assert.match(await text(page, "#evidence"), /^statistics of id: .*\d/);
  assert.match(await text(page, "#details .status"), /Pruned by statistics/);
});

scenario("says what was encoded and what copied as bytes", "result", async (page) => {
  assert.match(await text(page, "#change"), /encoded, .* copied/);
  await page.getByRole("button", { name: /^Rewritten/ }).click();
  await files(page).first().click();
  const details = await text(page, "#details");
  assert.match(details, /Rewritten by commit \d+/);
  assert.match(details, /It replaces part-/);
  assert.match(details, /Row groups\s+\d+ encoded, \d+ copied/);
  assert.match(details, /Bytes\s+.*B encoded, .*B copied/);
  assert.match(details, /Pages\s+\d+ encoded, \d+ copied/);
  assert.match(details, /Encoded\s+columns? .*note.*, in row groups? \d/);
  const groups = await page.locator("#details .row-groups tbody tr").allInnerTexts();
  assert.ok(groups.some((line) => /encoded$/.test(line)) && groups.some((line) => /copied$/.test(line)));
  assert.match(await text(page, "#picture-place"), /Pale row groups were copied as bytes/);
  await page.locator("#commits-grid .body .row").first().click();
  assert.match(await text(page, "#commit-details"), /Encoded\s+columns? .*note/);
});

scenario("shows the schema on demand", "report", async (page) => {
  assert.equal(await page.locator("#columns table").isVisible(), false);
  await page.locator("#columns summary").click();
  const lines = await page.locator("#columns tbody tr").allInnerTexts();
  assert.ok(lines.some((line) => /^id key\s+int64\s+\d+ – \d+\s+0/.test(line)), lines.join("; "));
  assert.ok(lines.some((line) => /^day partition/.test(line)));
  assert.deepEqual(await violations(page), []);
});

scenario("says what is missing in a dataset without files or without a key", "empty", async (page) => {
  assert.equal(await text(page, "#grid-place .empty >> visible=true"), "The dataset has no files.");
  for (const hidden of ["#picture", "#files-fields", "#details", "#timeline"]) {
    assert.equal(await page.locator(hidden).isVisible(), false, hidden);
  }
  assert.equal(await page.locator("#checks .outcome").getAttribute("class"), "outcome unknown");
  assert.deepEqual(await violations(page), []);
});

scenario("says that no key is known", "keyless", async (page) => {
  assert.match(await text(page, "#files-note"), /Name it with --key/);
  assert.equal(await page.locator("#key").isVisible(), false);
  assert.deepEqual(await violations(page), []);
});

scenario("leads from a finding to its files, and says what to do", "report", async (page) => {
  const checks = await text(page, "#checks");
  assert.match(checks, /Doctor/);
  assert.match(checks, /Verify/);
  assert.match(checks, /What to do:/);
  await page.locator("#checks").getByRole("button", { name: /^Show \d+ files?$/ }).first().click();
  assert.match(await text(page, "#chips"), /Of one finding/);
  assert.ok((await rowCount(page, "#files-grid")) < 12);
  await files(page).first().click();
  assert.match(await text(page, "#details"), /What to do:/);
});

scenario("is used with the keyboard alone", "report", async (page) => {
  const focused = () => page.evaluate(() => document.activeElement?.id || document.activeElement?.getAttribute("data-row") || document.activeElement?.tagName);
  const tabTo = async (wanted) => {
    for (let i = 0; i < 60; i += 1) {
      await page.keyboard.press("Tab");
      if ((await focused()) === wanted) return;
    }
    assert.fail(`Tab does not lead to ${wanted}`);
  };
  await tabTo("theme");
  await page.keyboard.press("Enter");
  assert.equal(await text(page, "#theme"), "Theme: light");
  await tabTo("search");
  await page.keyboard.type("day=2026-03-0");
  assert.equal(await rowCount(page, "#files-grid"), 12);
  await tabTo("picture");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  assert.notEqual(await text(page, "#details h3"), "No file chosen");
  const whole = page.getByRole("button", { name: "Show all" });
  assert.ok(await whole.isDisabled());
  await page.keyboard.press("+");
  await drawn(page);
  assert.ok(await whole.isEnabled());
  await page.keyboard.press("Shift+ArrowRight");
  await page.keyboard.press("0");
  await drawn(page);
  assert.ok(await whole.isDisabled());
  await tabTo("1");
  await page.keyboard.press("End");
  assert.equal(await focused(), "11");
  await page.keyboard.press("Enter");
  assert.equal(await focused(), "details-title");
  await page.keyboard.press("Escape");
  assert.equal(await focused(), "11");
  await tabTo("timeline");
  await page.keyboard.press("ArrowLeft");
  const chosen = await text(page, "#commit-details h3");
  await page.keyboard.press("ArrowLeft");
  assert.notEqual(await text(page, "#commit-details h3"), chosen);
  assert.match(await text(page, "#announcements"), /^Commit \d+: /);
});

scenario("shows a file under the pointer", "report", async (page) => {
  const box = await page.locator("#picture").boundingBox();
  await page.mouse.move(box.x + 200, box.y + 70);
  await page.locator("#picture-place .tip").waitFor();
  assert.match(await text(page, "#picture-place .tip"), /parquet[\s\S]*id: \d+/);
  await page.mouse.down();
  await page.mouse.up();
  assert.notEqual(await text(page, "#details h3"), "No file chosen");
});

scenario("goes on with the keyboard after a click", "report", async (page) => {
  const row = () => page.evaluate(() => document.activeElement?.getAttribute("data-row"));
  await files(page).nth(2).click();
  assert.equal(await row(), "2");
  await page.keyboard.press("ArrowDown");
  assert.equal(await row(), "3");
  await page.locator("#commits-grid .body .row").nth(1).click();
  await page.keyboard.press("ArrowUp");
  assert.equal(await row(), "0");
});

scenario("stays light with ten thousand files", "large", async (page) => {
  assert.equal(await text(page, "#files-count"), "10,000 files");
  assert.equal(await rowCount(page, "#files-grid"), 10_000);
  assert.ok((await page.locator("#files-grid .row").count()) < 60, "few rows are rendered");
  assert.ok((await pixels(page, "#picture", "open")) > 1000);
  // A file that will be rewritten is seen, although it has a hundredth of a line of pixels.
  assert.ok((await pixels(page, "#picture", "changed")) > 10);
  const before = await page.locator("#picture").screenshot();
  const box = await page.locator("#picture").boundingBox();
  await page.mouse.click(box.x + 300, box.y + 200);
  await page.mouse.wheel(0, -800);
  await drawn(page);
  assert.ok(await page.getByRole("button", { name: "Show all" }).isEnabled());
  assert.notDeepEqual(await page.locator("#picture").screenshot(), before);
  await page.mouse.down();
  await page.mouse.move(box.x + 350, box.y + 260, { steps: 5 });
  await page.mouse.up();
  await files(page).first().focus();
  await page.keyboard.press("End");
  assert.equal(await page.locator("#files-grid .row:focus").getAttribute("aria-rowindex"), "10001");
  assert.ok((await page.locator("#files-grid .row").count()) < 60);
  await page.locator("#search").fill("00777.parquet");
  assert.equal(await rowCount(page, "#files-grid"), 1);
  await page.locator("#search").fill("");
  await page.getByRole("button", { name: /^To be rewritten/ }).click();
  assert.equal(await rowCount(page, "#files-grid"), 1);
});

scenario("changes its colours on demand", "report", async (page) => {
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await paper(), "rgb(255, 255, 255)");
  const light = await pixels(page, "#picture", "open");
  await page.locator("#theme").click();
  await page.locator("#theme").click();
  assert.equal(await text(page, "#theme"), "Theme: dark");
  assert.equal(await paper(), "rgb(20, 23, 27)");
  await drawn(page);
  assert.equal(await pixels(page, "#picture", "open"), light);
  await page.emulateMedia({ media: "print" });
  assert.equal(await paper(), "rgb(255, 255, 255)");
});

scenario("prints its tables", "report", async (page) => {
  await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
  await page.emulateMedia({ media: "print" });
  assert.equal(await files(page).count(), 12);
  const heights = await files(page).evaluateAll((rows) => rows.map((row) => row.getBoundingClientRect().top));
  assert.equal(new Set(heights).size, 12);
  // No column is cut off at the right edge of the paper.
  const cut = await page.locator(".grid").evaluateAll((grids) =>
    grids.map((grid) => grid.scrollWidth - grid.clientWidth),
  );
  assert.deepEqual(cut, [0, 0]);
  await files(page).last().click();
  assert.ok(await page.locator("#details .facts .link").first().isVisible(), "the commit is printed");
  assert.ok((await page.pdf()).length > 10_000);
}, { width: 794, height: 1123 });

scenario("prints the first of many files, and says how many are left out", "large", async (page) => {
  await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
  await page.emulateMedia({ media: "print" });
  assert.equal(await files(page).count(), 300);
  assert.equal(await text(page, "#grid-place .print-only"), "9,700 more are not printed.");
});

scenario("shows names as text, whatever they are", "hostile", async (page) => {
  assert.equal(await page.locator("img, b, iframe, object").count(), 0);
  assert.match(await text(page, "#files-grid"), /<img src=x onerror=alert\(1\)>/);
  await files(page).first().click();
  assert.match(await text(page, "#details"), /<\/script><b>|<img src=x/);
  // A character that turns the direction of the text is written out, and does not turn it.
  assert.doesNotMatch(await page.locator("body").innerText(), /\u202e/);
  assert.match(await text(page, "#figures"), /<i>\\u202ex/);
  const heights = await page.locator("#details .row-groups td").evaluateAll((cells) =>
    cells.slice(0, 3).map((cell) => {
      const range = document.createRange();
      range.selectNodeContents(cell);
      return range.getClientRects().length;
    }),
  );
  assert.deepEqual(heights, [1, 1, 1], "a long name leaves room to the other columns");
});

for (const [opened, ...schemes] of [
  ["report", "light", "dark"],
  ["plan", "light", "dark"],
  ["result", "light", "dark"],
  ["large", "dark"],
]) {
  for (const colorScheme of schemes) {
    const check = async (page) => {
      await files(page).first().click();
      await page.locator("#commits-grid .body .row").first().click();
      assert.deepEqual(await violations(page), []);
    };
    scenario(`is accessible: ${opened}, ${colorScheme}`, opened, check, { colorScheme });
  }
}

for (const opened of ["report", "plan", "result", "large", "hostile"]) {
  const fits = async (page) => {
    assert.equal(await overflow(page), 0);
    await files(page).first().click();
    assert.equal(await overflow(page), 0);
    const cut = await page.locator("#files-grid").evaluate((grid) => grid.scrollWidth - grid.clientWidth);
    assert.equal(cut, 0, "every column of the table is in sight");
    if (opened === "report") assert.deepEqual(await violations(page), []);
  };
  scenario(`fits on a phone: ${opened}`, opened, fits, { width: 360, height: 740, hasTouch: true });
}
