/**
 * Take the pictures of the documentation.
 *
 * Usage: `node browser/shots.mjs PAGES PICTURES`, two directories: `scripts/screenshots.py` makes
 * the pages and says what is in them.
 */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import { drawn, launch, open } from "./driver.mjs";
import { encodePng } from "./png.mjs";

const row = (page, grid, text) => page.locator(`${grid} .body .row`, { hasText: text }).first();
const WIDE = { width: 1280, height: 960 };

const SHOTS = [
  { name: "report-10-files", opened: "ten", options: WIDE },
  { name: "report-10-files-dark", opened: "ten", options: { ...WIDE, colorScheme: "dark" } },
  {
    name: "report-10000-files",
    opened: "many",
    options: WIDE,
    from: "#files",
  },
  {
    name: "report-plan",
    opened: "plan",
    options: { ...WIDE, height: 1180 },
    from: "#change",
    prepare: (page) => row(page, "#files-grid", "To be rewritten").click(),
  },
  {
    name: "report-result",
    opened: "result",
    options: { ...WIDE, height: 1120 },
    from: "#change",
    prepare: (page) => row(page, "#files-grid", "Rewritten").click(),
  },
  {
    name: "report-history",
    opened: "ten",
    options: WIDE,
    from: "#history",
    prepare: (page) => row(page, "#commits-grid", "updated").click(),
  },
  {
    name: "report-phone",
    opened: "plan",
    options: { width: 390, height: 844, hasTouch: true, colorScheme: "dark" },
    from: "#change",
  },
];

/** The pixels of a PNG file, as the browser decodes it on an empty page. */
async function decode(browser, png) {
  const page = await browser.newPage();
  const decoded = await page.evaluate(async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
    context.drawImage(bitmap, 0, 0);
    const { data } = context.getImageData(0, 0, bitmap.width, bitmap.height);
    let binary = "";
    for (let i = 0; i < data.length; i += 8192) {
      binary += String.fromCharCode(...data.subarray(i, i + 8192));
    }
    return { width: bitmap.width, height: bitmap.height, data: btoa(binary) };
  }, png.toString("base64"));
  await page.close();
  const data = Uint8Array.from(Buffer.from(decoded.data, "base64"));
  return { ...decoded, pixels: new Uint32Array(data.buffer) };
}

const [pages, pictures] = process.argv.slice(2);
const browser = await launch();
for (const { name, opened, options, from, prepare } of SHOTS) {
  const url = pathToFileURL(join(pages, `${opened}.html`)).href;
  const { page, complaints, close } = await open(browser, url, options);
  if (prepare !== undefined) await prepare(page);
  await page.evaluate((selector) => {
    document.documentElement.style.scrollBehavior = "auto";
    document.activeElement?.blur();
    if (selector === undefined) window.scrollTo(0, 0);
    else document.querySelector(selector).scrollIntoView();
  }, from);
  await page.mouse.move(0, 0);
  await drawn(page);
  const { width, height, pixels } = await decode(browser, await page.screenshot());
  writeFileSync(join(pictures, `${name}.png`), encodePng(width, height, pixels));
  if (complaints.length > 0) throw new Error(`${name}: ${complaints.join("\n")}`);
  await close();
}
await browser.close();
