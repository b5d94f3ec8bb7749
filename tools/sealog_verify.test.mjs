// Run with `node --test tools/`. Everything here is made by hand; the shared vectors are not needed.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { canonical, decode, eventsIn, verify, verifyAsync } from "./sealog_verify.mjs";

const SCRIPT = fileURLToPath(new URL("./sealog_verify.mjs", import.meta.url));
const dir = mkdtempSync(join(tmpdir(), "sealog-verify-"));
after(() => rmSync(dir, { recursive: true }));

// ---- helpers ------------------------------------------------------------------------------------------------------

const TENANT = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b";
const PROJECT = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5c";
const OTHER = "ffffffff-c3d4-7e5f-8a9b-0c1d2e3f4a5c";
const ZEROS = "0".repeat(64);
const ONES = "1".repeat(64);
const T0 = Date.UTC(2025, 0, 31, 23, 59, 59, 990);

function ulid(ms, tail) {
  let time = "";
  for (let i = 0; i < 10; i++, ms = Math.floor(ms / 32)) time = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[ms % 32] + time;
  return time + tail.padStart(16, "0");
}

/** An event as an object of raw JSON texts, sealed. `change` replaces texts before sealing; undefined leaves one out. */
function seal(seq, prev, change = {}) {
  const ms = T0 + seq * 7;
  const event = {
    log_id: `"${ulid(ms, "ABC")}"`, tenant_id: `"${TENANT}"`, project_id: `"${PROJECT}"`, schema_version: "1",
    action: '"user.login"', category: '"auth"', actor_id: '"u_1"', resource: '"session/9"', country: '"DE"',
    metadata: `{"n":${seq},"f":1.0,"big":12345678901234567890,"2":"b","1":"é\\u0001\\ud800","1":[]}`,
    timestamp: `"${new Date(ms).toISOString()}"`, chain_seq: String(seq), prev_hash: `"${prev}"`, ...change,
  };
  const at = (name) => event[name] ?? "null";
  const payload = `{"log_id":${at("log_id")},"tenant_id":${at("tenant_id")},"action":${at("action")},` +
    `"actor_id":${at("actor_id")},"resource":${at("resource")},"metadata":${at("metadata")}}`;
  const time = Date.parse(JSON.parse(event.timestamp));
  event.hash = `"${createHash("sha256").update(JSON.parse(event.prev_hash) + payload + time).digest("hex")}"`;
  return event;
}
const hashOf = (event) => event.hash.slice(1, -1);
const write = (event) =>
  `{${Object.entries(event).filter(([, text]) => text !== undefined).map(([k, text]) => `"${k}":${text}`).join(",")}}`;

/** A chain of n events; changes[seq] is handed to seal. */
function chain(n, changes = {}, start = 1, prev = ZEROS) {
  const events = [];
  for (let seq = start; seq < start + n; seq++) {
    events.push(seal(seq, prev, changes[seq]));
    prev = hashOf(events.at(-1));
  }
  return events;
}
function check(events, expects) {
  const { about, ...result } = verify(events.map((e) => (typeof e === "string" ? e : write(e))), expects);
  return result;
}
const broken = (reason, broken_at, broken_hash, checked, first_seq = 1) =>
  ({ valid: false, checked, first_seq, last_seq: broken_at, broken_at, broken_hash, reason });
const ok = (checked, first_seq = 1) => ({ valid: true, checked, first_seq, last_seq: first_seq + checked - 1 });

let files = 0;
function file(content) {
  const path = join(dir, `f${files++}`);
  writeFileSync(path, content);
  return path;
}
function run(args, input = "") {
  const { status, stdout, stderr } = spawnSync(process.execPath, [SCRIPT, ...args], { input, encoding: "utf8" });
  return { status, stdout, stderr };
}
/** White space around every token, as a tool that re-indents would put it. */
const indent = (text) => text.replaceAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]/g, (token) => (token[0] === '"' ? token : ` ${token}\r\n\t`));
const ndjson = (events) => events.map((event) => write(event) + "\n").join("");

// ---- the scanner --------------------------------------------------------------------------------------------------

