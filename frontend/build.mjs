/**
 * Build the page: one file with its script, its styles and nothing else to load.
 *
 * Usage: `node build.mjs [OUTPUT]`; without an output it writes the page of the package.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

async function bundled(entry) {
  const result = await build({
    absWorkingDir: here("."),
    entryPoints: [entry],
    bundle: true,
    write: false,
    minify: true,
    format: "iife",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
  });
  return result.outputFiles[0].text.trim();
}

const script = await bundled("src/main.ts");
const style = await bundled("src/page.css");
if (/<\/script/i.test(script) || /<\/style/i.test(style)) {
  throw new Error("The script or the style would end its own element.");
}
const parts = { STYLE: style, SCRIPT: script };
const page = readFileSync(here("src/page.html"), "utf8").replace(
  /@([A-Z]+)@/g,
  (_, name) => parts[name],
);
writeFileSync(process.argv[2] ?? here("../src/fsspeckit/report/page.html"), page);
