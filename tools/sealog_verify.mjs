#!/usr/bin/env node
// Checks exported Sealog events without Sealog: plain Node 18 or newer, no packages, no network. It does what
// docs/format.md (section 1) and vectors/README.md say. `node sealog_verify.mjs --help` tells how to run it.
//
// Three parts: a JSON scanner that writes canonical text, the check of a chain, the command line. The first two use
// nothing of Node and run in a browser, where SHA-256 is asynchronous and so verifyAsync takes the place of verify:
//
//     <input type="file" id="file"> <script type="module">
//     import { decode, eventsIn, verifyAsync } from "./sealog_verify.mjs";
//     document.getElementById("file").onchange = async (change) => {
//       const bytes = new Uint8Array(await change.target.files[0].arrayBuffer());
//       console.log(await verifyAsync(eventsIn(decode(bytes)), [])); // or ["1042:9f86d0..."], a head noted earlier
//     };
//     </script>

const node = globalThis.process?.versions?.node
  ? { ...(await import("node:crypto")), ...(await import("node:fs")), ...(await import("node:zlib")) } : null;
const sha256 = (text) => node.createHash("sha256").update(text, "utf8").digest("hex");

/** For input that is not what it should be; `at` is the index of the first wrong character. */
const unreadable = (what, at) => Object.assign(new Error(what), { at });

// ---- Part 1: JSON -------------------------------------------------------------------------------------------------
// An event never goes through JSON.parse, which loses number spellings, the order of integer-like keys and duplicate
// keys. The scanner checks strict JSON (RFC 8259) and copies it, dropping white space and giving every string its one
// spelling. It does not recurse, so depth is no problem, and its time grows with the length of the text only.

