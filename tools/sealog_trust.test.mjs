// Run with `node --test tools/sealog_trust.test.mjs`.
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { runVectors } from "./sealog_trust.mjs";

const VECTORS = fileURLToPath(new URL("../vectors/trust", import.meta.url));
const dir = mkdtempSync(join(tmpdir(), "sealog-trust-"));
after(() => rmSync(dir, { recursive: true }));

test("every case of the vectors passes", () => {
  const lines = [];
  assert.equal(runVectors(VECTORS, (line) => lines.push(line)), 0, lines.join("\n"));
});

test("a wrong result is noticed in each file that has results", () => {
  const names = ["trees", "salts", "heads", "notes", "entries", "tiles", "policies", "proofs"];
  cpSync(VECTORS, dir, { recursive: true });
  for (const name of ["sizes", "leaves"]) writeFileSync(join(dir, `${name}.json`), '{"cases":[]}');
  for (const name of names) {
    const { cases } = JSON.parse(readFileSync(join(VECTORS, `${name}.json`), "utf8"));
    const wrong = cases.filter(({ result }) => result).slice(0, 2).map((vector) => ({ ...vector, result: "wrong" }));
    writeFileSync(join(dir, `${name}.json`), JSON.stringify({ cases: wrong }));
  }
  assert.equal(runVectors(dir, () => {}), 2 * names.length);
});
