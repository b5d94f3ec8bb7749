import assert from "node:assert/strict";
import { test } from "node:test";
import vm from "node:vm";
import { ValidationError } from "../dist/esm/index.js";
import { encode, utf8Length } from "../dist/esm/event.js";

const event = (more) => ({ action: "user.login", ...more });
const cycle = { a: {} };
cycle.a.b = cycle;
const deep = (levels) => JSON.parse(`${'{"a":'.repeat(levels)}1${"}".repeat(levels)}`);

/** What is wrong, the field that the error must name, and a word of the advice. */
const BAD = [
  ["no object", "user.login", "event", "plain object"],
  ["no action", {}, "action", "user.login"],
  ["an empty action", event({ action: "" }), "action", "user.login"],
  ["an action that is no string", event({ action: 7 }), "action", "pass a string"],
  ["a name in camel case", event({ actorId: "u" }), "actorId", "actor_id"],
  ["an unknown field", event({ colour: "red" }), "colour", "metadata.colour"],
  ["256 characters", event({ actor_id: "😀".repeat(256) }), "actor_id", "at most 255"],
  ["NUL", event({ resource: "a\0b" }), "resource", "remove"],
  ["half a character in a field", event({ resource: "a\ud83d" }), "resource", "surrogate"],
  ["half a character in metadata", event({ metadata: { a: ["\udc00"] } }), "metadata.a[0]", "surrogate"],
  ["half a character in a key", event({ metadata: { "\ud83d": 1 } }), 'metadata["\\ud83d"]', "surrogate"],
  ["NaN", event({ metadata: { price: NaN } }), "metadata.price", "null or a string"],
  ["infinity", event({ metadata: { a: { b: [1, -Infinity] } } }), "metadata.a.b[1]", "null or a string"],
  ["a Date", event({ metadata: { at: new Date(0) } }), "metadata.at", "toISOString"],
  ["a BigInt", event({ metadata: { n: 1n } }), "metadata.n", "String(value)"],
  ["a function", event({ metadata: { f() {} } }), "metadata.f", "JSON cannot hold"],
  ["a Map", event({ metadata: { "a b": new Map() } }), 'metadata["a b"]', "instance of Map"],
  ["a hole in an array", event({ metadata: { list: [1, undefined] } }), "metadata.list[1]", "JSON cannot hold"],
  ["a cycle", event({ metadata: cycle }), "metadata.a.b", "contains itself"],
  ["too deep", event({ metadata: deep(600) }), undefined, "flatten"],
  ["metadata that is an array", event({ metadata: [1] }), "metadata", "plain object"],
  ["a time that is none", event({ ts_client: "yesterday" }), "ts_client", "RFC 3339"],
  ["300 KB in one field", event({ metadata: { body: "x".repeat(300_000) } }), "event", "metadata.body has 300"],
  ["300 KB in many fields", event({
    metadata: Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`field_${i}`, "x".repeat(20)])),
  }), "event", "10000 fields"],
];

for (const [what, bad, field, advice] of BAD) {
  test(`${what} is an error that names the field and says what to do`, () => {
    assert.throws(() => encode(bad), (error) => {
      assert.ok(error instanceof ValidationError, String(error));
      if (field !== undefined) assert.equal(error.field, field);
      assert.ok(error.message.includes(advice), error.message);
      return true;
    });
  });
}

test("what the service takes is taken, up to each limit", () => {
  const room = 262_144 - utf8Length(JSON.stringify(event({ metadata: { a: "" } })));
  const good = [
    event({ actor_id: "😀".repeat(255), resource: "", metadata: { a: null, b: undefined, c: [true, -0, 1e300] } }),
    event({ actor_id: null, resource: undefined, metadata: null, ts_client: "2026-11-14T12:00:01+01:00" }),
    event({ metadata: { a: "x".repeat(room) } }),
    event({ metadata: { text: "not half a character: \\ud83d, nor this: 😀" } }),
    event({ metadata: deep(400) }),
    event({ metadata: Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`f${i}`, i])) }),
    event({ metadata: vm.runInNewContext('({ from: "another realm", list: [{}] })') }),
  ];
  for (const one of good) {
    const { text, bytes } = encode(one);
    assert.deepEqual(JSON.parse(text), JSON.parse(JSON.stringify(one)));
    assert.equal(bytes, Buffer.byteLength(text));
  }
  const large = event({ metadata: { a: "x".repeat(room + 1) } });
  assert.throws(() => encode(large), { code: "client/invalid_event", field: "event" });
});