const NOT_SPACE = /[^ \t\n\r]/g;
const STRING_STOP = /["\\\u0000-\u001f]/g;
const LITERAL = /true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
// An escaped surrogate pair (groups 1 and 2), any other \uXXXX (group 3), or a single letter.
const ESCAPE = /\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|u([0-9a-f]{4})|["\\/bfnrt])/iy;
const SHORT = { '"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** The canonical spelling of one escape, given the match of ESCAPE. */
function respell([escape, high, low, unit]) {
  if (high) return String.fromCharCode(parseInt(high, 16), parseInt(low, 16));
  if (!unit) return escape === "\\/" ? "/" : escape;
  const code = parseInt(unit, 16);
  const char = String.fromCharCode(code);
  const staysEscape = code < 0x20 || (code >= 0xd800 && code <= 0xdfff);
  return SHORT[char] ?? (staysEscape ? "\\u" + unit.toLowerCase() : char);
}

function skipSpace(text, at) {
  NOT_SPACE.lastIndex = at;
  return NOT_SPACE.test(text) ? NOT_SPACE.lastIndex - 1 : text.length;
}

/**
 * Reads the JSON value that begins at `at`. Returns its canonical text; its members or elements, one level deep, as
 * {key, text}, both canonical, the key with its quotes; and where the value and the white space behind it end.
 */
function scan(text, at) {
  const out = []; // finished pieces of canonical text
  let copied = at; // what lies before this index is in `out`; from here to `at` it will be copied as it is
  const open = []; // the closing brackets still owed, innermost last
  const items = [];
  let item = null; // the member or element being read, while one bracket is open
  let key = null;

  const fail = (what) => { throw unreadable(at < text.length ? what : "the text ends inside a value", at); };
  const flush = () => {
    if (at > copied) out.push(text.slice(copied, at));
    copied = at;
    return out.length;
  };
  const space = () => {
    const next = skipSpace(text, at);
    if (next > at) flush();
    if (next > at) at = copied = next;
  };
  const string = () => {
    if (text[at++] !== '"') at--, fail("a string in double quotes was expected");
    for (;;) {
      STRING_STOP.lastIndex = at;
      at = STRING_STOP.test(text) ? STRING_STOP.lastIndex - 1 : text.length;
      if (text[at] === '"') return at++;
      if (text[at] !== "\\") fail("a control character inside a string");
      ESCAPE.lastIndex = at;
      const match = ESCAPE.exec(text) ?? fail("an escape that JSON does not have");
      const spelling = respell(match);
      if (spelling !== match[0]) {
        flush();
        out.push(spelling);
        copied += match[0].length;
      }
      at += match[0].length;
    }
  };
  const name = () => {
    space();
    const first = open.length === 1 ? flush() : 0;
    string();
    if (open.length === 1) flush(), (key = out.slice(first).join(""));
    space();
    if (text[at] !== ":") fail("a colon was expected");
    at++;
  };

  value: for (;;) {
    space();
    if (open.length === 1) item = { key, first: flush() };
    const char = text[at];
    if (char === "{" || char === "[") {
      open.push(char === "{" ? "}" : "]");
      at++;
      space();
      if (text[at] !== open.at(-1)) { // not empty: on to the first value in it
        if (char === "{") name();
        continue;
      }
    } else if (char === '"') {
      string();
    } else {
      LITERAL.lastIndex = at;
      if (!LITERAL.test(text)) fail("a value was expected");
      at = LITERAL.lastIndex;
    }
    while (open.length > 0) { // a value is complete (or an empty one is about to be): close brackets, or go on
      space();
      if (open.length === 1 && item) {
        flush();
        items.push({ key: item.key, text: out.slice(item.first).join("") });
        item = null;
      }
      if (text[at] === open.at(-1)) {
        open.pop();
        at++;
        continue;
      }
      if (text[at] !== ",") fail(`a comma or ${open.at(-1)} was expected`);
      at++;
      if (open.at(-1) === "}") name();
      continue value;
    }
    flush();
    return { canonical: out.join(""), items, end: skipSpace(text, at) };
  }
}

/** Scans a text that holds exactly one value. */
function scanWhole(text) {
  const half = text.search(/[\ud800-\udfff]/u); // with the flag u, proper pairs do not match
  if (half >= 0) throw unreadable("half a character, which UTF-8 cannot hold", half);
  const value = scan(text, skipSpace(text, 0));
  if (value.end < text.length) throw unreadable("something follows the value", value.end);
  return value;
}

/** The canonical text of a JSON text. Throws when it is not JSON. */
export const canonical = (text) => scanWhole(text).canonical;

/** Bytes to text. Invalid UTF-8 is refused here; a byte order mark is kept, and the scanner refuses it. */
export function decode(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    const repaired = new TextEncoder().encode(new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes));
    throw Object.assign(unreadable("not UTF-8"), { byte: bytes.findIndex((byte, i) => byte !== repaired[i]) });
  }
}

/** The raw texts of the events in a text that holds events, pages {"events":[...]} and arrays, in any sequence. */
export function eventsIn(text) {
  const found = [];
  const take = ({ canonical, items }) => {
    const lists = items.filter((item) => item.key === '"events"' && item.text[0] === "[");
    const isPage = lists.length === 1 && !items.some((item) => ['"log_id"', '"hash"'].includes(item.key));
    if (isPage) for (const event of scanWhole(lists[0].text).items) found.push(event.text);
    else found.push(canonical);
  };
  for (let at = skipSpace(text, 0); at < text.length; ) {
    const value = scan(text, at);
    if (value.canonical[0] === "{") take(value);
    else if (value.canonical[0] === "[") for (const element of value.items) take(scanWhole(element.text));
    else throw unreadable("neither an event nor a page nor an array", at);
    at = value.end;
  }
  return found;
}

// ---- Part 2: the chain --------------------------------------------------------------------------------------------

const MAX_SEQ = 2n ** 63n - 1n;
const isHash = (text) => /^"[0-9a-f]{64}"$/.test(text);
const isUuid = (text) => /^"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"$/.test(text);
const isString = (text) => text[0] === '"';
const isTime = (text) => { // YYYY-MM-DDTHH:MM:SS.mmmZ, and a day and a time of day that exist
  const time = new Date(text.length === 26 ? text.slice(1, -1) : NaN);
  return !Number.isNaN(+time) && `"${time.toISOString()}"` === text;
};
/** The fields that take part in the check, and what the canonical text of each has to be. */
const FIELDS = {
  log_id: (text) => /^"[0-7][0-9A-HJKMNP-TV-Z]{25}"$/.test(text),
  tenant_id: isUuid,
  project_id: isUuid,
  action: isString,
  actor_id: (text) => isString(text) || text === "null",
  resource: (text) => isString(text) || text === "null",
  metadata: (text) => text[0] === "{" || text === "null",
  timestamp: isTime,
  chain_seq: (text) => /^-?[0-9]{1,19}$/.test(text) && BigInt(text) <= MAX_SEQ && BigInt(text) >= -MAX_SEQ,
  prev_hash: isHash,
  hash: isHash,
};
const MAY_BE_ABSENT = ["actor_id", "resource", "metadata"];

/** Cuts these fields out of an event's raw text. `malformed` names the first that is not as it has to be. */
function readEvent(raw) {
  const { canonical, items } = scanWhole(raw);
  const event = { malformed: "" };
  const texts = new Map(Object.keys(FIELDS).map((name) => [`"${name}"`, []]));
  if (canonical[0] === "{") for (const { key, text } of items) texts.get(key)?.push(text);
  for (const [name, isRight] of Object.entries(FIELDS)) {
    const given = texts.get(`"${name}"`);
    if (given.length === 0 && MAY_BE_ABSENT.includes(name)) given.push("null");
    if (given.length === 1 && isRight(given[0])) event[name] = given[0];
    else event.malformed ||= `${name} is ${["missing", "not a proper value"][given.length] ?? "there twice"}`;
  }
  if (event.chain_seq) event.seq = BigInt(event.chain_seq);
  for (const name of ["prev_hash", "hash", "timestamp"]) event[name] &&= event[name].slice(1, -1); // no quotes
  return event;
}

const ULID_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const ulidTime = (id) => [...id.slice(1, 11)].reduce((sum, digit) => sum * 32 + ULID_DIGITS.indexOf(digit), 0);

/** What is hashed. */
function hashedText(event) {
  const names = ["log_id", "tenant_id", "action", "actor_id", "resource", "metadata"];
  const payload = names.map((name) => `"${name}":${event[name]}`).join(",");
  return `${event.prev_hash}{${payload}}${Date.parse(event.timestamp)}`;
}

/** The first check that an event fails, or null. `before` is the event before it, already checked, or null. */
function fault(event, before, first, headsAt, digest) {
  if (event.malformed) return "malformed";
  if (event.tenant_id !== first.tenant_id || event.project_id !== first.project_id) return "chain";
  if (before ? event.seq !== before.seq + 1n : event.seq < 1n) return "gap";
  const hashesBefore = before ? [before.hash] : event.seq === 1n ? ["0".repeat(64)] : headsAt(event.seq - 1n);
  if (hashesBefore.some((hash) => hash !== event.prev_hash)) return "link";
  if (digest(hashedText(event)) !== event.hash) return "hash";
  if (before && event.log_id <= before.log_id) return "order"; // ULIDs sort as text
  if (ulidTime(event.log_id) !== Date.parse(event.timestamp)) return "order";
  if (headsAt(event.seq).some((hash) => hash !== event.hash)) return "head";
  return null;
}

function readHead(text) {
  const [, seq, hash] = /^([1-9][0-9]{0,18}):([0-9a-f]{64})$/.exec(text) ?? [];
  if (!seq || BigInt(seq) > MAX_SEQ) throw unreadable(`not SEQ:HASH, HASH being 64 lower-case hex digits: ${text}`);
  return { text, seq: BigInt(seq), hash };
}

/**
 * Checks events (raw texts, oldest first or newest first) against each other and against heads ("SEQ:HASH"). The
 * result is that of vectors/README.md plus `about`, for the report in words. Numbers above 2^53 are BigInts.
 */
export function verify(rawEvents, expects = [], digest = sha256) {
  const heads = Array.from(expects, readHead).sort((a, b) => (a.seq < b.seq ? -1 : Number(a.seq > b.seq)));
  const headsAt = (seq) => heads.filter((head) => head.seq === seq).map((head) => head.hash);
  const events = Array.from(rawEvents, readEvent);
  const seqs = events.map((event) => event.seq).filter((seq) => seq !== undefined);
  if (seqs.length > 1 && seqs.every((seq, i) => i === 0 || seq < seqs[i - 1])) events.reverse(); // newest first

  const first = events[0];
  const firstSeq = first?.seq ?? 1n;
  const about = { tenant: first?.tenant_id, project: first?.project_id };
  about.unchecked = heads.filter((head) => head.seq < firstSeq - 1n).map((head) => head.text);
  const number = (seq) => (Number.isSafeInteger(Number(seq)) ? Number(seq) : seq);
  const result = (checked, last, hash, reason) => ({
    valid: !reason, checked, first_seq: number(firstSeq), last_seq: number(last),
    ...(reason && { broken_at: number(last), broken_hash: hash ?? null, reason }), about,
  });

  let before = null;
  for (const [i, event] of events.entries()) {
    const reason = fault(event, before, first, headsAt, digest);
    about.detail = event.malformed;
    if (reason) return result(i + 1, event.seq ?? (before?.seq ?? 0n) + 1n, event.hash, reason);
    before = event;
  }
  const last = before?.seq ?? 0n;
  const missing = heads.find((head) => head.seq > last);
  if (missing) return result(events.length, last + 1n, missing.hash, "tail");
  about.head = `${last}:${before?.hash}`;
  return result(events.length, last);
}

/** The same where SHA-256 comes as a promise (browsers). */
export async function verifyAsync(rawEvents, expects = []) {
  const digests = new Map();
  for (const event of Array.from(rawEvents, readEvent).filter((event) => !event.malformed)) {
    const text = hashedText(event);
    const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
    digests.set(text, Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(""));
  }
  return verify(rawEvents, expects, (text) => digests.get(text));
}

// ---- Part 3: the command line -------------------------------------------------------------------------------------

const HELP = `Checks exported Sealog events: that none was altered, removed, added or moved.

  node sealog_verify.mjs [--expect SEQ:HASH]... [--json] FILE...
  node sealog_verify.mjs --vectors DIR

FILE is NDJSON, saved API pages, a JSON array of events, or several of these in a row; plain or gzip; - is stdin.
Several files are read as one sequence, in the order given: oldest events first or newest first throughout.

  --expect SEQ:HASH  a head noted earlier: the chain has to have this hash at this chain_seq (may be repeated);
                     without one, nothing can tell whether events were cut off at the end
  --json             print the result as one JSON object
  --vectors DIR      run the test vectors in DIR instead

The hash covers log_id, tenant_id, action, actor_id, resource, metadata, timestamp and prev_hash, no other field.
Exit code: 0 valid, 10 broken, 2 wrong usage or unreadable input.`;

const MEANING = {
  malformed: "It is not a proper event",
  chain: "Its tenant_id or project_id is not the first event's: chains were mixed, or it was altered.",
  gap: "Its chain_seq does not follow the one before: events are missing or doubled, or the files are out of order.",
  link: "Its prev_hash is not the hash of the event before: what came before was altered, removed or replaced.",
  hash: "Its content does not give its hash: it was altered after it was sealed.",
  order: "Its log_id does not come after the one before, or does not hold its timestamp: it was not sealed by Sealog.",
  head: "Its hash is not the one noted earlier: the history up to here was rewritten since then.",
  tail: "The events end before a head that was noted earlier: the end of the chain is missing.",
};

function inWords(result, expects) {
  const { about } = result;
  const unchecked = about.unchecked.map((head) => `Not checked, since it lies before the events given: ${head}`);
  if (!result.valid) {
    const detail = about.detail ? `: ${about.detail}.` : "";
    return [`BROKEN at chain_seq ${result.broken_at} (${result.reason}).`, MEANING[result.reason] + detail,
      `${result.reason === "tail" ? "Expected" : "Stored"} hash: ${result.broken_hash ?? "not readable"}`,
      `Events examined: ${result.checked}, from chain_seq ${result.first_seq}; what comes later was not.`, ...unchecked];
  }
  return [`VALID: ${result.checked} events, chain_seq ${result.first_seq} to ${result.last_seq}.`,
    `Tenant ${about.tenant}, project ${about.project}.`,
    "Every hash was computed again, every event names the hash of the one before, no chain_seq is missing.",
    result.first_seq === 1 ? "The chain is here from its first event." : "What came before the first is not covered.",
    expects.length > about.unchecked.length ? "The chain agrees with the heads noted earlier."
      : "No head to compare with, so events cut off at the end would not be noticed (--expect).",
    ...unchecked, `Head, to be noted for the next time: ${about.head}`];
}

function inJson({ about, ...result }) {
  if (about.unchecked.length > 0) result.unchecked = about.unchecked;
  const show = (value) => (typeof value === "bigint" ? String(value) : JSON.stringify(value));
  return `{${Object.entries(result).map(([name, value]) => `"${name}":${show(value)}`).join(",")}}`;
}

async function readEvents(file) {
  const chunks = [];
  if (file === "-") for await (const chunk of process.stdin) chunks.push(chunk);
  let bytes = file === "-" ? Buffer.concat(chunks) : node.readFileSync(file);
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) bytes = node.gunzipSync(bytes);
  if (bytes.length > 2 ** 29 - 24) throw unreadable("more than 512 MiB in one file; split it");
  const text = decode(bytes);
  try {
    return eventsIn(text);
  } catch (error) {
    throw Object.assign(error, error.at >= 0 && { byte: Buffer.byteLength(text.slice(0, error.at)) });
  }
}

