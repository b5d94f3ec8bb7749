import assert from "node:assert/strict";
import { createHash, createHmac, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { canonical, hashOf, verifyEvents } from "../dist/esm/index.js";
import { hmacSha256Hex, sha256, sha256Hex } from "../dist/esm/sha256.js";

const casesOf = (file) =>
  JSON.parse(readFileSync(new URL(`../../../vectors/${file}`, import.meta.url), "utf8")).cases;
const chains = casesOf("chains.json");

test("every metadata vector has its canonical text", () => {
  const cases = casesOf("metadata.json");
  assert.ok(cases.length > 50, `${cases.length} cases`);
  for (const { name, input, input_parts, canonical: wanted, canonical_sha256 } of cases) {
    const text = input ?? input_parts.map(([part, times]) => part.repeat(times)).join("");
    let got = null; // stays so when the input is not JSON
    try {
      got = canonical(text);
    } catch (error) {
      assert.equal(error.code, "client/unreadable", name);
    }
    if (canonical_sha256) assert.equal(sha256Hex(got), canonical_sha256, name);
    else assert.equal(got, wanted, name);
  }
});

test("every chain vector has its result", () => {
  assert.ok(chains.length > 20, `${chains.length} cases`);
  const fields = ["valid", "checked", "first_seq", "last_seq", "broken_at", "broken_hash", "reason"];
  const shown = (result) => fields.map((field) => String(result[field]));
  for (const { name, events, expect, result } of chains) {
    // The numbers of the vectors go beyond 2^53 in places, where JSON.parse rounds them: compared as texts
    // from there.
    const got = shown(verifyEvents(events, expect));
    const wanted = shown(result);
    got.forEach((value, i) => {
      if (Number(value) > Number.MAX_SAFE_INTEGER) assert.equal(Number(value), Number(wanted[i]), name);
      else assert.equal(value, wanted[i], `${name}: ${fields[i]}`);
    });
  }
});

test("a receipt is a head", () => {
  const { events } = chains.find((chain) => chain.result.valid && chain.events.length > 1 && !chain.expect);
  const last = JSON.parse(events.at(-1));
  const receipt = { chain_seq: last.chain_seq, hash: last.hash };
  assert.equal(verifyEvents(events, [receipt]).valid, true);
  assert.equal(verifyEvents(events, [{ ...receipt, hash: "0".repeat(64) }]).reason, "head");
  assert.equal(verifyEvents(events.slice(0, -1), [receipt]).reason, "tail");
  assert.equal(hashOf(events.at(-1)), last.hash);
});

test("a head that is none is refused with the form it must have", () => {
  assert.throws(() => verifyEvents([], ["12:abc"]), /SEQ:HASH/);
});

test("SHA-256 and HMAC are those of node:crypto, at every length around a block", () => {
  for (const length of [...Array(200).keys(), 1000, 70_000]) {
    const bytes = randomBytes(length);
    assert.equal(Buffer.from(sha256(bytes)).toString("hex"), createHash("sha256").update(bytes).digest("hex"));
    const key = bytes.subarray(0, 130);
    assert.equal(hmacSha256Hex(key, `é${length}`), createHmac("sha256", key).update(`é${length}`).digest("hex"));
  }
});
