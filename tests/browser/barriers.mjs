// What axe-core finds on a page.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const AXE = readFileSync(join(import.meta.dirname, "node_modules/axe-core/axe.min.js"), "utf8");
const AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

/// All rules, or those alone that a theme can change.
export const EVERYTHING = { type: "tag", values: AXE_TAGS };
export const COLOURS = { type: "rule", values: ["color-contrast", "link-in-text-block"] };

export async function hasNoBarriers(page, runOnly = EVERYTHING) {
  // Through the debugger, which asks no policy: the page keeps its own.
  if (!await page.evaluate(() => "axe" in window)) await page.evaluate(AXE);
  // Every node is looked at; of what is right, one of each rule is told, and nothing of it leaves the page but how much it is.
  const found = await page.evaluate(async (runOnly) => {
    const { violations, passes } = await window.axe.run(document, { runOnly, resultTypes: ["violations"] });
    const told = violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
    return { barriers: told, passes: passes.length };
  }, runOnly);
  assert.deepEqual(found.barriers, []);
  assert.ok(found.passes >= (runOnly === EVERYTHING ? 10 : 1), "axe has looked");
}
