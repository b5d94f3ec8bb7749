// Checks events without the service: docs/format.md, section 1. An event never goes through JSON.parse on the
// way to its hash, because that loses number spellings, the order of integer-like keys and duplicate keys.
// The scanner checks strict JSON (RFC 8259) and copies it, dropping white space and giving every string its
// one spelling. It does not recurse, so depth is no problem.

import { SealogError } from "./errors.js";
import { sha256Hex } from "./sha256.js";

/** Why a chain is broken; `vectors/README.md` defines each. */
export type BreakReason = "malformed" | "chain" | "gap" | "link" | "hash" | "order" | "head" | "tail";

export interface Verification {
  valid: boolean;
  /** Events examined, the broken one included. */
  checked: number;
  first_seq: number | bigint;
  last_seq: number | bigint;
  broken_at?: number | bigint;
  broken_hash?: string | null;
  reason?: BreakReason;
  /** For `malformed`: which field, and what is wrong with it. */
  detail?: string;
  /** Heads that lie before the given events, so nothing was compared with them. */
  unchecked?: string[];
}

/** The raw text of an event, or an event that this library has read (it keeps its raw text). */
export type RawEvent = string | { readonly raw: string };

/**
 * Recomputes every hash and checks that each event follows the one before, oldest first or newest first.
 * `heads` are receipts or `"SEQ:HASH"`: the chain must have that hash there. Without a head, a cut-off end
 * cannot be noticed.
 */
export function verifyEvents(events: Iterable<RawEvent>, heads: Iterable<Head> = []): Verification {
  const expected = Array.from(heads, readHead).sort((a, b) => (a.seq < b.seq ? -1 : Number(a.seq > b.seq)));
  const headsAt = (seq: bigint): string[] => expected.filter((head) => head.seq === seq).map((head) => head.hash);
  const chain = Array.from(events, (event) => readEvent(rawOf(event)));
  const seqs = chain.flatMap((event) => (event.seq === undefined ? [] : [event.seq]));
  const isNewestFirst = seqs.length > 1 && seqs.every((seq, i) => i === 0 || seq < (seqs[i - 1] as bigint));
  if (isNewestFirst) chain.reverse();

  const first = chain[0];
  const firstSeq = first?.seq ?? 1n;
  const unchecked = expected.filter((head) => head.seq < firstSeq - 1n).map((head) => head.text);
  const result = (checked: number, last: bigint, broken?: Broken): Verification => ({
    valid: broken === undefined,
    checked,
    first_seq: asNumber(firstSeq),
    last_seq: asNumber(last),
    ...(broken && { broken_at: asNumber(last), broken_hash: broken.hash ?? null, reason: broken.reason }),
    ...(broken?.detail && { detail: broken.detail }),
    ...(unchecked.length > 0 && { unchecked }),
  });

  let before: ReadEvent | undefined;
  for (const [i, event] of chain.entries()) {
    const reason = faultOf(event, before, first as ReadEvent, headsAt);
    if (reason) {
      const at = event.seq ?? (before?.seq ?? 0n) + 1n;
      return result(i + 1, at, { reason, hash: event.hash, detail: event.malformed });
    }
    before = event;
  }
  const last = before?.seq ?? 0n;
  const missing = expected.find((head) => head.seq > last);
  if (missing) return result(chain.length, last + 1n, { reason: "tail", hash: missing.hash });
  return result(chain.length, last);
}

/** The number and hash of an event, known from another source: a receipt, or the text `SEQ:HASH`. */
export type Head = string | { readonly chain_seq: number | bigint; readonly hash: string };

/**
 * The hash that docs/format.md gives for an event, from its raw text. Undefined if the event is malformed.
 */
export function hashOf(event: RawEvent): string | undefined {
  const read = readEvent(rawOf(event));
  return read.malformed === "" ? sha256Hex(hashedText(read)) : undefined;
}

/** The members of an event: their names and values in canonical text. */
export const fieldsOf = (event: RawEvent): readonly { key: string | null; text: string }[] =>
  scanWhole(rawOf(event)).items;

/** The canonical text of a JSON text: what Sealog stores and hashes. Throws if the text is not JSON. */
export const canonical = (text: string): string => scanWhole(text).canonical;

/**
 * The raw texts of the events in a text: an answer of the service, an export, NDJSON, or several of these in
 * a row.
 */
