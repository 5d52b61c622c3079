/** Chromium as the tests and the pictures of the documentation use it: headless, without a network. */

import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";

import { chromium } from "playwright-core";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const ARGUMENTS = [
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** The browser of the system: `CHROMIUM`, or the first of the usual names that is on PATH. */
function findChromium() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  const directories = (process.env.PATH ?? "").split(delimiter).filter(Boolean);
  const found = NAMES.flatMap((name) => directories.map((directory) => join(directory, name)));
  const program = found.find((path) => existsSync(path));
  if (program === undefined) throw new Error("Chromium is not installed. Hint: run 'make browser'.");
  return program;
}

export function launch() {
  // Root has no sandbox to drop its rights into, as in a container.
  const args = process.getuid?.() === 0 ? [...ARGUMENTS, "--no-sandbox"] : ARGUMENTS;
  return chromium.launch({ executablePath: findChromium(), args });
}

/**
 * Open a page, and keep what it says on the console and what it requests.
 *
 * The page must not say or request anything; `complaints` is what it did nevertheless.
 */
export async function open(browser, url, options = {}) {
  const { width = 1280, height = 900, ...rest } = options;
  const context = await browser.newContext({ viewport: { width, height }, ...rest });
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => complaints.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => complaints.push(`error: ${error.stack ?? error.message}`));
  page.on("dialog", (dialog) => {
    complaints.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    if (request.url() !== url) complaints.push(`request: ${request.url()}`);
  });
  await page.goto(url);
  await page.locator("#page").waitFor();
  await drawn(page);
  return { page, complaints, close: () => context.close() };
}

/** Wait until pictures are drawn, which happens in the frame after a change. */
export async function drawn(page) {
  await page.evaluate(
    () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))),
  );
}
