#!/usr/bin/env node
// Checks exported Sealog events without Sealog: plain Node 18.3 or newer, no packages, no network. It does what
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

const inNode = Boolean(globalThis.process?.versions?.node);
const load = async (...names) => Object.assign({}, ...(await Promise.all(names.map((name) => import(name)))));
const node = inNode && (await load("node:buffer", "node:crypto", "node:fs", "node:url", "node:util", "node:zlib"));
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
const PAIR = "u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}"; // two escapes that are one character
const ESCAPE = new RegExp(`\\\\(?:${PAIR}|u[0-9a-fA-F]{4}|["\\\\/bfnrt])`, "y");

/** The one spelling of an escaped character. For a single character, it is the one that JSON.stringify writes. */
const respell = (escape) => JSON.stringify(JSON.parse(`"${escape}"`)).slice(1, -1);

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
  let [key, first] = [null, null]; // of the member or element being read: its key, its first piece in `out`

  const fail = (what) => { throw unreadable(at < text.length ? what : "the text ends inside a value", at); };
  const flush = () => {
    if (at > copied) out.push(text.slice(copied, at));
    copied = at;
    return out.length;
  };
  const space = () => {
    if (at < text.length && text.charCodeAt(at) <= 32) flush(), (at = copied = skipSpace(text, at));
  };
  const string = () => {
    if (text[at] !== '"') fail("a string in double quotes was expected");
    for (at++; ; ) {
      STRING_STOP.lastIndex = at;
      at = STRING_STOP.test(text) ? STRING_STOP.lastIndex - 1 : text.length;
      if (text[at] === '"') return at++;
      if (text[at] !== "\\") fail("a control character inside a string");
      ESCAPE.lastIndex = at;
      const [escape] = ESCAPE.exec(text) ?? fail("an escape that JSON does not have");
      const spelling = respell(escape);
      if (spelling !== escape) flush(), out.push(spelling), (copied += escape.length);
      at += escape.length;
    }
  };
  const name = () => {
    space();
    if (open.length === 1) first = flush();
    string();
    if (open.length === 1) key = out.slice(first, flush()).join("");
    space();
    if (text[at] !== ":") fail("a colon was expected");
    at++;
  };

  value: for (;;) {
    space();
    if (open.length === 1) first = flush();
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
      if (open.length === 1 && first !== null) {
        items.push({ key, text: out.slice(first, flush()).join("") });
        first = null;
      }
      if (text[at] !== "," && text[at] !== open.at(-1)) fail(`a comma or ${open.at(-1)} was expected`);
      if (text[at++] === ",") {
        if (open.at(-1) === "}") name();
        continue value;
      }
      open.pop();
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

/** The members of a JSON object as {key, text}, both canonical; the key has its quotes. */
export const members = (text) => scanWhole(text).items;

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
    const lists = items.filter(({ key }) => key === '"events"');
    const isPage = lists.length === 1 && lists[0].text[0] === "[" && !items.some(({ key }) => key === '"log_id"');
    if (isPage) for (const event of scan(lists[0].text, 0).items) found.push(event.text);
    else found.push(canonical);
  };
  for (let at = skipSpace(text, 0); at < text.length; ) {
    const value = scan(text, at);
    if (value.canonical[0] === "{") take(value);
    else if (value.canonical[0] === "[") for (const element of value.items) take(scan(element.text, 0));
    else throw unreadable("neither an event nor a page nor an array", at);
    at = value.end;
  }
  return found;
}

// ---- Part 2: the chain --------------------------------------------------------------------------------------------

const MAX_SEQ = 2n ** 63n - 1n;
const ULID_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const isHash = (text) => /^"[0-9a-f]{64}"$/.test(text);
const isUuid = (text) => /^"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"$/.test(text);
const isString = (text) => text[0] === '"';
const isTime = (text) => { // YYYY-MM-DDTHH:MM:SS.mmmZ, and a day and a time of day that exist
  const time = new Date(text.length === 26 ? text.slice(1, -1) : NaN);
  return +time >= 0 && `"${time.toISOString()}"` === text; // NaN is not >= 0
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
  chain_seq: (text) => /^[0-9]{1,19}$/.test(text) && BigInt(text) <= MAX_SEQ,
  prev_hash: isHash,
  hash: isHash,
};
const MAY_BE_ABSENT = ["actor_id", "resource", "metadata"];