export function eventsIn(text: string): string[] {
  const found: string[] = [];
  const take = (value: Pick<Scanned, "canonical" | "items">): void => {
    const lists = value.items.filter(({ key }) => key === '"events"');
    const list = lists.length === 1 ? lists[0] : undefined;
    const isPage = list?.text[0] === "[" && !value.items.some(({ key }) => key === '"log_id"');
    if (isPage) for (const event of scan(list.text, 0).items) found.push(event.text);
    else found.push(value.canonical);
  };
  for (let at = skipSpace(text, 0); at < text.length;) {
    const value = scan(text, at);
    if (value.canonical[0] === "{") take(value);
    else if (value.canonical[0] === "[") for (const element of value.items) take(scan(element.text, 0));
    else throw unreadable("neither an event nor a page nor an array", at);
    at = value.end;
  }
  return found;
}

// ---- The chain ----

interface Broken { reason: BreakReason; hash?: string | undefined; detail?: string }

/** The canonical texts of the fields that take part; without quotes for hashes and the time. */
interface ReadEvent {
  malformed: string;
  seq?: bigint;
  log_id?: string; tenant_id?: string; project_id?: string; action?: string; actor_id?: string; resource?: string;
  metadata?: string; timestamp?: string; chain_seq?: string; prev_hash?: string; hash?: string;
}

const MAX_SEQ = 2n ** 63n - 1n;
const ULID_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const isHash = (text: string): boolean => /^"[0-9a-f]{64}"$/.test(text);
const isUuid = (text: string): boolean => /^"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"$/.test(text);
const isString = (text: string): boolean => text[0] === '"';
const isTime = (text: string): boolean => { // YYYY-MM-DDTHH:MM:SS.mmmZ, and a day and a time of day that exist
  const time = new Date(text.length === 26 ? text.slice(1, -1) : NaN);
  return +time >= 0 && `"${time.toISOString()}"` === text; // NaN is not >= 0
};
const asNumber = (seq: bigint): number | bigint => (seq <= Number.MAX_SAFE_INTEGER ? Number(seq) : seq);

const FIELDS = {
  log_id: (text: string) => /^"[0-7][0-9A-HJKMNP-TV-Z]{25}"$/.test(text),
  tenant_id: isUuid,
  project_id: isUuid,
  action: isString,
  actor_id: (text: string) => isString(text) || text === "null",
  resource: (text: string) => isString(text) || text === "null",
  metadata: (text: string) => text[0] === "{" || text === "null",
  timestamp: isTime,
  chain_seq: (text: string) => /^[0-9]{1,19}$/.test(text) && BigInt(text) <= MAX_SEQ,
  prev_hash: isHash,
  hash: isHash,
} as const;
type FieldName = keyof typeof FIELDS;
const FIELD_NAMES = Object.keys(FIELDS) as FieldName[];
const MAY_BE_ABSENT = new Set<FieldName>(["actor_id", "resource", "metadata"]);
const HASHED: readonly FieldName[] = ["log_id", "tenant_id", "action", "actor_id", "resource", "metadata"];

const rawOf = (event: RawEvent): string => (typeof event === "string" ? event : event.raw);

function readEvent(raw: string): ReadEvent {
  const { canonical: text, items } = scanWhole(raw);
  const event: ReadEvent = { malformed: "" };
  for (const name of FIELD_NAMES) {
    const given = text[0] === "{" ? items.filter(({ key }) => key === `"${name}"`).map((item) => item.text) : [];
    if (given.length === 0 && MAY_BE_ABSENT.has(name)) given.push("null");
    const value = given[0];
    if (given.length === 1 && value !== undefined && FIELDS[name](value)) event[name] = value;
    else event.malformed ||= `${name} is ${["missing", "not a proper value"][given.length] ?? "there twice"}`;
  }
  if (event.chain_seq !== undefined) event.seq = BigInt(event.chain_seq);
  for (const name of ["prev_hash", "hash", "timestamp"] as const) {
    if (event[name] !== undefined) event[name] = event[name].slice(1, -1);
  }
  return event;
}

const timeOf = (event: ReadEvent): number => Date.parse(event.timestamp as string);
const ulidTimeOf = (event: ReadEvent): number => // the first 10 of 26 digits; log_id still has its quotes
  [...(event.log_id as string).slice(1, 11)].reduce((sum, digit) => sum * 32 + ULID_DIGITS.indexOf(digit), 0);

const hashedText = (event: ReadEvent): string =>
  `${event.prev_hash}{${HASHED.map((name) => `"${name}":${event[name]}`).join(",")}}${timeOf(event)}`;

