// Run with `node --test tools/sealog_trust.test.mjs`.
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { STEPS, runCase, runVectors } from "./sealog_trust.mjs";

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

const { cases } = JSON.parse(readFileSync(join(VECTORS, "verify.json"), "utf8"));
const isRight = (vector, steps) => {
  const { exit, text } = runCase(vector, steps);
  return exit === vector.exit && text === vector.text;
};

test("every verdict has its exit code and its words", () => {
  for (const vector of cases) assert.deepEqual(runCase(vector), { exit: vector.exit, text: vector.text }, vector.name);
});

test("a verifier that leaves out a step fails a case", () => {
  for (const step of STEPS) {
    const others = STEPS.filter((one) => one !== step);
    assert.ok(cases.some((vector) => !isRight(vector, others)), step[0]);
  }
});

test("no changed bit of a proof or an event passes", () => {
  const vector = cases.find(({ name }) => name === "an event and its proof");
  for (const [name, text] of Object.entries(vector.files)) {
    for (let bit = 5; bit < 8 * Buffer.byteLength(text) - 8; bit += 89) { // not the last line feed of the events
      const bytes = Buffer.from(text);
      bytes[bit >> 3] ^= 1 << (bit & 7);
      const files = { ...vector.files, [name]: bytes.toString("latin1") };
      if (Buffer.from(files[name]).equals(bytes)) // what is no ASCII is not that text any more
        assert.notEqual(runCase({ ...vector, files }).exit, 0, `${name}, bit ${bit}`);
    }
  }
});
