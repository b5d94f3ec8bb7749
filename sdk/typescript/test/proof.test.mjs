import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Sealog, verifyProof } from "../dist/esm/index.js";
import { checkSignatures, keyOf, readNote, rootFromPath, unbase64 } from "../dist/esm/proof.js";

const casesOf = (file) =>
  JSON.parse(readFileSync(new URL(`../../../vectors/trust/${file}`, import.meta.url), "utf8")).cases;
const proofs = casesOf("proofs.json").filter(({ event }) => event !== null);
const vkeyOf = ({ policy }) => /^log (\S+)/m.exec(policy)[1];

test("every proof of an event in the vectors has its result, and the log's key alone asks for no witness", async () => {
  assert.ok(proofs.length > 40, `${proofs.length} cases`);
  for (const one of proofs) {
    const { holds, reason } = await verifyProof(one.event, one.proof, vkeyOf(one));
    const wanted = ["ok", "quorum"].includes(one.result) ? undefined : one.result;
    assert.deepEqual({ holds, reason }, { holds: wanted === undefined, reason: wanted }, one.name);
  }
});

test("every key in the vectors is accepted or refused as they say, except those of witnesses", () => {
  const cases = casesOf("notes.json").filter(({ kind }) => kind === "vkey");
  assert.ok(cases.length > 20, `${cases.length} cases`);
  for (const { name, vkey, result } of cases) {
    if (result === "ok" && !name.includes("witness")) keyOf(vkey);
    else assert.throws(() => keyOf(vkey), { code: "client/invalid_option", field: "vkey" }, name);
  }
});

test("every note in the vectors that is of one log has its result", async () => {
  const isOfLog = ({ kind, keys }) => kind === "note" && keys.length === 1 && keys[0].includes("+A"); // type 01
  const cases = casesOf("notes.json").filter(isOfLog);
  assert.ok(cases.length > 20, `${cases.length} cases`);
  for (const { name, keys, note, result } of cases) {
    const found = await (async () => checkSignatures(readNote(note), keyOf(keys[0])))()
      .then(() => "ok", ({ reason, message }) => reason ?? message);
    assert.equal(found, result === "unknown" ? "signature" : result, name);
  }
});

test("every inclusion proof in the vectors fits or does not, as they say", () => {
  // Texts cannot say the cases "size" and "too long".
  const cases = casesOf("trees.json").filter(({ kind, result }) => kind === "inclusion" && !/size|too long/.test(result));
  assert.ok(cases.length > 70, `${cases.length} cases`);
  for (const { name, leaf, index, size, path, root, result } of cases) {
    let found;
    try {
      found = rootFromPath(unbase64(leaf), BigInt(index), BigInt(size), path.map(unbase64));
    } catch (error) {
      assert.equal(error.reason, "root", name);
    }
    assert.equal(found !== undefined && Buffer.from(found).toString("base64") === root, result === "ok", name);
  }
});

test("a path with a hash too many is refused, also where it leads to the root", () => {
  const [leaf, beside] = [new Uint8Array(32).fill(1), new Uint8Array(32).fill(2)];
  assert.equal(rootFromPath(leaf, 1n, 2n, [beside]).length, 32);
  assert.throws(() => rootFromPath(leaf, 0n, 1n, [beside]), { reason: "root" });
});

test("base64 has one spelling", () => {
  assert.deepEqual(unbase64("AQ=="), Uint8Array.of(1));
  for (const text of ["AR==", "AQ", "AQ=", "AQ==\n", "A\nQ==", "-_-_", "AQ==AQ=="]) {
    assert.equal(unbase64(text), undefined, JSON.stringify(text));
  }
});

test("a key that is none is refused when the client is made", () => {
  const options = { url: "https://audit.example.com", apiKey: `at_live_${"k".repeat(49)}` };
  for (const vkey of ["", "log.example", 7, null]) {
    assert.throws(() => new Sealog({ ...options, vkey }), { field: "vkey" }, String(vkey));
  }
});