test("valid JSON gets its canonical text, which is stable", () => {
  const cases = [
    ["{}", "{}"], ["[]", "[]"], [" \t\n\r{ \t\n\r} \t\n\r", "{}"], ["[ ]", "[]"], ['""', '""'], [" null ", "null"],
    ["true", "true"], ["false", "false"], ["[ 1 , 2 ]", "[1,2]"], ['{ "a" : 1 , "b" : [ { } , [ ] ] }', '{"a":1,"b":[{},[]]}'],
    ['{"2":1,"1":2,"2":3,"__proto__":4}', '{"2":1,"1":2,"2":3,"__proto__":4}'],
    ['"\\"\\\\\\/\\b\\f\\n\\r\\t"', '"\\"\\\\/\\b\\f\\n\\r\\t"'],
    ['"\\u0022\\u005C\\u002f\\u0008\\u000C\\u000a\\u000D\\u0009"', '"\\"\\\\/\\b\\f\\n\\r\\t"'],
    ['"\\u0000\\u001F\\u000B\\u007f\\u0080"', '"\\u0000\\u001f\\u000b\u007f\u0080"'],
    ['"\\u00e9\\u00E9é"', '"ééé"'], ['"\\u2028\\u2029\\ufeff\\uFFFF"', '"\u2028\u2029\ufeff\uffff"'],
    ['"\\ud83d\\ude00 \\uD83D\\uDE00 😀"', '"😀 😀 😀"'], ['"\\udbff\\udfff"', '"\u{10ffff}"'],
    ['"\\uD83D"', '"\\ud83d"'], ['"\\uDE00"', '"\\ude00"'], ['"\\ude00\\ud83d"', '"\\ude00\\ud83d"'],
    ['"\\uD83D\\ud83d\\uDE00\\uDE00"', '"\\ud83d😀\\ude00"'], ['"\\ud83dx\\ude00"', '"\\ud83dx\\ude00"'],
    ['"\\ud83d\\n\\ude00"', '"\\ud83d\\n\\ude00"'], ['"\\ud83d\\u0041"', '"\\ud83dA"'], ['"\\\\ud83d"', '"\\\\ud83d"'],
    ['"\\ud83d😀"', '"\\ud83d😀"'], ['{"\\u0061\\/":"\\u0062"}', '{"a/":"b"}'], ['" a  b "', '" a  b "'],
  ];
  for (const n of ["0", "-0", "1", "10", "1.0", "1e5", "1E+5", "1e-05", "-1.50E-10", "0.0", "0e0", "1e999", "12345678901234567890"]) {
    cases.push([n, n], [`[${n}]`, `[${n}]`], [`{"a":${n} }`, `{"a":${n}}`]);
  }
  for (const [input, output] of cases) {
    assert.equal(canonical(input), output, input);
    assert.equal(canonical(output), output, output);
    assert.deepEqual(JSON.parse(output), JSON.parse(input), input);
  }
});

