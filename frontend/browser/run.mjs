/**
 * Run the scenarios and print a line of JSON for each: its name, and why it failed or null.
 *
 * Usage: `node browser/run.mjs DIRECTORY [TEXT]`: the directory has a page NAME.html for each page
 * that scenarios open; with a text, only scenarios with this text in their name run.
 */

import { join } from "node:path";
import { pathToFileURL } from "node:url";

import { launch, open } from "./driver.mjs";
import { scenarios } from "./scenarios.mjs";

async function failureOf(browser, directory, { opened, run, options }) {
  const url = pathToFileURL(join(directory, `${opened}.html`)).href;
  let view;
  try {
    view = await open(browser, url, options);
    view.page.setDefaultTimeout(30_000);
    await run(view.page);
    return view.complaints.length === 0 ? null : view.complaints.join("\n");
  } catch (error) {
    return [error.stack ?? String(error), ...(view?.complaints ?? [])].join("\n");
  } finally {
    await view?.close();
  }
}

const [directory, wanted = ""] = process.argv.slice(2);
const browser = await launch();
for (const [name, scenario] of scenarios) {
  if (!name.includes(wanted)) continue;
  console.log(JSON.stringify({ name, failure: await failureOf(browser, directory, scenario) }));
}
await browser.close();
