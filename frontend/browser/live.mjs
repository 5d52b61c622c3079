/**
 * Watch a served page until a commit appears that was not there.
 *
 * Usage: `node browser/live.mjs URL`. Prints `ready` once the page is shown, and at the end a line
 * of JSON: the newest commit, what the page said, and whatever it requested of another server.
 */

import { launch } from "./driver.mjs";

const [url] = process.argv.slice(2);
const browser = await launch();
const page = await browser.newPage();
page.setDefaultTimeout(90_000);
const complaints = [];
page.on("console", (message) => complaints.push(`${message.type()}: ${message.text()}`));
page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
page.on("request", (request) => {
  if (new URL(request.url()).origin !== new URL(url).origin) complaints.push(request.url());
});
await page.goto(url);
await page.locator("#live").waitFor();
const commits = page.locator("#commits-grid");
const before = await commits.getAttribute("aria-rowcount");
console.log("ready");
await page.waitForFunction(
  (count) => document.querySelector("#commits-grid").getAttribute("aria-rowcount") !== count,
  before,
);
const announced = await page.locator("#announcements").innerText();
const newest = await page.locator("#commits-grid .body .row").first().innerText();
console.log(JSON.stringify({ newest, announced, complaints }));
await browser.close();