test("every escape of one UTF-16 unit agrees with the table", () => {
  const short = { 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\" };
  for (let code = 0; code < 0x10000; code++) {
    const hex = code.toString(16).padStart(4, "0");
    const stays = code < 32 || (code >= 0xd800 && code < 0xe000);
    const wanted = short[code] ?? (stays ? `\\u${hex}` : String.fromCharCode(code));
    assert.equal(canonical(`"\\u${hex.toUpperCase()}"`), `"${wanted}"`);
  }
});

test("what is not JSON is refused, with the place", () => {
  const cases = {
    "": 0, "  ": 2, "01": 1, "-": 0, "-01": 2, "1.": 1, ".5": 0, "1e": 1, "1e+": 1, "+1": 0, "1.e1": 1, "- 1": 0, "0x1": 1,
    "1_0": 1, NaN: 0, Infinity: 0, "-Infinity": 0, undefined: 0, tru: 0, truex: 4, True: 0, nul: 0, "'a'": 0, a: 0,
    "[": 1, "]": 0, "{": 1, "}": 0, "[1": 2, "[1,": 3, "[1,]": 3, "[,1]": 1, "[,]": 1, "[1,,2]": 3, "[1 2]": 3, "[1}": 2, "[}": 1,
    "{]": 1, '{"a"': 4, '{"a":': 5, '{"a":1': 6, '{"a":1,': 7, '{"a":1,}': 7, "{,}": 1, '{"a"}': 4, '{"a",1}': 4, '{"a":}': 5,
    '{"a" 1}': 5, "{a:1}": 1, "{1:1}": 1, '{"a":1 "b":2}': 7, '{"a":1]': 6, "{null:1}": 1, '{"a"::1}': 5, "[1:2]": 2,
    '"': 1, '"a': 2, '"a\n"': 2, '"\t"': 1, '"\u0000"': 1, '"\u001f"': 1, '"\\': 1, '"\\"': 3, '"\\a"': 1, '"\\B"': 1, '"\\N"': 1,
    '"\\U0041"': 1, '"\\u"': 1, '"\\u12"': 1, '"\\u123g"': 1, '"\\x41"': 1, '"\\\'"': 1, '"\\ud83d\\u"': 7, '"\\0"': 1,
    "\ufeff1": 0, "1\ufeff": 1, "\u00a01": 0, "\f1": 0, "\v1": 0, "\u00001": 0, "1\u0000": 1, "[1\u00a0]": 2, "\u2028[]": 0,
    "1 2": 2, "{}{}": 2, "[] x": 3, "/**/1": 0, "1//": 1, "#": 0, '"\ud800"': 1, '"\udc00\ud800"': 1, '"\ud800\\udc00"': 1,
  };
  for (const [input, at] of Object.entries(cases)) {
    assert.throws(() => canonical(input), (error) => error.at === at || assert.fail(`${input}: ${error.at} ${error}`), input);
    if (!/[\ud800-\udfff]/u.test(input)) assert.throws(() => JSON.parse(input), SyntaxError, input); // the table is right
  }
});

test("depth, width and length do not matter", { timeout: 20000 }, () => {
  const deep = "[".repeat(120000) + "]".repeat(120000);
  assert.equal(canonical(deep), deep);
  const objects = '{"a":'.repeat(120000) + " 1 " + "}".repeat(120000);
  assert.equal(canonical(objects), objects.replaceAll(" ", ""));
  const spaced = ' [ { "\\u0061" : '.repeat(120000) + "0" + " } ] ".repeat(120000);
  assert.equal(canonical(spaced), '[{"a":'.repeat(120000) + "0" + "}]".repeat(120000));
  assert.throws(() => canonical("[".repeat(120000) + "]".repeat(119999)), (error) => error.at === 239999);
  assert.throws(() => canonical("[".repeat(120000) + "}"), (error) => error.at === 120000);
  const wide = `{${Array.from({ length: 60000 }, (_, i) => `"${60000 - i}" : "\\u00e9"`).join(" , ")}}`;
  assert.equal(canonical(wide), wide.replaceAll(" ", "").replaceAll("\\u00e9", "é"));
  const same = `{${Array(60000).fill('"k":1').join(",")}}`;
  assert.equal(canonical(same), same);
  for (const part of ["x", "é", "😀", "\\n", "\\u0041", "\\ud800", "\\ud83d\\ude00"]) {
    const text = `"${part.repeat(1e6)}"`;
    assert.equal(canonical(text).length, canonical(`"${part}"`).length * 1e6 - 2e6 + 2);
  }
  assert.equal(canonical("9".repeat(5e6)).length, 5e6);
  assert.equal(canonical(" ".repeat(5e6) + "1" + "\n".repeat(5e6)), "1");
  for (const n of [seal(1, ZEROS, { metadata: objects.replaceAll(" ", "") }), seal(1, ZEROS, { metadata: same })]) {
    assert.deepEqual(check([n]), ok(1));
  }
});

test("random changes to JSON: accepted exactly when JSON.parse accepts, same value, stable", () => {
  let state = 12345;
  const random = (n) => (state = (Math.imul(state, 1103515245) + 12345) >>> 0, Math.floor((state / 2 ** 32) * n));
  const seeds = ['{"a":[1,-2.5e+3,true,false,null],"b":{"c":"\\u00e9\\n\\ud83d\\ude00 x"},"d":[],"e":{}}',
    ' [ 0 , "\\\\" , { "k" : "\\"" } , 1E-7 , "\\ud800" ] ', '{"1":"\\/\\b\\f\\r\\t","1":{"x":[[[{}]]]}}'];
  const alphabet = '{}[],:"\\ \n\tu0123456789aefbnrtDd.+-Elsé\u0001';
  let accepted = 0;
  for (let i = 0; i < 60000; i++) {
    let text = seeds[i % seeds.length];
    for (let changes = 1 + random(3); changes > 0; changes--) {
      const at = random(text.length + 1);
      text = text.slice(0, at) + (random(3) ? alphabet[random(alphabet.length)] : "") + text.slice(at + random(2));
    }
    let value, valid = true;
    try { value = JSON.parse(text); } catch { valid = false; }
    if (!valid) {
      assert.throws(() => canonical(text), (error) => error.at >= 0, text);
      continue;
    }
    accepted++;
    const output = canonical(text);
    assert.deepEqual(JSON.parse(output), value, text);
    assert.equal(canonical(output), output);
  }
  assert.ok(accepted > 5000);
});

test("bytes: invalid UTF-8 is refused with its place, a byte order mark stays", () => {
  assert.equal(decode(Buffer.from("aé😀")), "aé😀");
  assert.equal(decode(Buffer.from("\ufeff1")), "\ufeff1");
  for (const [bytes, at] of [[[0x22, 0xff], 1], [[0x61, 0xc3], 1], [[0xc0, 0x80], 0], [[0x61, 0xed, 0xa0, 0x80], 1], [[0xf4, 0x90, 0x80, 0x80], 0]]) {
    // The place is that of the sequence or of the byte in it that is wrong.
    assert.throws(() => decode(Uint8Array.from(bytes)), (error) => error.byte >= at && error.byte < bytes.length + 1, String(bytes));
  }
});

// ---- input forms --------------------------------------------------------------------------------------------------

test("events are found in every form of input", () => {
  const raw = chain(6).map(write);
  const page = (list, rest = ',"next_cursor":"x","has_more":true') => `{"events":[${list.join(",")}]${rest}}`;
  const forms = {
    ndjson: raw.join("\n"), crlf: raw.join("\r\n") + "\r\n\r\n", "no space": raw.join(""), array: `[${raw.join(" , ")}]`,
    pages: page(raw.slice(0, 3)) + page(raw.slice(3), ',"has_more":false'), "pages, one a line": page(raw.slice(0, 2)) + "\n" + page(raw.slice(2)),
    "array of pages": `[${page(raw.slice(0, 3))},${page(raw.slice(3))}]`, "empty pages": page([]) + page(raw) + page([]) + "[]",
    mixed: raw[0] + page(raw.slice(1, 3)) + `[${raw[3]}]\n\n` + raw.slice(4).join("\n"),
    "events last": `{"has_more":false,"\\u0065vents":[${raw.join(",")}]}`,
  };
  for (const [name, text] of Object.entries(forms)) assert.deepEqual(eventsIn(text), raw, name);
  assert.deepEqual(eventsIn(" \n "), []);
  // Indented by a tool that leaves the tokens alone: the canonical rule restores it.
  const indented = indent(raw.join("\n")).replaceAll("é", "\\u00E9").replaceAll("/", "\\/");
  assert.notEqual(indented, raw.join("\n"));
  assert.deepEqual(eventsIn(indented), raw);
  assert.deepEqual(check(raw.map(indent)), ok(6));
  for (const text of ["1", '"a"', "null", raw[0] + " 5"]) assert.throws(() => eventsIn(text), (error) => error.at >= 0);
  assert.throws(() => eventsIn(raw[0] + "\n,"), (error) => error.at === raw[0].length + 1);
  // Not a page: two lists, no list, or an event with such a field. Each counts as an event and is reported.
  for (const text of ['{"events":[],"events":[]}', '{"events":{}}', `{"events":[],${raw[0].slice(1)}`]) {
    assert.deepEqual(eventsIn(text), [text]);
  }
  assert.deepEqual(eventsIn('[1,[],"x",null,{"events":[7]}]'), ["1", "[]", '"x"', "null", "7"]);
});

// ---- chains -------------------------------------------------------------------------------------------------------

test("a known event: the hash of a text written out by hand", () => {
  const text = `${ZEROS}{"log_id":"01JJZCX7Y6000000000000000A","tenant_id":"${TENANT}","action":"a.b","actor_id":null,` +
    `"resource":null,"metadata":{"k":"é"}}1738367999942`;
  const hash = createHash("sha256").update(text).digest("hex");
  const raw = `{"log_id":"01JJZCX7Y6000000000000000A","tenant_id":"${TENANT}","project_id":"${PROJECT}","schema_version":1,` +
    `"action":"a.b","metadata":{"k":"é"},"timestamp":"2025-01-31T23:59:59.942Z","chain_seq":1,"prev_hash":"${ZEROS}","hash":"${hash}"}`;
  assert.equal(ulid(1738367999942, "A"), "01JJZCX7Y6000000000000000A");
  assert.deepEqual(check([raw]), ok(1));
});

test("valid chains: whole, part, newest first, absent and null fields, other field order", () => {
  assert.deepEqual(check(chain(5)), ok(5));
  assert.deepEqual(check(chain(5).reverse()), ok(5));
  assert.deepEqual(check(chain(5).slice(2)), ok(3, 3));
  assert.deepEqual(check(chain(5).slice(2).reverse()), ok(3, 3));
  assert.deepEqual(check(chain(1)), ok(1));
  assert.deepEqual(check([]), { valid: true, checked: 0, first_seq: 1, last_seq: 0 });
  const none = { actor_id: undefined, resource: undefined, metadata: undefined };
  const nulls = { actor_id: "null", resource: "null", metadata: "null" };
  assert.deepEqual(check(chain(3, { 1: none, 2: nulls })), ok(3));
  const reordered = chain(2).map((event) => Object.fromEntries(Object.entries(event).reverse()));
  assert.deepEqual(check(reordered), ok(2));
  const extra = chain(2);
  extra[1].country = '"FR"'; // not covered by the hash
  extra[1].more = "[1,{}]";
  assert.deepEqual(check(extra), ok(2));
  assert.deepEqual(check([write(extra[0]), write(extra[1]).replace("{", '{"country":1,"country":2,')]), ok(2));
  const year = (iso, seq) => ({ timestamp: `"${iso}"`, log_id: `"${ulid(Date.parse(iso), String(seq))}"` });
  assert.deepEqual(check(chain(3, { 1: year("1970-01-01T00:00:00.000Z", 1), 2: year("2024-02-29T23:59:59.999Z", 2), 3: year("9999-12-31T23:59:59.999Z", 3) })), ok(3));
});

test("heads noted earlier", () => {
  const events = chain(5);
  const heads = events.map((event, i) => `${i + 1}:${hashOf(event)}`);
  for (const head of heads) assert.deepEqual(check(events, [head]), ok(5));
  assert.deepEqual(check(events, heads), ok(5));
  assert.deepEqual(check(events, [...heads, `3:${ONES}`]), broken("head", 3, hashOf(events[2]), 3));
  assert.deepEqual(check([...events].reverse(), [`5:${ONES}`]), broken("head", 5, hashOf(events[4]), 5));
  assert.deepEqual(check(events.slice(0, 3), [heads[4]]), broken("tail", 4, hashOf(events[4]), 3));
  assert.deepEqual(check(events.slice(0, 2), [heads[4], heads[0], heads[3]]), broken("tail", 3, hashOf(events[3]), 2));
  assert.deepEqual(check([], [heads[1]]), broken("tail", 1, hashOf(events[1]), 0));
  // A part of a chain: the head just before it is checked, one further back cannot be.
  assert.deepEqual(check(events.slice(2), [heads[1]]), ok(3, 3));
  assert.deepEqual(check(events.slice(2), [`2:${ONES}`]), broken("link", 3, hashOf(events[2]), 1, 3));
  assert.deepEqual(check(events.slice(2), [`1:${ONES}`]), ok(3, 3));
  assert.deepEqual(verify(events.slice(2).map(write), [`1:${ONES}`]).about.unchecked, [`1:${ONES}`]);
  for (const bad of ["", "1", `0:${ONES}`, `-1:${ONES}`, `01:${ONES}`, `1:${ONES}0`, `1:${"A".repeat(64)}`, ` 1:${ONES}`, `9223372036854775808:${ONES}`]) {
    assert.throws(() => verify(events.map(write), [bad]), /SEQ:HASH/, bad);
  }
});

test("tampering is found where it is", () => {
  const cases = {
    action: '"user.logout"', actor_id: '"u_2"', resource: "null", metadata: '{"n":3,"f":1}',
    timestamp: `"${new Date(T0 + 22).toISOString()}"`, log_id: `"${ulid(T0 + 21, "ABD")}"`, hash: `"${ONES}"`,
  };
  for (const [field, text] of Object.entries(cases)) {
    const events = chain(5);
    assert.notEqual(events[2][field], text);
    events[2][field] = text;
    assert.deepEqual(check(events), broken("hash", 3, hashOf(events[2]), 3), field);
    assert.deepEqual(check([...events].reverse()), broken("hash", 3, hashOf(events[2]), 3), field);
    assert.equal(check(events.slice(2)).reason, "hash", field);
  }
  for (const metadata of ['{"n":3}', "{}", "null", undefined]) { // every small difference in metadata counts
    const events = chain(4);
    events[2].metadata = metadata;
    assert.equal(check(events).reason, "hash");
  }
  for (const [from, to] of [["1.0", "1.00"], ["12345678901234567890", "12345678901234567891"], ['"2":"b","1"', '"1":"b","2"'], [',"1":[]', ""], ["\\ud800", "\\ud801"], ["é", "e\u0301"], ["\\u0001", "\\u0002"]]) {
    const events = chain(4);
    events[1].metadata = events[1].metadata.replace(from, to);
    assert.deepEqual(check(events), broken("hash", 2, hashOf(events[1]), 2), from);
  }
  const t = chain(5);
  t[3].tenant_id = `"${OTHER}"`;
  assert.deepEqual(check(t), broken("chain", 4, hashOf(t[3]), 4));
  const p = chain(5);
  p[3].project_id = `"${OTHER}"`;
  p[3].chain_seq = "9"; // chain comes before gap
  assert.deepEqual(check(p), broken("chain", 9, hashOf(p[3]), 4));
  const l = chain(5);
  l[3].prev_hash = `"${ONES}"`; // link comes before hash
  assert.deepEqual(check(l), broken("link", 4, hashOf(l[3]), 4));
  const z = chain(2, {}, 1, ONES);
  assert.deepEqual(check(z), broken("link", 1, hashOf(z[0]), 1));
});

test("resealing does not help: link, order, head", () => {
  const events = chain(5);
  const again = [...events];
  again[2] = seal(3, hashOf(events[1]), { action: '"x.y"' }); // resealed, the next event still names the old hash
  assert.deepEqual(check(again), broken("link", 4, hashOf(events[3]), 4));
  const rewritten = chain(5, { 3: { action: '"x.y"' } }); // all of it resealed: only a head noted earlier tells
  assert.deepEqual(check(rewritten), ok(5));
  assert.deepEqual(check(rewritten, [`5:${hashOf(events[4])}`]), broken("head", 5, hashOf(rewritten[4]), 5));

  const id = (ms, tail) => ({ log_id: `"${ulid(ms, tail)}"`, timestamp: `"${new Date(ms).toISOString()}"` });
  const order = (second) => check(chain(3, { 1: id(T0, "5"), 2: second, 3: id(T0 + 99, "0") }));
  assert.equal(order(id(T0, "6")).valid, true);
  assert.equal(order(id(T0, "A")).valid, true);
  for (const bad of [id(T0, "5"), id(T0, "4"), id(T0 - 1, "Z"), { log_id: `"${ulid(T0 + 5, "9")}"`, timestamp: `"${new Date(T0 + 6).toISOString()}"` }]) {
    const result = order(bad);
    assert.deepEqual([result.reason, result.broken_at, result.checked], ["order", 2, 2]);
  }
  const first = chain(1, { 1: { log_id: `"${ulid(T0 + 1, "9")}"`, timestamp: `"${new Date(T0).toISOString()}"` } });
  assert.equal(check(first).reason, "order");
  // order comes before head
  const both = chain(2, { 2: id(T0 - 1, "0") });
  assert.equal(check(both, [`2:${ONES}`]).reason, "order");
});

test("holes, doubles, disorder", () => {
  const e = chain(6);
  assert.deepEqual(check([e[0], e[1], e[3], e[4]]), broken("gap", 4, hashOf(e[3]), 3));
  assert.deepEqual(check([e[4], e[3], e[1], e[0]]), broken("gap", 4, hashOf(e[3]), 3)); // the same, newest first
  assert.deepEqual(check([e[0], e[1], e[1], e[2]]), broken("gap", 2, hashOf(e[1]), 3));
  assert.deepEqual(check([e[0], e[2], e[1], e[3]]), broken("gap", 3, hashOf(e[2]), 2));
  assert.deepEqual(check([e[3], e[2], e[2], e[1]]), broken("gap", 3, hashOf(e[2]), 2, 4)); // not newest first throughout
  assert.deepEqual(check([e[3], e[4], e[0], e[1]]), broken("gap", 1, hashOf(e[0]), 3, 4));
  assert.deepEqual(check([e[0], e[0]]), broken("gap", 1, hashOf(e[0]), 2));
  const renumbered = chain(3).map((event, i) => ({ ...event, chain_seq: String(i) }));
  assert.deepEqual(check(renumbered), broken("gap", 0, hashOf(renumbered[0]), 1, 0));
  const negative = seal(1, ZEROS, { chain_seq: "-5" });
  assert.deepEqual(check([negative]), broken("malformed", 1, hashOf(negative), 1, 1));
  const two = [chain(2)[0], { ...chain(2)[1], chain_seq: "3" }];
  assert.equal(check(two).reason, "gap");
  const hidden = [e[0], { ...e[2], chain_seq: "2" }]; // an event taken out and the rest renumbered
  assert.deepEqual(check(hidden), broken("link", 2, hashOf(e[2]), 2));
});

test("chain_seq up to 2^63 - 1", () => {
  const top = 2n ** 63n - 1n;
  const a = seal(1, ONES, { chain_seq: String(top - 1n) });
  const b = seal(2, hashOf(a), { chain_seq: String(top) });
  const expect = [`${top - 1n}:${hashOf(a)}`, `${top}:${hashOf(b)}`];
  assert.deepEqual(check([b, a], expect), { valid: true, checked: 2, first_seq: top - 1n, last_seq: top });
  assert.deepEqual(check([a], expect), { ...broken("tail", top, hashOf(b), 1), first_seq: top - 1n });
  const skip = { ...b, chain_seq: String(top - 2n) };
  assert.equal(check([skip, a], []).reason, "link");
  assert.equal(check([a, { ...b, chain_seq: String(top + 1n) }]).reason, "malformed");
  const { status, stdout } = run(["--json", "-"], write(a) + write(b));
  assert.deepEqual([status, stdout], [0, `{"valid":true,"checked":2,"first_seq":${top - 1n},"last_seq":${top}}\n`]);
});

test("malformed events", () => {
  const wrong = {
    log_id: ["1", '"x"', "null", `"${ulid(T0, "A").toLowerCase()}"`, `"8${ulid(T0, "A").slice(1)}"`, `"${ulid(T0, "U")}"`, undefined],
    tenant_id: ["null", `"${TENANT.toUpperCase()}"`, `"${TENANT.replaceAll("-", "")}"`, undefined],
    project_id: ["1", '""', `"${PROJECT}\\n"`, undefined], action: ["null", "1", "{}", undefined], actor_id: ["1", "{}", "true"], resource: ["[]", "0"],
    metadata: ["[]", '"x"', "1"], prev_hash: ['""', `"${"A".repeat(64)}"`, `"${ZEROS}0"`, "null", undefined],
    timestamp: ["1", '"2025-01-31T23:59:59Z"', '"2025-02-30T00:00:00.000Z"', '"2025-01-31T24:00:00.000Z"', '"2025-01-31T23:59:60.000Z"',
      '"2025-01-31T23:59:59.000+00:00"', '"2025-01-31 23:59:59.000Z"', '"2025-01-31t23:59:59.000z"', '"2025-01-31T23:59:59.0000Z"',
      '"+010000-01-01T00:00:00.0Z"', '"+010000-01-01T00:00:00.000Z"', '"xxxxxxxxxxxxxxxxxxxxxxxx"', '"Fri Jan 31 2025 23:59:59"', undefined],
  };
  for (const [field, texts] of Object.entries(wrong)) for (const text of texts) {
    const events = chain(4);
    events[2][field] = text;
    assert.deepEqual(check(events), broken("malformed", 3, hashOf(events[2]), 3), `${field} ${text}`);
    assert.deepEqual(check([...events].reverse()), broken("malformed", 3, hashOf(events[2]), 3), `${field} ${text}`);
    assert.match(verify(events.map(write)).about.detail, new RegExp(`^${field} is `));
  }
  for (const text of ["3.0", "3e0", '"3"', "null", "9223372036854775808", "1" + "0".repeat(100), undefined]) {
    const events = chain(4);
    events[2].chain_seq = text;
    assert.deepEqual(check(events), broken("malformed", 3, hashOf(events[2]), 3), text); // where it was expected
    assert.deepEqual(check([...events].reverse()), broken("malformed", 3, hashOf(events[2]), 3), text);
    events.splice(0, 2);
    assert.deepEqual(check(events), broken("malformed", 1, hashOf(events[0]), 1), text);
  }
  for (const text of ["null", `"${"F".repeat(64)}"`, undefined]) {
    const events = chain(4);
    events[2].hash = text;
    assert.deepEqual(check(events), broken("malformed", 3, null, 3));
  }
  for (const raw of ["1", "[]", "null", "{}", '"x"', '["log_id"]']) {
    assert.deepEqual(check([...chain(1), raw]), broken("malformed", 2, null, 2), raw);
  }
  assert.throws(() => check(["{"]), (error) => error.at === 1);
});

test("a field given twice, however it is spelled", () => {
  const events = chain(3);
  for (const field of ["log_id", "tenant_id", "project_id", "action", "actor_id", "resource", "metadata", "timestamp", "chain_seq", "prev_hash", "hash"]) {
    for (const key of [field, `\\u00${field.charCodeAt(0).toString(16)}${field.slice(1)}`]) {
      const raw = write(events[1]).replace("{", `{"${key}":${events[1][field]},`);
      const hash = field === "hash" ? null : hashOf(events[1]);
      assert.deepEqual(check([events[0], raw, events[2]]), broken("malformed", 2, hash, 2), key);
    }
  }
  const renamed = write(events[1]).replace('"action"', '"\\u0061ction"');
  assert.deepEqual(check([events[0], renamed, events[2]]), ok(3));
});

test("verifyAsync gives the same", { skip: !globalThis.crypto?.subtle }, async () => {
  const events = chain(4);
  const bad = chain(4);
  bad[1].action = '"x"';
  for (const list of [events, bad, [...events].reverse(), [], [...events, {}]]) {
    assert.deepEqual(await verifyAsync(list.map(write), [`1:${hashOf(events[0])}`]), verify(list.map(write), [`1:${hashOf(events[0])}`]));
  }
});

// ---- the command line ---------------------------------------------------------------------------------------------

test("exit codes and output", () => {
  const events = chain(5);
  const good = file(ndjson(events));
  const head = `5:${hashOf(events[4])}`;
  const valid = run([good]);
  assert.equal(valid.status, 0, valid.stderr);
  assert.match(valid.stdout, /^VALID: 5 events, chain_seq 1 to 5\.\n/);
  assert.match(valid.stdout, /cut off at the end would not be noticed/);
  assert.ok(valid.stdout.includes(head));
  assert.match(run([good, "--expect", head]).stdout, /agrees with what was noted/);
  assert.deepEqual(run(["--json", `--expect=${head}`, good]), { status: 0, stderr: "", stdout: '{"valid":true,"checked":5,"first_seq":1,"last_seq":5}\n' });
  assert.match(run([file(ndjson(events.slice(3)))]).stdout, /What came before the first is not covered/);
  const later = run(["--json", "--expect", `1:${ONES}`, file(ndjson(events.slice(3)))]);
  assert.deepEqual([later.status, JSON.parse(later.stdout)], [0, { ...ok(2, 4), unchecked: [`1:${ONES}`] }]);

  const bad = chain(5);
  bad[2].action = '"x"';
  const found = run([file(ndjson(bad))]);
  assert.equal(found.status, 10);
  assert.match(found.stdout, /^BROKEN at chain_seq 3 \(hash\)\. Its content does not give its hash/);
  const json = run(["--json", "-"], ndjson(bad));
  assert.deepEqual([json.status, JSON.parse(json.stdout)], [10, broken("hash", 3, hashOf(bad[2]), 3)]);
  const cut = run([file(ndjson(events.slice(0, 3))), "--expect", head, "--expect", `1:${hashOf(events[0])}`]);
  assert.equal(cut.status, 10);
  assert.match(cut.stdout, /^BROKEN at chain_seq 4 \(tail\)\. [^\n]*is missing\.\n/);
  const malformed = run([file(ndjson(events) + "{}")]);
  assert.deepEqual([malformed.status, malformed.stdout.split("\n")[0]], [10, "BROKEN at chain_seq 6 (malformed). It is not a proper event: log_id is missing"]);

  const unreadable = (args, message, input) => {
    const { status, stdout, stderr } = run(args, input);
    assert.deepEqual([status, stdout], [2, ""], args.join(" "));
    assert.match(stderr, message);
    assert.equal(stderr.trim().split("\n").length, 1, stderr);
  };
  unreadable([], /--help/);
  unreadable(["--nonsense", good], /nonsense/);
  unreadable(["--json"], /--help/);
  unreadable(["--vectors", dir, good], /--help/);
  unreadable(["--expect", "5", good], /SEQ:HASH/);
  unreadable([good, "--expect"], /expect/);
  unreadable([join(dir, "missing")], /missing.*ENOENT/);
  unreadable([dir], /EISDIR/);
  unreadable(["--vectors", dir], /metadata\.json/);
  unreadable(["-"], /no events/, "");
  unreadable(["-"], /no events/, '{"events":[],"has_more":false}');
  unreadable([good, "-"], /^-: .*\(at byte 6\)/, '[ "é"x');
  unreadable([file(ndjson(events) + '{"a":1,}')], new RegExp(`\\(at byte ${Buffer.byteLength(ndjson(events)) + 7}\\)`));
  unreadable([file(ndjson(events).slice(0, -5))], /ends inside a value \(at byte/);
  unreadable(["-"], /\(at byte 0\)/, "\ufeff" + ndjson(events));
  unreadable([file(Buffer.concat([Buffer.from(ndjson(events)), Buffer.from([0xff])]))], new RegExp(`not UTF-8 \\(at byte ${Buffer.byteLength(ndjson(events))}\\)`));
  unreadable([file(gzipSync(ndjson(events)).subarray(0, -9))], /f\d+: /);
  const none = run(["--json", "--expect", head, "-"]);
  assert.deepEqual([none.status, JSON.parse(none.stdout)], [10, broken("tail", 1, hashOf(events[4]), 0)]);
  const help = run(["--help"]);
  assert.equal(help.status, 0);
  assert.match(help.stdout, /--expect[^]*Exit code: 0 valid, 10 broken, 2/);
});

test("files, stdin, gzip, newest-first pages, a symlink to the script", () => {
  const events = chain(250);
  const wanted = { status: 0, stderr: "", stdout: '{"valid":true,"checked":250,"first_seq":1,"last_seq":250}\n' };
  const [a, b] = [ndjson(events.slice(0, 100)), ndjson(events.slice(100))];
  assert.deepEqual(run(["--json", file(a), file(b)]), wanted);
  assert.deepEqual(run(["--json", file(gzipSync(a)), "-"], b), wanted);
  assert.deepEqual(run(["--json", "-"], gzipSync(a + b)), wanted);
  assert.deepEqual(run(["--json", file(Buffer.concat([gzipSync(a), gzipSync(b)]))]), wanted); // two gzip members
  const newest = [...events].reverse();
  const pages = [0, 100, 200].map((from) => {
    const page = `{"events":[${newest.slice(from, from + 100).map(write)}],"next_cursor":"c","has_more":${from < 200}}`;
    return indent(page);
  });
  assert.deepEqual(run(["--json", ...pages.map(file)]), wanted);
  assert.deepEqual(run(["--json", "-"], pages.join("\n")), wanted);
  const mixed = run(["--json", file(b), file(a)]);
  assert.deepEqual([mixed.status, JSON.parse(mixed.stdout)], [10, broken("gap", 1, hashOf(events[0]), 151, 101)]);
  const link = join(dir, "link.mjs");
  symlinkSync(SCRIPT, link);
  assert.equal(spawnSync(process.execPath, [link, file("")]).status, 2);
});

test("the vectors runner", () => {
  const events = chain(3).map(write);
  const head = `3:${hashOf(chain(3)[2])}`;
  const sha = (text) => createHash("sha256").update(text).digest("hex");
  const metadata = [
    { name: "plain", input: ' {"a" : 1.0}', canonical: '{"a":1.0}' }, { name: "not JSON", input: "[1,]", canonical: null }, { name: "empty", input: "", canonical: null },
    { name: "deep", input_parts: [["[", 100000], ["]", 100000]], canonical_sha256: sha("[".repeat(100000) + "]".repeat(100000)) },
  ];
  const chains = [
    { name: "whole", events, result: ok(3) }, { name: "head", events, expect: [head], result: ok(3) },
    { name: "tail", events: events.slice(0, 2), expect: [head], result: broken("tail", 3, head.slice(2), 2) },
  ];
  const put = (metadata, chains) => {
    writeFileSync(join(dir, "metadata.json"), JSON.stringify({ cases: metadata }));
    writeFileSync(join(dir, "chains.json"), JSON.stringify({ cases: chains }));
    return run(["--vectors", dir]);
  };
  assert.deepEqual(put(metadata, chains), { status: 0, stdout: "7 passed, 0 failed\n", stderr: "" });
  const wrong = put([...metadata, { name: "W1", input: "1", canonical: null }, { name: "W2", input: "x", canonical: "x" }, { name: "W3", input: "x", canonical_sha256: sha("x") }],
    [...chains, { name: "W4", events, result: ok(2) }, { name: "W5", events: ["{"], result: ok(1) }]);
  assert.equal(wrong.status, 10);
  assert.match(wrong.stdout, /W1[^]*W2[^]*W3[^]*W4[^]*W5[^]*\n7 passed, 5 failed\n$/);
});