function runVectors(dir) {
  const cases = (file) => JSON.parse(decode(node.readFileSync(`${dir}/${file}`))).cases;
  let passed = 0;
  const failures = [];
  const compare = (name, wanted, got) => {
    const [a, b] = [JSON.stringify(wanted), JSON.stringify(got)];
    if (a === b) passed++;
    else failures.push(`FAILED ${name}\n  wanted ${a.slice(0, 500)}\n  got    ${b.slice(0, 500)}`);
  };
  for (const item of cases("metadata.json")) {
    let got = null;
    try {
      got = canonical(item.input ?? item.input_parts.map(([text, times]) => text.repeat(times)).join(""));
    } catch (error) {
      if (error.at === undefined) throw error;
    }
    if (item.canonical_sha256) compare(`metadata: ${item.name}`, item.canonical_sha256, got && sha256(got));
    else compare(`metadata: ${item.name}`, item.canonical, got);
  }
  const names = ["valid", "checked", "first_seq", "last_seq", "broken_at", "broken_hash", "reason"];
  for (const item of cases("chains.json")) {
    const got = JSON.parse(inJson(verify(item.events, item.expect)));
    compare(`chains: ${item.name}`, names.map((name) => item.result[name]), names.map((name) => got[name]));
  }
  console.log([...failures, `${passed} passed, ${failures.length} failed`].join("\n"));
  return failures.length ? 10 : 0;
}