/** Cuts these fields out of an event's raw text. `malformed` tells of the first that is not as it has to be. */
export function readEvent(raw) {
  const { canonical, items } = scanWhole(raw);
  const texts = new Map(Object.keys(FIELDS).map((name) => [`"${name}"`, []]));
  if (canonical[0] === "{") for (const { key, text } of items) texts.get(key)?.push(text);
  const event = { malformed: "" };
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

const timeOf = (event) => Date.parse(event.timestamp);
const ulidTimeOf = (event) => // the first 10 of 26 digits; log_id has its quotes still
  [...event.log_id.slice(1, 11)].reduce((sum, digit) => sum * 32 + ULID_DIGITS.indexOf(digit), 0);

/** What is hashed. */
function hashedText(event) {
  const names = ["log_id", "tenant_id", "action", "actor_id", "resource", "metadata"];
  return `${event.prev_hash}{${names.map((name) => `"${name}":${event[name]}`).join(",")}}${timeOf(event)}`;
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
  if (ulidTimeOf(event) !== timeOf(event)) return "order";
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
  const unchecked = heads.filter((head) => head.seq < firstSeq - 1n).map((head) => head.text);
  const about = { tenant: first?.tenant_id, project: first?.project_id, unchecked, detail: "", last: null, ids: null };
  const number = (seq) => (Number.isSafeInteger(Number(seq)) ? Number(seq) : seq);
  const result = (checked, last, hash, reason) => ({
    valid: !reason, checked, first_seq: number(firstSeq), last_seq: number(last),
    ...(reason && { broken_at: number(last), broken_hash: hash ?? null, reason }), about,
  });

  let before = null;
  if (first && !first.malformed) about.ids = { tenant_id: first.tenant_id.slice(1, -1), project_id: first.project_id.slice(1, -1) };
  for (const [i, event] of events.entries()) {
    const reason = fault(event, before, first, headsAt, digest);
    about.detail = event.malformed;
    if (reason) return result(i + 1, event.seq ?? (before?.seq ?? 0n) + 1n, event.hash, reason);
    before = event;
    about.last = event.seq; // the last that passed
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
  for (const event of Array.from(rawEvents, readEvent).filter(({ malformed }) => !malformed)) {
    const text = hashedText(event);
    const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
    digests.set(text, Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(""));
  }
  return verify(rawEvents, expects, (text) => digests.get(text));
}

// ---- Part 3: the command line -------------------------------------------------------------------------------------

const HELP = `Checks exported Sealog events: that none was altered, removed, added or moved.

  node sealog_verify.mjs [--json] [--expect SEQ:HASH]... FILE...
  node sealog_verify.mjs [--key VKEY]... [--proof FILE]... [--checkpoint FILE]... [--consistency FILE]... [FILE...]
  node sealog_verify.mjs --vectors DIR

FILE (- for stdin) is NDJSON, saved API pages, a JSON array of events, or several of these in a row; plain or gzip.
Files are read in the order given, as one sequence: oldest event first, or newest first, throughout.
--expect gives a head noted earlier: the chain has to have that hash at that chain_seq. Without one, nothing can
tell whether events were cut off at the end. --vectors runs the test vectors in DIR.
--proof is a proof of an event or of a chain's head (*.tlog-proof), --checkpoint a checkpoint that was kept earlier,
--consistency a proof between two checkpoints. --key is the vkey of a log that is believed, or --policy FILE says which
logs and witnesses are. The report names every attack that was found, and in words what was not shown.
The hash covers log_id, tenant_id, action, actor_id, resource, metadata, timestamp and prev_hash, no other field.
Exit code: 0 valid, 10 broken, 2 wrong usage or unreadable input.`;

const MEANING = {
  malformed: "It is not a proper event: ",
  chain: "Its tenant_id or project_id is not the first event's: chains were mixed, or it was altered.",
  gap: "Its chain_seq does not follow the one before: events are missing or doubled, or the input is out of order.",
  link: "Its prev_hash is not the hash before it: what came before was removed or replaced, or it was altered.",
  hash: "Its content does not give its hash: it was altered after it was sealed.",
  order: "Its log_id does not come after the one before, or does not hold its timestamp.",
  head: "Its hash is not the one noted earlier: the history up to here was rewritten since then.",
  tail: "The events end before a head that was noted earlier: the end of the chain is missing.",
};

function inWords({ valid, checked, first_seq, last_seq, broken_at, broken_hash, reason, about }, expects) {
  const unchecked = about.unchecked.map((head) => `Not checked, as it lies before the events given: ${head}`);
  if (!valid) return [`BROKEN at chain_seq ${broken_at} (${reason}). ${MEANING[reason]}${about.detail}`,
    `${reason === "tail" ? "Hash expected" : "Hash stored there"}: ${broken_hash ?? "not readable"}`,
    `Events examined: ${checked}, from chain_seq ${first_seq}; nothing after that.`, ...unchecked];
  return [`VALID: ${checked} events, chain_seq ${first_seq} to ${last_seq}.`,
    `Tenant ${about.tenant}, project ${about.project}.`,
    "Every hash was computed again, every event names the hash of the one before, no chain_seq is missing.",
    first_seq === 1 ? "The chain is here from its first event." : "What came before the first is not covered.",
    expects.length > about.unchecked.length ? "It agrees with what was noted earlier (--expect)."
      : "Compared with no head noted earlier (--expect): events cut off at the end would not be noticed.",
    ...unchecked, `Head, to be noted for the next time: ${about.head}`];
}

function inJson({ about: { unchecked }, ...result }) {
  if (unchecked.length > 0) result.unchecked = unchecked;
  const show = (value) => (typeof value === "bigint" ? String(value) : JSON.stringify(value));
  return `{${Object.entries(result).map(([name, value]) => `"${name}":${show(value)}`).join(",")}}`;
}

async function readFile(file) {
  let text = "";
  try {
    const chunks = [];
    for await (const chunk of file === "-" ? process.stdin : node.createReadStream(file)) chunks.push(chunk);
    let bytes = Buffer.concat(chunks);
    if (bytes[0] === 0x1f && bytes[1] === 0x8b) bytes = node.gunzipSync(bytes);
    if (bytes.length > 2 ** 29 - 24) throw unreadable("more than 512 MiB of text in one file; split it");
    text = decode(bytes);
    return eventsIn(text);
  } catch (error) {
    const byte = error.byte ?? (error.at >= 0 ? Buffer.byteLength(text.slice(0, error.at)) : null);
    throw new Error(`${file}: ${error.message}${byte === null ? "" : ` (at byte ${byte})`}`);
  }
}

/** The bytes of a file, and no more than one above `most`: what is longer is refused, and must not fill the memory. */
function readStart(file, most) {
  const [handle, bytes] = [node.openSync(file), node.Buffer.alloc(most + 1)];
  try {
    let length = 0;
    for (let count = -1; count !== 0; length += count) count = node.readSync(handle, bytes, length, bytes.length - length);
    return bytes.subarray(0, length);
  } finally {
    node.closeSync(handle);
  }
}

function runVectors(dir) {
  let passed = 0;
  const failed = [];
  const brief = (value) => JSON.stringify(value).slice(0, 500);
  const casesOf = (file) => JSON.parse(decode(node.readFileSync(`${dir}/${file}`))).cases;
  const compare = (name, wanted, compute) => {
    let got = null; // stays so when the input is not JSON
    try { got = compute(); } catch (error) { if (error.at === undefined) throw error; }
    if (JSON.stringify(got) === JSON.stringify(wanted)) passed++;
    else failed.push(`FAILED ${name}: wanted ${brief(wanted)}, got ${brief(got)}`);
  };
  for (const { name, input, input_parts, canonical: wanted, canonical_sha256 } of casesOf("metadata.json")) {
    const text = input ?? input_parts.map(([part, times]) => part.repeat(times)).join("");
    if (canonical_sha256) compare(`metadata: ${name}`, canonical_sha256, () => sha256(canonical(text)));
    else compare(`metadata: ${name}`, wanted, () => canonical(text));
  }
  const fields = ["valid", "checked", "first_seq", "last_seq", "broken_at", "broken_hash", "reason"];
  for (const { name, events, expect, result } of casesOf("chains.json")) {
    const pick = (from) => fields.map((field) => from[field]);
    compare(`chains: ${name}`, pick(result), () => pick(JSON.parse(inJson(verify(events, expect)))));
  }
  console.log([...failed, `${passed} passed, ${failed.length} failed`].join("\n"));
  return failed.length === 0 ? 0 : 10;
}

async function main(args) {
  const [text, flag] = [{ type: "string" }, { type: "boolean" }];
  const many = { ...text, multiple: true };
  const options = { expect: many, key: many, policy: text, "witness-policy": text, proof: many, checkpoint: many,
    consistency: many, vectors: text, json: flag, help: flag };
  const { values, positionals: files } = node.parseArgs({ args, options, allowPositionals: true });
  if (values.help) return console.log(HELP), 0;
  values.policy ??= values["witness-policy"];
  const hasInput = files.length > 0 || values.proof || values.checkpoint;
  if ((values.vectors === undefined) === !hasInput) throw new Error("give files or --vectors (see --help)");
  if (values.key && values.policy) throw new Error("give --key or --policy, not both");
  if (values.vectors !== undefined) return runVectors(values.vectors);
  const expects = values.expect ?? [];
  expects.forEach(readHead); // so that a mistyped one is refused at once
  const events = [];
  for (const file of files) for (const event of await readFile(file)) events.push(event);
  if (files.length > 0 && events.length === 0 && expects.length === 0) throw new Error("no events in the input");
  if (values.key || values.policy || values.proof || values.checkpoint || values.consistency) {
    const { judge, trustInJson, trustInWords } = await import("./sealog_trust.mjs");
    const result = judge(values, readStart, files.length > 0 ? events : null);
    console.log(values.json ? trustInJson(result) : trustInWords(result));
    return result.valid ? 0 : 10;
  }
  const result = verify(events, expects);
  console.log(values.json ? inJson(result) : inWords(result, expects).join("\n"));
  return result.valid ? 0 : 10;
}

const script = inNode && process.argv[1];
if (script && node.existsSync(script) && node.realpathSync(script) === node.fileURLToPath(import.meta.url)) {
  process.exitCode = 2; // until shown otherwise
  // Not awaited: sealog_trust.mjs imports this module, and waits until it is evaluated.
  main(process.argv.slice(2)).then((code) => (process.exitCode = code), (error) => console.error(error.message));
}
