import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Sealog, verifyProof } from "../dist/esm/index.js";
import { checkSignatures, keyOf, readNote } from "../dist/esm/proof.js";

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

test("a key that is none is refused when the client is made", () => {
  const options = { url: "https://audit.example.com", apiKey: `at_live_${"k".repeat(49)}` };
  for (const vkey of ["", "log.example", 7, null]) {
    assert.throws(() => new Sealog({ ...options, vkey }), { field: "vkey" }, String(vkey));
  }
});