/** The first check that an event fails. `before` is the event before it, already checked. */
function faultOf(
  event: ReadEvent, before: ReadEvent | undefined, first: ReadEvent, headsAt: (seq: bigint) => string[],
): BreakReason | undefined {
  const seq = event.seq;
  if (event.malformed || seq === undefined) return "malformed";
  if (event.tenant_id !== first.tenant_id || event.project_id !== first.project_id) return "chain";
  if (before?.seq !== undefined ? seq !== before.seq + 1n : seq < 1n) return "gap";
  const hashesBefore = before ? [before.hash] : seq === 1n ? ["0".repeat(64)] : headsAt(seq - 1n);
  if (hashesBefore.some((hash) => hash !== event.prev_hash)) return "link";
  if (sha256Hex(hashedText(event)) !== event.hash) return "hash";
  if (before && (event.log_id as string) <= (before.log_id as string)) return "order"; // ULIDs sort as text
  if (ulidTimeOf(event) !== timeOf(event)) return "order";
  if (headsAt(seq).some((hash) => hash !== event.hash)) return "head";
  return undefined;
}

function readHead(head: Head): { text: string; seq: bigint; hash: string } {
  const text = typeof head === "string" ? head : `${head.chain_seq}:${head.hash}`;
  const [, seq, hash] = /^([1-9][0-9]{0,18}):([0-9a-f]{64})$/.exec(text) ?? [];
  if (seq === undefined || hash === undefined || BigInt(seq) > MAX_SEQ) {
    throw unreadable(`not a head: ${text}; write SEQ:HASH with a hash of 64 lower-case hex digits`, -1);
  }
  return { text, seq: BigInt(seq), hash };
}

// ---- JSON ----

interface Item { key: string | null; text: string }
/** A value's canonical text, its members or elements one level deep, and the index behind it. */
interface Scanned { canonical: string; items: Item[]; end: number }

const NOT_SPACE = /[^ \t\n\r]/g;
const STRING_STOP = /["\\\u0000-\u001f]/g;
const LITERAL = /true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const PAIR = "u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}"; // two escapes that are one character
const ESCAPE = new RegExp(`\\\\(?:${PAIR}|u[0-9a-fA-F]{4}|["\\\\/bfnrt])`, "y");

function unreadable(what: string, at: number): SealogError {
  const where = at >= 0 ? ` (at character ${at})` : "";
  return new SealogError(`${what}${where}`, { code: "client/unreadable" });
}

/**
 * The one spelling of an escaped character. For a single character, it is the one that JSON.stringify writes.
 */
const respell = (escape: string): string => JSON.stringify(JSON.parse(`"${escape}"`)).slice(1, -1);

function skipSpace(text: string, at: number): number {
  NOT_SPACE.lastIndex = at;
  return NOT_SPACE.test(text) ? NOT_SPACE.lastIndex - 1 : text.length;
}

function scanWhole(text: string): Scanned {
  const half = text.search(/[\ud800-\udfff]/u);
  if (half >= 0) throw unreadable("half a character, which UTF-8 cannot hold", half);
  const value = scan(text, skipSpace(text, 0));
  if (value.end < text.length) throw unreadable("something follows the value", value.end);
  return value;
}

function scan(text: string, start: number): Scanned {
  let at = start;
  let copied = start; // text before this index is in `out`; from here to `at` it will be copied as it is
  const out: string[] = [];
  const open: string[] = []; // the closing brackets still owed, innermost last
  const items: Item[] = [];
  let key: string | null = null; // of the member being read
  let first: number | null = null; // index in `out` of the first piece of the member or element being read

  const fail = (what: string): never => {
    throw unreadable(at < text.length ? what : "the text ends inside a value", at);
  };
  const flush = (): number => {
    if (at > copied) out.push(text.slice(copied, at));
    copied = at;
    return out.length;
  };
  const space = (): void => {
    if (at >= text.length || text.charCodeAt(at) > 32) return;
    flush();
    at = copied = skipSpace(text, at);
  };
  const string = (): void => {
    if (text[at] !== '"') fail("a string in double quotes was expected");
    for (at++; ;) {
      STRING_STOP.lastIndex = at;
      at = STRING_STOP.test(text) ? STRING_STOP.lastIndex - 1 : text.length;
      if (text[at] === '"') break;
      if (text[at] !== "\\") fail("a control character inside a string");
      ESCAPE.lastIndex = at;
      const escape = ESCAPE.exec(text)?.[0] ?? fail("an escape that JSON does not have");
      const spelling = respell(escape);
      if (spelling !== escape) {
        flush();
        out.push(spelling);
        copied += escape.length;
      }
      at += escape.length;
    }
    at++;
  };
  const name = (): void => {
    space();
    if (open.length === 1) first = flush();
    string();
    if (open.length === 1) key = out.slice(first as number, flush()).join("");
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
    while (open.length > 0) { // a value is complete, or an empty one is about to be: close brackets, or read on
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
