// What axe-core finds on a page.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const AXE = readFileSync(join(import.meta.dirname, "node_modules/axe-core/axe.min.js"), "utf8");
const AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

export async function hasNoBarriers(page) {
  // Through the debugger, which asks no policy: the page keeps its own.
  await page.evaluate(AXE);
  const found = await page.evaluate((values) => window.axe.run(document, { runOnly: { type: "tag", values } }), AXE_TAGS);
  const barriers = found.violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
  assert.deepEqual(barriers, []);
  assert.ok(found.passes.length > 10, "axe has looked");
}
