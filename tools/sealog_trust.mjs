#!/usr/bin/env node
// Checks Sealog's trees, notes and proofs without Sealog: plain Node 18.3 or newer, no packages, no network.
// `node sealog_trust.mjs --vectors DIR` runs the project's test vectors (vectors/trust).
//
// Ed25519 is Node's own, with two checks before it that Node does not make: of public keys, and of R in a signature.

import { createHash, createHmac, createPrivateKey, createPublicKey, sign, verify } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { canonical, eventsIn, members, readEvent as readChecked, verify as verifyEvents } from "./sealog_verify.mjs";

/** `reason` is the word that the vectors use. */
export class Refused extends Error {
  constructor(reason, what) {
    super(what);
    this.reason = reason;
  }
}
/** A text that does not have the form it must have. `line` counts from 1; 0 if the text as a whole is wrong. */
const malformed = (field, problem, line = 0) =>
  Object.assign(new Refused("malformed", `${line ? `line ${line}: ` : ""}\`${field}\` ${problem}`), { problem });
const sha256 = (...parts) => parts.reduce((hash, part) => hash.update(part), createHash("sha256")).digest();
const byte = (value) => Buffer.from([value]);
const same = (a, b) => Buffer.compare(a, b) === 0;

// ---- Texts: every value has one spelling --------------------------------------------------------------------------

const NUMBER_MAX = 2n ** 63n - 1n;
const SEPARATOR = /[\u0000-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000+]/;
const isName = (text) => text !== "" && !SEPARATOR.test(text);

function decimal(text, field, line) {
  if (!/^(?:0|[1-9][0-9]{0,18})$/.test(text) || BigInt(text) > NUMBER_MAX)
    throw malformed(field, "must be a decimal number without leading zeros, at most 9223372036854775807", line);
  return BigInt(text);
}
const b64 = (bytes) => Buffer.from(bytes).toString("base64");
/** Null if it is not standard base64 with padding, in its one spelling. */
function unbase64(text) {
  const bytes = Buffer.from(text, "base64");
  return b64(bytes) === text ? bytes : null;
}
function unhash(text, field, line) {
  const bytes = unbase64(text);
  if (bytes?.length !== 32) throw malformed(field, "must be 32 bytes in standard base64 with padding", line);
  return bytes;
}
function unhex(text, length, field, line) {
  if (text.length !== 2 * length || !/^[0-9a-f]*$/.test(text))
    throw malformed(field, `must have ${2 * length} hex digits in lower case`, line);
  return Buffer.from(text, "hex");
}
function utf8(bytes, field) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw malformed(field, "must be UTF-8");
  }
}
const uint64 = (value) => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return bytes;
};

/** A text whose lines all end with a line feed. */
class Lines {
  number = 0;
  constructor(text) {
    this.rest = text;
  }
  wrong(field, problem) {
    return malformed(field, problem, this.number);
  }
  next(field) {
    this.number++;
    const end = this.rest.indexOf("\n");
    if (end < 0) throw this.wrong(field, "must be on a line of its own that ends with a line feed");
    const line = this.rest.slice(0, end);
    this.rest = this.rest.slice(end + 1);
    return line;
  }
  value(name) {
    const line = this.next(name);
    if (!line.startsWith(`${name} `)) throw this.wrong(name, "must be the name of this line, before a space and the value");
    return line.slice(name.length + 1);
  }
  decimal(field, text) {
    return decimal(text, field, this.number);
  }
  hex(field, text, length) {
    return unhex(text, length, field, this.number);
  }
  hash(field, text) {
    return unhash(text, field, this.number);
  }
  hashes(most) {
    const hashes = [];
    while (this.rest !== "" && this.rest[0] !== "\n") {
      const line = this.next("path");
      if (hashes.length === most) throw this.wrong("path", "has more hashes than a tree of any size needs");
      hashes.push(this.hash("path", line));
    }
    return hashes;
  }
  empty() {
    if (this.next("empty line") !== "") throw this.wrong("empty line", "must be here");
  }
  end() {
    if (this.rest !== "") throw malformed("end", "must be here; remove further lines", this.number + 1);
  }
}

// ---- Ed25519, strict ----------------------------------------------------------------------------------------------

const P = 2n ** 255n - 19n;
const D = 37095705934669439343138083508754565189542113879843219016388785533085940283555n;
const SPKI = Buffer.from("302a300506032b6570032100", "hex");
const PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");
const littleEndian = (bytes) => BigInt(`0x${Buffer.from(bytes).reverse().toString("hex")}`);

function power(base, exponent) {
  let result = 1n;
  for (base %= P; exponent > 0n; exponent >>= 1n, base = (base * base) % P) if (exponent & 1n) result = (result * base) % P;
  return result;
}

/** The eight points of small order have these y; `EIGHTH` is that of order 8, and its negative. */
const EIGHTH = littleEndian(Buffer.from("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a", "hex"));
const SMALL = [0n, 1n, P - 1n, EIGHTH, P - EIGHTH];

/** Whether 32 bytes are a point of large order in its one spelling. */
function isLargePoint(bytes) {
  const y = littleEndian(bytes) & (2n ** 255n - 1n);
  if (y >= P || SMALL.includes(y)) return false;
  const square = ((y * y - 1n) * power(D * y * y + 1n, P - 2n)) % P;
  return power((square + P) % P, (P - 1n) / 2n) === 1n;
}

function isSigned(key, message, signature) {
  if (signature.length !== 64 || !isLargePoint(signature.subarray(0, 32))) return false;
  const spki = createPublicKey({ key: Buffer.concat([SPKI, key]), format: "der", type: "spki" });
  return verify(null, Buffer.from(message), spki, signature);
}

// ---- Trees of RFC 6962 --------------------------------------------------------------------------------------------

const HASHES_MAX = 63;
const EMPTY_ROOT = sha256();
const leafHash = (entry) => sha256(byte(0), entry);
const nodeHash = (left, right) => sha256(byte(1), left, right);
const bitLength = (value) => (value === 0n ? 0 : value.toString(2).length);
const ones = (value) => value.toString(2).replaceAll("0", "").length;
const split = (count) => 1n << BigInt(bitLength(count - 1n) - 1);

/** A tree in memory; indexes are numbers here. */
class Tree {
  leaves = [];
  known = new Map();
  root(start, end) {
    if (end - start <= 1) return end > start ? this.leaves[start] : EMPTY_ROOT;
    const key = start * 2 ** 26 + end;
    if (!this.known.has(key)) {
      const middle = start + Number(split(BigInt(end - start)));
      this.known.set(key, nodeHash(this.root(start, middle), this.root(middle, end)));
    }
    return this.known.get(key);
  }
  /** The hashes beside the way from the root to the subtree for which `isThere` holds. */
  path(size, goesLeft, isThere) {
    let [start, end] = [0, size];
    const path = [];
    while (!isThere(start, end)) {
      const middle = start + Number(split(BigInt(end - start)));
      if (goesLeft(middle)) [path[path.length], end] = [this.root(middle, end), middle];
      else [path[path.length], start] = [this.root(start, middle), middle];
    }
    return { path: path.reverse(), start, end };
  }
  inclusion(index, size) {
    return this.path(size, (middle) => index < middle, (start, end) => end - start === 1).path;
  }
  consistency(old, size) {
    if (old === 0 || old === size) return [];
    const { path, start, end } = this.path(size, (middle) => old <= middle, (_, end) => end === old);
    return start > 0 ? [this.root(start, end), ...path] : path;
  }
  range(start, end, size) {
    const spans = outside(BigInt(start), BigInt(end), 0n, BigInt(size));
    return spans.map(([from, to]) => this.root(Number(from), Number(to)));
  }
}

/** The largest subtrees outside of a range, from left to right. */
function outside(start, end, from, to) {
  if (to <= start || end <= from) return [[from, to]];
  if (start <= from && to <= end) return [];
  const middle = from + split(to - from);
  return [...outside(start, end, from, middle), ...outside(start, end, middle, to)];
}

function checkPlace(end, size, path = []) {
  if (size > NUMBER_MAX) throw new Refused("size", `\`size\` ${size} is above ${NUMBER_MAX}`);
  if (path.length > HASHES_MAX) throw new Refused("too long", `\`path\` may have 63 hashes, and has ${path.length}`);
  if (end > size) throw new Refused("outside", `the proof is about ${end} leaves, but the tree has ${size}`);
}
function checkLength(path, expected) {
  const problem = `\`path\` must have ${expected} hashes for this place and size, and has ${path.length}`;
  if (path.length !== expected) throw new Refused("length", problem);
}
function climb(hash, index, path, inner) {
  return path.reduce((hash, beside, level) => {
    const isRight = level >= inner || (index >> BigInt(level)) & 1n;
    return isRight ? nodeHash(beside, hash) : nodeHash(hash, beside);
  }, hash);
}
function rootFromPath(leaf, index, size, path) {
  checkPlace(index + 1n, size, path);
  const inner = bitLength(index ^ (size - 1n));
  checkLength(path, inner + ones(index >> BigInt(inner)));
  return climb(leaf, index, path, inner);
}
/**
 * The root of the tree that ends with the leaf: the siblings on the left are all of it. So a proof of its last leaf
 * shows that an older tree begins a newer one.
 */
function rootUpTo(leaf, index, size, path) {
  rootFromPath(leaf, index, size, path);
  return climbLeft(leaf, index, path, bitLength(index ^ (size - 1n)));
}
function climbLeft(hash, index, path, inner) {
  const isLeft = (level) => level >= inner || (index >> BigInt(level)) & 1n;
  return path.reduce((hash, beside, level) => (isLeft(level) ? nodeHash(beside, hash) : hash), hash);
}
function verifyInclusion(leaf, index, size, root, path) {
  if (!same(rootFromPath(leaf, index, size, path), root)) throw new Refused("root", "the proof leads to another root");
}
function verifyConsistency(old, oldRoot, size, root, path) {
  checkPlace(old, size, path);
  if (old === 0n || old === size) {
    checkLength(path, 0);
    if ((old === 0n && !same(oldRoot, EMPTY_ROOT)) || (old === size && !same(oldRoot, root)))
      throw new Refused("root", "the roots do not fit");
    return;
  }
  const level = bitLength(old & -old) - 1;
  const index = (old - 1n) >> BigInt(level);
  const inner = bitLength((old - 1n) ^ (size - 1n)) - level;
  const isWhole = (old & (old - 1n)) === 0n;
  checkLength(path, Number(!isWhole) + inner + ones(index >> BigInt(inner)));
  const [seed, rest] = isWhole ? [oldRoot, path] : [path[0], path.slice(1)];
  if (!same(climbLeft(seed, index, rest, inner), oldRoot) || !same(climb(seed, index, rest, inner), root))
    throw new Refused("root", "the older tree does not begin the newer one");
}
function verifyRange(start, leaves, size, root, path) {
  const end = start + BigInt(leaves.length);
  if (leaves.length === 0) throw new Refused("empty", "the range must have at least one leaf");
  checkPlace(end, size);
  checkLength(path, outside(start, end, 0n, size).length);
  const rest = path.values();
  const inside = Object.assign(new Tree(), { leaves });
  const join = (from, to) => {
    if (to <= start || end <= from) return rest.next().value;
    if (start <= from && to <= end) return inside.root(Number(from - start), Number(to - start));
    const middle = from + split(to - from);
    const left = join(from, middle);
    return nodeHash(left, join(middle, to));
  };
  if (!same(join(0n, size), root)) throw new Refused("root", "the range leads to another root");
}

// ---- Salts, leaves, heads -----------------------------------------------------------------------------------------

const DEPTH = 48n;
const PUBLIC = ["category", "severity", "actor_type", "resource_type"];
const PRIVATE = ["session_id", "ts_client", "ip_address", "country", "city"];

function parseKey(line) {
  const words = line.split(" ");
  if (words.length !== 4 || words[0] !== "key") throw malformed("key", "must be `key DEPTH PREFIX HEX`");
  const [depth, prefix] = [decimal(words[1], "DEPTH"), decimal(words[2], "PREFIX")];
  if (depth > DEPTH || prefix >> depth) throw malformed("DEPTH", "must be at most 48, and PREFIX below 2^DEPTH");
  return { depth, prefix, key: unhex(words[3], 16, "HEX") };
}
const keyLine = ({ depth, prefix, key }) => `key ${depth} ${prefix} ${key.toString("hex")}`;

/** The keys below this one that lie inside and outside of a range of events. */
function cut(key, first, last) {
  const below = DEPTH - key.depth;
  const [low, high] = [key.prefix << below, ((key.prefix + 1n) << below) - 1n];
  if (first <= low && high <= last) return [[key], []];
  if (high < first || last < low) return [[], [key]];
  const children = sha256(byte(5), key.key);
  const parts = [0n, 1n].map((bit) => {
    const half = children.subarray(16 * Number(bit), 16 * Number(bit) + 16);
    return cut({ depth: key.depth + 1n, prefix: (key.prefix << 1n) | bit, key: half }, first, last);
  });
  return [0, 1].map((side) => parts.flatMap((part) => part[side]));
}

function fields(event, names, firstTag) {
  return Buffer.concat(names.flatMap((name, at) => {
    if (event[name] === null) return [];
    const value = Buffer.from(event[name]);
    if (value.length > 65535)
      throw new Refused("leaf", `\`${name}\` is above what two bytes can say: no leaf can be made of this event`);
    return [Buffer.from([firstTag + at, value.length >> 8, value.length & 255]), value];
  }));
}
const commitment = (salt, event) => sha256(byte(4), salt, fields(event, PRIVATE, 5));
const leafOf = (event, commitment) => Buffer.concat([
  byte(1), uint64(event.chain_seq), event.hash, commitment,
  Buffer.from([event.schema_version >> 8, event.schema_version & 255]), fields(event, PUBLIC, 1),
]);
const tagOf = (event, mode) => sha256(`sealog/chain/v1\n${event.tenant_id}\n${event.project_id}\n${mode}\n`);

const HASHED = ["log_id", "tenant_id", "action", "actor_id", "resource", "metadata"];
const CHECKED = [...HASHED, "project_id", "timestamp", "chain_seq", "prev_hash", "hash"];

/**
 * The fields of an event that a leaf commits to, and whether its hash fits. `uncovered` is the first field that neither
 * the hash nor a leaf covers: one that Sealog does not write, that stands twice or has another form than its own.
 */
function wholeEvent(raw) {
  const [texts, event] = [new Map(), { schema_version: 1, uncovered: null }];
  for (const name of [...PUBLIC, ...PRIVATE]) event[name] = null;
  for (const { key, text } of members(raw)) {
    const name = key.slice(1, -1);
    let isRight = CHECKED.includes(name) || text === "null";
    if (name === "schema_version") {
      const isNumber = /^[1-9][0-9]{0,9}$/.test(text) && Number(text) < 2 ** 32;
      isRight ||= isNumber;
      event.schema_version = isNumber ? Number(text) : 1;
    } else if (PUBLIC.includes(name) || PRIVATE.includes(name)) {
      const value = text[0] === '"' ? JSON.parse(text) : null;
      isRight ||= value !== null && !/[\ud800-\udfff]/u.test(value);
      event[name] = isRight ? value : null;
    } else if (!CHECKED.includes(name)) isRight = false;
    if (texts.has(name) || !isRight) event.uncovered ??= name;
    texts.set(name, text);
  }
  const text = (name) => texts.get(name) ?? "null";
  for (const name of ["tenant_id", "project_id", "prev_hash", "timestamp"]) event[name] = JSON.parse(text(name));
  event.chain_seq = BigInt(text("chain_seq"));
  event.hash = unhex(JSON.parse(text("hash")) ?? "", 32, "hash");
  const hashed = `${event.prev_hash}{${HASHED.map((name) => `"${name}":${text(name)}`).join(",")}}`;
  event.fits = same(sha256(hashed + Date.parse(event.timestamp)), event.hash);
  if (event.schema_version !== 1) event.uncovered = null; // a later version may have other fields
  return event;
}
function readEvent(raw) {
  const event = wholeEvent(raw);
  if (event.uncovered !== null) throw new Refused("event", `${event.uncovered} is not a field of an event`);
  return event;
}

const ZERO = Buffer.alloc(32);
const hiddenHead = (size, root, blind) => sha256(Buffer.from([7, 1]), uint64(size), root, blind);
const trieLeaf = (tag, hidden) => sha256(byte(2), tag, hidden);
const trieNode = (left, right) => sha256(byte(3), left, right);
const bitOf = (tag, depth) => (tag[depth >> 3] >> (7 - (depth & 7))) & 1;

function trieRoot(heads, depth = 0) {
  if (heads.length <= 1) return heads.length === 0 ? ZERO : trieLeaf(...heads[0]);
  const side = (bit) => trieRoot(heads.filter(([tag]) => bitOf(tag, depth) === bit), depth + 1);
  return trieNode(side(0), side(1));
}
function trieClimb(tag, end, path) {
  if (path.length > 256) throw new Refused("too long", `\`path\` may have 256 hashes, and has ${path.length}`);
  return path.reduce((hash, beside, at) =>
    bitOf(tag, path.length - 1 - at) ? trieNode(beside, hash) : trieNode(hash, beside), end);
}
function verifyAbsent(tag, root, path, foreign) {
  if (foreign) {
    const isOnWay = path.slice(0, 256).every((_, depth) => bitOf(tag, depth) === bitOf(foreign[0], depth));
    if (same(foreign[0], tag) || !isOnWay) throw new Refused("foreign", "the foreign head lies on another way");
  }
  const end = foreign ? trieLeaf(...foreign) : ZERO;
  if (!same(trieClimb(tag, end, path), root)) throw new Refused("root", "the proof leads to another root of the trie");
}

// ---- Notes, keys, checkpoints -------------------------------------------------------------------------------------

/** A vkey of type 01 (notes) or 04 (cosignatures). */
class Key {
  constructor(text) {
    const [, name, id, encoded] = /^([^+]*)\+([0-9a-f]{8})\+(.*)$/s.exec(text) ?? [];
    const bytes = encoded === undefined ? null : unbase64(encoded);
    const fail = (problem) => { throw malformed("vkey", problem); };
    if (bytes === null) fail("must be `NAME+ID+KEY`: a name, 8 hex digits in lower case, a key in base64");
    if (bytes[0] !== 1 && bytes[0] !== 4) fail("must have type 01 or 04; other types are not supported");
    if (bytes.length !== 33) fail("must have a public key of 32 bytes");
    if (!isName(name)) fail("must have a name that is not empty and has no white space and no `+`");
    [this.name, this.id, this.kind, this.key] = [name, Buffer.from(id, "hex"), bytes[0], bytes.subarray(1)];
    if (!isLargePoint(this.key)) fail("must have a public key that is a point of large order in its one spelling");
    if (!same(sha256(name, "\n", bytes).subarray(0, 4), this.id))
      fail("has an id that is not that of its name and key; copy it again");
  }
  /** The time of a cosignature, 0 for others; null if the signature does not fit. */
  verify(text, signature) {
    if (this.kind === 1) return isSigned(this.key, text, signature) ? 0n : null;
    if (signature.length !== 72) return null;
    const time = signature.readBigUInt64BE();
    const fits = time <= NUMBER_MAX && isSigned(this.key, `cosignature/v1\ntime ${time}\n${text}`, signature.subarray(8));
    return fits ? time : null;
  }
}

class Note {
  constructor(bytes) {
    if (bytes.length > 1 << 20) throw malformed("note", "must have at most 1048576 bytes");
    const note = utf8(bytes, "note");
    if (/[\u0000-\u0009\u000b-\u001f]/.test(note)) throw malformed("note", "must have no control characters but line feeds");
    const end = note.lastIndexOf("\n\n");
    const lines = note.slice(end + 2);
    if (end < 0 || !lines.endsWith("\n"))
      throw malformed("note", "must be a text that ends with a line feed, an empty line and signatures, a line each");
    this.text = note.slice(0, end + 1);
    this.signatures = lines.slice(0, -1).split("\n").map((line, at) => {
      if (at === 64) throw malformed("note", "must have at most 64 signatures");
      const [, name, encoded] = /^\u2014 ([^ ]+) ([^ ]+)$/.exec(line) ?? [];
      const signature = encoded && isName(name) ? unbase64(encoded) : null;
      if (signature === null || signature.length < 5)
        throw malformed("signature", "must be `— NAME BASE64`, with a key id of 4 bytes before the signature");
      return { name, id: signature.subarray(0, 4), bytes: signature.subarray(4) };
    });
  }
  /** The place of each key that signed, with the latest time of its cosignatures. */
  verify(keys) {
    const signed = new Map();
    for (const { name, id, bytes } of this.signatures) {
      const place = keys.findIndex((key) => key.name === name && same(key.id, id));
      if (place < 0) continue;
      const time = keys[place].verify(this.text, bytes);
      if (time === null) throw new Refused("signature", name);
      const earlier = signed.get(place) ?? 0n;
      signed.set(place, time > earlier ? time : earlier);
    }
    if (signed.size === 0) throw new Refused("unknown", "no signature is by a known key");
    return signed;
  }
}

function parseCheckpoint(text) {
  const lines = new Lines(text);
  const origin = lines.next("origin");
  if (origin === "") throw lines.wrong("origin", "must not be empty");
  const size = lines.decimal("size", lines.next("size"));
  const root = lines.hash("root", lines.next("root"));
  lines.end();
  return { origin, size, root };
}
function signNote(secret, text) {
  const [name, id, key] = secret.slice("PRIVATE+KEY+".length).split(/\+(.{8})\+/s);
  const der = Buffer.concat([PKCS8, unbase64(key).subarray(1)]);
  const signature = sign(null, Buffer.from(text), createPrivateKey({ key: der, format: "der", type: "pkcs8" }));
  return `${text}\n\u2014 ${name} ${b64(Buffer.concat([Buffer.from(id, "hex"), signature]))}\n`;
}

// ---- Entries of the store log, tiles ------------------------------------------------------------------------------

/** The kind of an entry; null for one that is not known. */
function parseEntry(bytes) {
  if (bytes.length > 65535) throw malformed("entry", "must have at most 65535 bytes");
  const lines = new Lines(utf8(bytes, "entry"));
  const kind = lines.next("kind");
  const number = (field) => lines.decimal(field, lines.next(field));
  if (kind === "sealog/genesis/v1") {
    const [origin, , interval, delay] = [lines.next("origin"), number("time"), number("interval"), number("max delay")];
    if (!isName(origin) || !interval || !delay) throw malformed("genesis", "must have an origin and seconds above 0");
    if (lines.rest !== "") {
      const words = lines.value("previous").split(" ");
      if (words.length !== 3 || !isName(words[0])) throw lines.wrong("previous", "must be `previous ORIGIN SIZE ROOT`");
      lines.decimal("size", words[1]);
      lines.hash("root", words[2]);
    }
  } else if (kind === "sealog/key/v1") {
    number("time");
    const [role, change] = [lines.next("role"), lines.next("change")];
    if (!["log", "service"].includes(role) || !["add", "retire"].includes(change))
      throw lines.wrong("role", "must be `log` or `service`, and the change `add` or `retire`");
    new Key(lines.next("vkey"));
  } else if (kind === "sealog/heads/v1") {
    number("time");
    lines.hash("root", lines.next("root"));
  } else if (kind === "sealog/restore/v1") {
    number("time");
    number("index");
    const reason = lines.next("reason");
    if (reason.trim() === "" || /[\u0000-\u001f\u007f-\u009f]/.test(reason)) throw lines.wrong("reason", "must be printable");
  } else return null;
  lines.end();
  return kind;
}
const headsText = (time, root) => `sealog/heads/v1\n${time}\n${b64(root)}\n`;

function parseTile(path) {
  const form = /^tile\/(entries|0|[1-9][0-9]?)\/((?:x[0-9]{3}\/)*[0-9]{3})(?:\.p\/([1-9][0-9]{0,2}))?$/;
  const [, level, groups, width] = form.exec(path) ?? [];
  if (!groups) throw malformed("path", "must be tile/L/N or tile/L/N.p/W");
  const index = BigInt(groups.replace(/[x/]/g, ""));
  if ((level !== "entries" && Number(level) > 63) || groups.startsWith("x000") || index > NUMBER_MAX || Number(width) > 255)
    throw malformed("path", "must have L up to 63, N below 2^63 without a needless group, and W up to 255");
  return { level, index, width: Number(width ?? 256) };
}
function tilePath({ level, index, width }) {
  const digits = String(index);
  const groups = digits.padStart(Math.ceil(digits.length / 3) * 3, "0").match(/.../g);
  const last = groups.pop();
  return `tile/${level}/${groups.map((group) => `x${group}/`).join("")}${last}${width < 256 ? `.p/${width}` : ""}`;
}
function tilesOf(size) {
  return [0, 1, 2, 3].flatMap((level) => {
    const count = Math.floor(size / 256 ** level);
    const tile = (_, index) => tilePath({ level, index, width: Math.min(256, count - 256 * index) });
    return Array.from({ length: Math.ceil(count / 256) }, tile);
  });
}
function parseBundle(bytes, width) {
  const entries = [];
  for (let count = 0; count < width; count++) {
    const end = bytes.length < 2 ? Infinity : 2 + bytes.readUInt16BE();
    if (bytes.length < end) throw malformed("bundle", "must not end inside an entry");
    entries.push(bytes.subarray(2, end));
    bytes = bytes.subarray(end);
  }
  if (bytes.length > 0) throw malformed("bundle", "must have no more entries than its width");
  return entries;
}

// ---- Policies -----------------------------------------------------------------------------------------------------

/** Logs, witnesses and the quorum. Names are octets: each byte is one character here. */
class Policy {
  logs = [];
  witnesses = new Map();
  groups = new Map();
  quorum = undefined;

  line = 0;
  taken = new Set();

  constructor(bytes) {
    if (bytes.length > 1 << 18) throw malformed("policy", "must have at most 262144 bytes");
    const lines = Buffer.from(bytes).toString("latin1").split("\n");
    const rest = lines.pop();
    for (const line of lines) {
      this.line++;
      this.read(line);
    }
    this.line++;
    if (rest !== "") throw this.wrong("policy", "must end with a line feed");
    if (this.quorum === undefined) throw malformed("quorum", "must be there once; write `quorum none` for no witnesses");
  }
  wrong(field, problem) {
    return malformed(field, problem, this.line);
  }
  read(line) {
    if (/[\u0000-\u0008\u000b-\u001f\u007f]/.test(line))
      throw this.wrong("policy", "must have no control characters but tab and line feed");
    const words = line.split(/[ \t]+/).filter((word) => word !== "");
    if (words.length === 0 || words[0].startsWith("#")) return;
    const [kind, name, needed, ...names] = words;
    if (kind === "log") {
      if (![2, 3].includes(words.length)) throw this.wrong("log", "must be `log VKEY [URL]`");
      this.logs.push(this.key(name, 1, "log", this.logs));
      this.limit("log", this.logs.length);
    } else if (kind === "witness") {
      if (![3, 4].includes(words.length)) throw this.wrong("witness", "must be `witness NAME VKEY [URL]`");
      this.witnesses.set(name, this.key(needed, 4, "witness", [...this.witnesses.values()], name));
      this.limit("witness", this.witnesses.size);
    } else if (kind === "group") {
      if (words.length < 3) throw this.wrong("group", "must be `group NAME K|any|all MEMBER…`");
      this.group(name, needed, names);
    } else if (kind === "quorum") {
      if (words.length !== 2) throw this.wrong("quorum", "must be `quorum NAME` or `quorum none`");
      if (this.quorum !== undefined) throw this.wrong("quorum", "must be there once; remove this line");
      if (name !== "none" && !this.has(name)) throw this.wrong("quorum", "must name a witness or a group of a line above");
      this.quorum = name;
    } else throw this.wrong("policy", "must have lines `log`, `witness`, `group`, `quorum` or `#` alone");
  }
  group(name, needed, names) {
    this.fresh("group", name);
    for (const member of names) {
      if (!this.has(member)) throw this.wrong("group", "has a member that no line above defines");
      if (this.taken.has(member)) throw this.wrong("group", "has a member that is in a group already");
      this.taken.add(member);
    }
    const number = /^[1-9][0-9]{0,2}$/.test(needed) ? Number(needed) : 0;
    const count = needed === "all" ? names.length : needed === "any" ? 1 : number;
    if (count < 1 || count > names.length)
      throw this.wrong("group", "must need `any`, `all` or a number from 1 to that of its members");
    this.groups.set(name, { count, names });
    this.limit("group", this.groups.size);
  }
  limit(field, count) {
    if (count > 32) throw this.wrong(field, "must be there 32 times at most");
  }
  key(text, kind, field, others, name = null) {
    let key;
    try {
      key = new Key(utf8(Buffer.from(text, "latin1"), "vkey"));
    } catch (error) {
      throw error instanceof Refused ? this.wrong("vkey", error.problem) : error; // its problem, on this line
    }
    if (key.kind !== kind) throw this.wrong("vkey", `of a ${field} must have type ${kind === 1 ? "01" : "04"}`);
    if (name !== null) this.fresh(field, name);
    if (others.some((other) => same(other.key, key.key) || (other.name === key.name && same(other.id, key.id))))
      throw this.wrong(field, `has the key of an earlier ${field}; remove one of the lines`);
    return key;
  }
  has(name) {
    return this.witnesses.has(name) || this.groups.has(name);
  }
  fresh(field, name) {
    if (name === "none" || this.has(name)) throw this.wrong(field, "must have a name that is new and not `none`");
  }
  verify(note) {
    const { origin, size, root } = parseCheckpoint(note.text);
    if (!this.logs.some((log) => log.name === origin)) throw new Refused("origin", origin);
    let signed;
    try {
      signed = note.verify([...this.logs, ...this.witnesses.values()]);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      throw new Refused(error.reason === "signature" ? "signature" : "unsigned", error.message);
    }
    if (!this.logs.some((log, place) => log.name === origin && signed.has(place))) throw new Refused("unsigned", origin);
    const cosigned = [...this.witnesses.keys()].filter((_, place) => signed.has(this.logs.length + place));
    const hasWitnessed = (name) => {
      if (this.witnesses.has(name)) return cosigned.includes(name);
      const { count, names } = this.groups.get(name);
      return names.filter(hasWitnessed).length >= count;
    };
    if (this.quorum !== "none" && !hasWitnessed(this.quorum))
      throw new Refused("quorum", `${cosigned.length} of ${this.witnesses.size} witnesses`);
    const times = [...signed].filter(([place]) => place >= this.logs.length).map(([, time]) => time);
    return { size, root, cosigned: cosigned.length, latest: greatest(times) };
  }
}

// ---- Proofs of events and heads -----------------------------------------------------------------------------------

/** Runs a step whose every failure has one reason. */
function asRoot(step) {
  try {
    return step();
  } catch (error) {
    throw error instanceof Refused ? new Refused("root", error.message) : error;
  }
}

/** A c2sp.org/tlog-proof@v1 file. */
class Proof {
  constructor(bytes) {
    if (bytes.length > (1 << 20) + (1 << 17)) throw malformed("proof", "must have at most 1179648 bytes");
    const lines = new Lines(utf8(bytes, "proof"));
    if (lines.next("header") !== "c2sp.org/tlog-proof@v1") throw lines.wrong("header", "must be `c2sp.org/tlog-proof@v1`");
    this.extra = null;
    if (lines.rest.startsWith("extra ")) {
      this.extra = unbase64(lines.value("extra"));
      if (this.extra === null || this.extra.length < 1 || this.extra.length > 65536)
        throw lines.wrong("extra", "must be 1 to 65536 bytes in base64");
    }
    this.index = lines.decimal("index", lines.value("index"));
    this.path = lines.hashes(HASHES_MAX);
    lines.empty();
    this.note = new Note(Buffer.from(lines.rest));
  }
  verify(entry, policy) {
    const { size, root } = policy.verify(this.note);
    asRoot(() => verifyInclusion(leafHash(entry), this.index, size, root, this.path));
  }
}

function readKind(extra, kind) {
  const lines = new Lines(utf8(extra, "extra"));
  if (lines.next("kind") !== kind) throw lines.wrong("kind", `must be \`${kind}\``);
  return lines;
}

/** The way from a chain's head to a heads entry, at the end of the extra data. */
class HeadPath {
  constructor(lines) {
    lines.empty();
    this.time = lines.decimal("time", lines.value("time"));
    this.blind = lines.hex("blind", lines.value("blind"), 16);
    this.path = lines.hashes(256);
    lines.end();
  }
  entry(tag, size, root) {
    return headsText(this.time, trieClimb(tag, trieLeaf(tag, hiddenHead(size, root, this.blind)), this.path));
  }
}

class HeadProof {
  constructor(extra) {
    const lines = readKind(extra, "sealog/head-proof/v1");
    this.tag = lines.hex("tag", lines.value("tag"), 32);
    this.size = lines.decimal("size", lines.value("size"));
    this.root = lines.hash("root", lines.value("root"));
    this.head = new HeadPath(lines);
  }
  /** The text of the store log's entry that has the head; tag, root, and the root of the tree that ends with it. */
  lead() {
    return { entry: this.head.entry(this.tag, this.size, this.root), tag: this.tag, root: this.root, upTo: this.root };
  }
}

class EventProof {
  constructor(extra) {
    const lines = readKind(extra, "sealog/event-proof/v1");
    this.mode = lines.value("mode");
    if (this.mode !== "live" && this.mode !== "test") throw lines.wrong("mode", "must be `live` or `test`");
    this.seq = lines.decimal("seq", lines.value("seq"));
    const salt = lines.value("salt");
    this.isErased = salt === "-";
    this.secret = this.isErased ? lines.hex("private", lines.value("private"), 32) : lines.hex("salt", salt, 16);
    this.size = lines.decimal("size", lines.value("size"));
    this.path = lines.hashes(HASHES_MAX);
    this.head = new HeadPath(lines);
  }
  /** The same for an event, as wholeEvent gives it. */
  lead(event) {
    const { seq, size, path, isErased, secret } = this;
    if (seq !== event.chain_seq) throw new Refused("seq", `the proof is about event #${seq}`);
    if (event.schema_version !== 1) throw new Refused("schema", `schema_version ${event.schema_version} is not known`);
    if (!event.fits) throw new Refused("hash", "the event was changed: its content does not match its hash");
    if (isErased && PRIVATE.some((name) => event[name] !== null))
      throw new Refused("annotations", "the event shows private fields, but its proof has no salt for them");
    const leaf = leafHash(leafOf(event, isErased ? secret : commitment(secret, event)));
    const index = seq === 0n ? NUMBER_MAX : seq - 1n;
    const root = asRoot(() => rootFromPath(leaf, index, size, path));
    const tag = tagOf(event, this.mode);
    return { entry: this.head.entry(tag, size, root), tag, root, upTo: rootUpTo(leaf, index, size, path) };
  }
}

// ---- The verdict --------------------------------------------------------------------------------------------------
// What events, proofs and checkpoints show together. Each step looks for one kind of attack; the report names those
// that were found, and in words what was not shown. sealog-verify and sealog_trust.py say the same in the same words.

const TIME_SLACK_MS = 600000n;
const YEARS_END_MS = 253402300800000n;
const ATTACKS = {
  malformed: ["an event that cannot be read", "a field that is checked is missing, duplicate or malformed"],
  chain: ["events of two chains", "the event belongs to another tenant or project than the previous events"],
  gap: ["events removed, added or moved", "one or more events before it are missing, or the order was changed"],
  link: ["an event removed, added or replaced",
    "its prev_hash is not the hash of the previous event: an event was removed, inserted or replaced here"],
  hash: ["an event changed", "its hash does not match its content: the event was changed after it was sealed"],
  order: ["an event that Sealog did not seal", "its log_id and timestamp do not follow those of the previous event"],
  head: ["history rewritten", "its hash differs from the one recorded for this position: the chain was rewritten"],
  tail: ["the tail was cut off", "the chain ends before a position that it is known to have reached: its end was cut off"],
};

/** Text from the input without what could steer a terminal. */
function printable(text) {
  const characters = [...text];
  const safe = (char) => (char >= " " && char <= "~" && char.length === 1 ? char : `\\u{${char.codePointAt(0).toString(16)}}`);
  return characters.slice(0, 200).map(safe).join("") + (characters.length > 200 ? "..." : "");
}
const shownTime = (ms) => (ms < YEARS_END_MS ? new Date(Number(ms)).toISOString() : `${ms} ms`);
const amount = (count, what) => `${count} ${BigInt(count) === 1n ? what : what === "entry" ? "entries" : `${what}s`}`;
const span = (first, last) => (first === last ? `Event #${first}` : `Events #${first} to #${last}`);
const smallest = (values) => values.reduce((best, value) => (best === null || value < best ? value : best), null);
const greatest = (values) => values.reduce((best, value) => (best === null || value > best ? value : best), null);
const bySize = (size) => (a, b) => (size(a) < size(b) ? -1 : Number(size(a) > size(b)));

/** Runs a parser of a file, whose name its refusals then have. */
function named(name, parse) {
  try {
    return parse();
  } catch (error) {
    throw error instanceof Refused ? new Error(`${name}: ${error.message}`) : error;
  }
}

function policyOfKeys(vkeys) {
  for (const vkey of vkeys) new Key(vkey);
  return new Policy(Buffer.from(`${vkeys.map((vkey) => `log ${vkey}\n`).join("")}quorum none\n`));
}

/** A checkpoint; `claim` is null where it is not that of a proof. */
class Kept {
  constructor(name, note, file = null) {
    Object.assign(this, { name: printable(name), note, file, refused: false, claim: null, seq: null });
    Object.assign(this, parseCheckpoint(note.text));
    if (!file) return;
    if (file.extra === null) throw malformed("extra", "must be there: it says of what");
    const isHead = file.extra.toString("latin1").startsWith("sealog/head-proof/");
    this.claim = isHead ? new HeadProof(file.extra) : new EventProof(file.extra);
    this.seq = isHead ? null : this.claim.seq;
  }
}

class Consistency {
  constructor(name, bytes) {
    const form = () => malformed("consistency", "must be a JSON object with `from`, `to` and `path`, each once");
    if (bytes.length > 1 << 16) throw malformed("consistency", "must have at most 65536 bytes");
    const text = utf8(bytes, "consistency");
    let items;
    try {
      items = canonical(text)[0] === "{" ? members(text) : null;
    } catch {
      throw form();
    }
    if (items === null) throw form();
    const [from, to, path] = ["from", "to", "path"].map((name) => {
      const found = items.filter(({ key }) => key === `"${name}"`);
      const isNumber = name === "path" || /^(?:0|[1-9][0-9]{0,18})$/.test(found[0]?.text ?? "");
      if (found.length !== 1 || !isNumber || (name !== "path" && BigInt(found[0].text) > NUMBER_MAX)) throw form();
      return found[0].text;
    });
    if (!path.startsWith("[")) throw form();
    [this.name, this.from, this.to, this.path] = [printable(name), BigInt(from), BigInt(to), []];
    for (const item of path === "[]" ? [] : path.slice(1, -1).split(",")) {
      if (this.path.length === HASHES_MAX) throw malformed("path", "has more hashes than a tree of any size needs");
      if (item.length < 2 || item[0] !== '"' || item.at(-1) !== '"') throw form();
      this.path.push(unhash(item.slice(1, -1), "path"));
    }
  }
}

/** Holds events against checkpoints and proofs. `outcome` is what verify() says of the events, null without any. */
class Trial {
  faults = [];
  links = [];

  constructor(policy, kept, proofs, consistency, outcome, events, expects) {
    Object.assign(this, { policy, kept, proofs, consistency, outcome });
    this.expects = expects.map((head) => ({ head, seq: BigInt(head.split(":")[0]) })).sort(bySize(({ seq }) => seq));
    const last = outcome?.about.last ?? null;
    this.seqs = last === null ? null : [BigInt(outcome.first_seq), last];
    this.isSound = outcome?.valid ?? false;
    // The first event of each chain_seq that is asked for, and the newest of all.
    const sizes = proofs.flatMap(({ claim }) => [claim.size, claim.size + 1n]);
    const wanted = new Set([...sizes, ...proofs.map(({ seq }) => seq)]);
    this.events = new Map();
    this.latest = null;
    for (const event of events) {
      if (event.malformed) continue;
      if (wanted.has(event.seq) && !this.events.has(event.seq)) this.events.set(event.seq, event);
      if (this.latest === null || this.latest.seq < event.seq) this.latest = event;
    }
    this.chain = outcome?.about.ids ?? null;
  }

  judge(steps = STEPS) {
    for (const source of [...this.kept, ...this.proofs]) {
      source.accepted = source.refusal = null;
      try {
        source.accepted = this.policy && this.policy.verify(source.note);
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        source.refusal = error;
      }
    }
    for (const proof of this.proofs) proof.found = this.find(proof);
    for (const [, step] of steps) step(this);
    const { outcome, faults } = this;
    const valid = faults.length === 0;
    return {
      valid, signed: this.policy !== null,
      ...(outcome && { checked: outcome.checked, first_seq: outcome.first_seq, last_seq: outcome.last_seq }),
      faults, shown: valid ? this.shown() : [], not_shown: this.notShown(),
      head: (valid && outcome?.about.head) || null,
    };
  }

  /** What a proof leads to: {word: "holds", …}, or a word for what is wrong and its details. */
  find(proof) {
    let event;
    if (proof.seq !== null) {
      const given = this.events.get(proof.seq);
      if (!given || !this.seqs || proof.seq < this.seqs[0] || proof.seq > this.seqs[1]) return { word: "not given" };
      event = wholeEvent(given.raw);
      if (event.uncovered !== null) return { word: "field", name: event.uncovered };
      if (event.schema_version !== 1) return { word: "schema", version: event.schema_version };
    }
    let leaf = null;
    try {
      const { entry, tag, root, upTo } = proof.claim.lead(event);
      leaf = leafHash(entry);
      verifyInclusion(leaf, proof.file.index, proof.size, proof.root, proof.file.path);
      const storeUpTo = rootUpTo(leaf, proof.file.index, proof.size, proof.file.path);
      return { word: "holds", tag: tag.toString("hex"), root, upTo, storeUpTo };
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (error.reason === "annotations") return { word: "erased" };
      return error.reason === "root" && leaf ? { word: "not in log" } : { word: "path", error: error.message };
    }
  }

  fault(reason, attack, at, message) {
    this.faults.push({ reason, attack, ...(at && { broken_at: at[1], broken_from: at[0] }), message });
  }

  // What is not refused.
  sources() { return [...this.kept, ...this.proofs].filter(({ refused }) => !refused); }
  keptGood() { return this.kept.filter(({ refused }) => !refused); }
  good() { return this.proofs.filter(({ refused }) => !refused); }
  held() { return this.good().filter(({ found }) => found.word === "holds"); }
  ofEvents() { return this.good().filter(({ seq }) => seq !== null).sort(bySize(({ seq }) => seq)); }
  isOwn(tag) {
    return this.chain !== null && ["live", "test"].some((mode) => tagOf(this.chain, mode).toString("hex") === tag);
  }
  /** Every root of a log that a checkpoint or a proof shows. */
  roots() {
    return this.sources().flatMap((source) => {
      const own = { tree: source.origin, size: source.size, root: source.root, name: source.name };
      if (source.found?.word !== "holds") return [own];
      return [own, { ...own, size: source.file.index + 1n, root: source.found.storeUpTo }];
    });
  }

  // The steps.
  signatures() {
    for (const source of [...this.kept, ...this.proofs]) {
      const [reason, name, origin] = [source.refusal?.reason, source.name, printable(source.origin)];
      if (!["origin", "signature", "unsigned"].includes(reason)) continue;
      source.refused = true;
      if (reason === "origin")
        this.fault("origin", "a checkpoint of an unknown log", null, `${name} is of the log ${origin}, and no key of that log was given.`);
      else if (reason === "signature")
        this.fault("signature", "a forged or damaged signature", null,
          `The signature of ${printable(source.refusal.message)} in ${name} does not fit the checkpoint.`);
      else
        this.fault("signature", "a checkpoint that the log did not sign", null,
          `No key that was given for the log ${origin} signed ${name}.`);
    }
  }
  quorum() {
    for (const source of [...this.kept, ...this.proofs]) {
      if (source.refusal?.reason !== "quorum") continue;
      source.refused = true;
      this.fault("quorum", "too few witnesses", null, `${source.refusal.message} signed ${source.name}; the policy asks for more.`);
    }
  }
  fork() {
    const [one, other] = differing(this.roots());
    if (one) this.fault("fork", "two histories", null,
      `${one.name} and ${other.name} have different roots for the first ${amount(one.size, "entry")} of ${printable(one.tree)}. Keep both files: they are the evidence.`);
  }
  /** The roots of one log between which a consistency proof leads. */
  pairsOf({ from, to }) {
    const roots = this.roots();
    const of = (size) => roots.filter((root) => root.size === size);
    return of(from).flatMap((old) => of(to).filter(({ tree }) => tree === old.tree).map((next) => [old, next]));
  }
  checkConsistency() {
    for (const proof of this.consistency) {
      const pairs = this.pairsOf(proof);
      const holds = ([old, next]) =>
        resultOf(() => verifyConsistency(proof.from, old.root, proof.to, next.root, proof.path)) === "ok";
      const found = pairs.find(holds);
      if (found) this.links.push({ origin: found[0].tree, from: proof.from, to: proof.to });
      else if (pairs.length > 0) this.fault("fork", "two histories", null,
        `${proof.name} does not show that the first ${amount(proof.from, "entry")} begin the ${proof.to}. If it was made for these sizes, the log has two histories.`);
    }
  }
  rollback() {
    const newest = newestOf(this.good());
    const kept = newest && largestOf(this.keptGood().filter(({ origin }) => origin === newest.origin));
    if (kept && kept.size > newest.size) this.fault("rollback", "an older state was restored", null,
      `${kept.name} has ${amount(kept.size, "entry")} of ${printable(kept.origin)}, and the newest proof, ${newest.name}, only ${newest.size}. If the proof was made before the checkpoint, ask for it again.`);
  }
  chainFork() {
    const roots = this.held().flatMap(({ claim, seq, name, found }) => {
      const own = { tree: found.tag, size: claim.size, root: found.root, name };
      return seq === null ? [own] : [own, { ...own, size: seq, root: found.upTo }];
    });
    const [one, other] = differing(roots);
    if (one) this.fault("fork", "two histories of a chain", null,
      `${one.name} and ${other.name} have different roots for the first ${amount(one.size, "event")} of one chain. Keep both files: they are the evidence.`);
  }
  chainRollback() {
    const held = this.held().sort(bySize(({ file }) => file.index));
    for (const one of held) {
      const other = held.find((other) => one.found.tag === other.found.tag && one.origin === other.origin &&
        one.file.index < other.file.index && one.claim.size > other.claim.size);
      if (other) return this.fault("rollback", "the tail of a chain was cut off", null,
        `The chain had ${amount(one.claim.size, "event")} in entry ${one.file.index} (${one.name}), and has ${other.claim.size} in the later entry ${other.file.index} (${other.name}).`);
    }
  }
  heads() {
    for (const { seq, name, claim, found } of this.good()) {
      if (seq !== null || !["path", "not in log"].includes(found.word)) continue;
      const error = found.error ?? "its entry is not in the checkpoint's tree";
      this.fault("root", "a changed proof", null,
        `${name} does not lead from a head of ${amount(claim.size, "event")} to its checkpoint: ${error}.`);
    }
  }
  checkChain() {
    if (!this.outcome || this.outcome.valid) return;
    const { broken_at: at, reason } = this.outcome;
    const [attack, explained] = ATTACKS[reason];
    this.fault(reason, attack, [at, at], `Event #${at}: ${explained}.`);
  }
  fields() {
    for (const { seq, found } of this.ofEvents())
      if (found.word === "field") this.fault("annotations", "a field that nothing covers", [seq, seq],
        `The field ${printable(found.name)} of event #${seq} is not one that Sealog writes: neither its hash nor its proof covers it.`);
  }
  schema() {
    for (const { seq, found } of this.ofEvents())
      if (found.word === "schema") this.fault("schema", "an unknown schema", [seq, seq],
        `Event #${seq} has the schema_version ${found.version}, which this program does not know. Use a newer one.`);
  }
  erasure() {
    for (const { seq, name, found } of this.ofEvents())
      if (found.word === "erased") this.fault("annotations", "a change under a claim of erasure", [seq, seq],
        `Event #${seq} shows private fields, and ${name} has no salt to check them with.`);
  }
  leaves() {
    if (!this.seqs) return;
    for (const proof of this.ofEvents()) {
      const { seq, name, found } = proof;
      // A proof that holds in another history says nothing about this one.
      const passed = this.ofEvents().filter((one) => one.found.word === "holds" && this.isOneHistory(proof, one)).map((one) => one.seq);
      const later = passed.find((one) => one > seq);
      const before = passed.findLast((one) => one < seq);
      const first = before === undefined ? this.seqs[0] : before + 1n;
      if (found.word === "path") {
        this.fault("root", "a changed proof", [seq, seq], `${name} does not lead from event #${seq} to its checkpoint: ${found.error}.`);
      } else if (found.word === "not in log" && later !== undefined) {
        this.fault("annotations", "a field outside the hash changed", [seq, seq],
          `Event #${seq} is not the one in the log (${name}), although #${later} behind it is. So its hash is right, and a field outside the hash was changed, or the proof.`);
      } else if (found.word === "not in log") {
        const place = first === seq ? `event #${seq}` : `one of #${first} to #${seq}`;
        this.fault("leaf", "history rewritten", [first, seq],
          `Event #${seq} is not the one in the log (${name}). The first wrong event is ${place}, unless the proof was changed: ask for it again.`);
      }
    }
  }
  owner() {
    if (this.chain === null) return;
    for (const { name, found } of this.held())
      if (!this.isOwn(found.tag)) this.fault("chain", "a proof of another chain", null, `${name} is about another chain than the events given.`);
  }
  tail() {
    if (!this.seqs || !this.isSound) return;
    const last = this.seqs[1];
    let [furthest, what] = [last, null];
    for (const { seq, name, claim, file, found } of this.good()) {
      let reach, said;
      if (seq === null && found.word === "holds" && this.isOwn(found.tag))
        [reach, said] = [claim.size, `The chain has ${amount(claim.size, "event")} in entry ${file.index} of the log (${name})`];
      else if (found.word === "not given") [reach, said] = [seq, `${name} is about event #${seq}`];
      else continue;
      if (reach > furthest) [furthest, what] = [reach, said];
    }
    if (what) this.fault("tail", "the tail was cut off", [last + 1n, last + 1n],
      `${what}, and the events given end at #${last}. If they were exported before, export them again.`);
  }
  time() {
    if (!this.seqs || !this.isSound) return;
    for (const { name, claim, file, found } of this.held()) {
      if (!this.isOwn(found.tag)) continue;
      const made = claim.head.time;
      const say = (event, rest) => this.fault("time", "a time that cannot be right", [event.seq, event.seq],
        `Event #${event.seq} says ${shownTime(event.ms)}, and entry ${file.index} of the log, made at ${shownTime(made)}, ${rest} (${name}).`);
      const newest = claim.size >= this.seqs[1] ? this.latest : this.events.get(claim.size);
      const next = this.events.get(claim.size + 1n);
      if (newest && newest.ms > made + TIME_SLACK_MS) say(newest, "has it already");
      if (next && next.ms + TIME_SLACK_MS < made) say(next, "does not have it yet");
    }
  }

  // In words.
  /** The last event that a proof of an event reaches. Its hash covers those before it. */
  reached() { return greatest(this.held().filter(({ seq }) => seq !== null).map(({ seq }) => seq)); }
  /** Each kept checkpoint beside the newest of its log. */
  pairs() {
    return this.keptGood()
      .map((kept) => [kept, newestOf(this.sources().filter(({ origin }) => origin === kept.origin))])
      .filter(([kept, newest]) => kept !== newest);
  }
  /** Whether it was shown that the older tree is the beginning of the newer one. */
  begins(old, next) {
    const shown = this.held().map(({ origin, file, size }) => ({ origin, from: file.index + 1n, to: size }));
    const links = [...this.links, ...shown].sort(bySize(({ from }) => from)).sort(bySize(({ to }) => to)).reverse();
    const reached = new Set([next.size]);
    for (const { origin, from, to } of links) if (origin === next.origin && reached.has(to)) reached.add(from);
    return (old.size === 0n && same(old.root, EMPTY_ROOT)) || reached.has(old.size);
  }
  isOneHistory(one, other) {
    const [old, next] = one.size <= other.size ? [one, other] : [other, one];
    return old.origin === next.origin && (old.size < next.size || same(old.root, next.root)) && this.begins(old, next);
  }
  shown() {
    const lines = [];
    if (this.seqs) {
      lines.push(`${span(...this.seqs)}: every hash was computed again, and every event names the hash before it.`);
      if (this.expects.some(({ seq }) => this.seqs[0] <= seq + 1n && seq <= this.seqs[1]))
        lines.push("The events agree with each head that was noted (--expect).");
    }
    for (const { seq, name, origin, claim, file } of this.held()) {
      const place = `in entry ${file.index} of ${printable(origin)}, made at ${shownTime(claim.head.time)} (${name}).`;
      if (seq === null) lines.push(`The chain has ${amount(claim.size, "event")} ${place}`);
      else lines.push(`Event #${seq} is, ${claim.isErased ? "without its private fields" : "with all its fields"}, ${place}`);
    }
    const reached = this.reached();
    if (this.seqs && reached !== null && this.seqs[0] < reached)
      lines.push(`So the hashed fields of events #${this.seqs[0]} to #${reached} are those that the log has.`);
    for (const { name, size, origin, accepted } of this.sources()) {
      if (!accepted) continue;
      const said = `${name}: ${amount(size, "entry")} of ${printable(origin)}, signed by the log`;
      if (accepted.latest === null) lines.push(`${said}.`);
      else {
        const latest = shownTime(smallest([accepted.latest * 1000n, 2n ** 64n - 1n]));
        lines.push(`${said} and by ${accepted.cosigned} of ${this.policy.witnesses.size} witnesses, the latest at ${latest}.`);
      }
    }
    for (const [kept, newest] of this.pairs())
      if (this.begins(kept, newest))
        lines.push(`${kept.name} (${amount(kept.size, "entry")}) is the beginning of ${newest.name} (${amount(newest.size, "entry")}).`);
    return lines;
  }
  notShown() {
    const lines = [];
    if (this.policy === null) lines.push("Who made these files: no key was given (--key, --policy), so anyone could have made them.");
    else if (this.policy.quorum === "none")
      lines.push("That there is no second history: no witness is asked for, so the operator could have signed another one.");
    if (this.proofs.length === 0 && this.outcome) lines.push("That the events are in the log: no proof was given (--proof).");
    if (this.kept.length === 0)
      lines.push("That the log was not rewritten or rolled back: no checkpoint that was kept earlier was given (--checkpoint).");
    for (const [kept, newest] of this.pairs())
      if (!this.begins(kept, newest))
        lines.push(`That ${kept.name} and ${newest.name} are of one history: give the answer to /tlog/v1/store/consistency?from=${kept.size}&to=${newest.size} (--consistency).`);
    const origins = this.good().map(({ origin }) => origin);
    for (const { name, origin } of this.keptGood())
      if (origins.length > 0 && !origins.includes(origin)) lines.push(`Anything by ${name}: it is of another log than the proofs.`);
    for (const proof of this.consistency)
      if (this.pairsOf(proof).length === 0)
        lines.push(`Anything by ${proof.name}: no two checkpoints of one log have the sizes ${proof.from} and ${proof.to}.`);
    if (this.seqs) this.putEventsNotShown(lines);
    const made = greatest(this.held().map(({ claim }) => claim.head.time));
    if (made !== null) lines.push(`That the log has not grown since: the newest entry given was made at ${shownTime(made)}.`);
    return lines;
  }
  putEventsNotShown(lines) {
    const [first, last] = this.seqs;
    if (first > 1n) lines.push(`${span(1n, first - 1n)}: not given.`);
    for (const { head, seq } of this.expects) if (seq + 1n < first) lines.push(`The head ${head}: it lies before the events given.`);
    for (const { name, seq, found } of this.good())
      if (found.word === "not given" && seq < first) lines.push(`Anything by ${name}: it is about event #${seq}, which was not given.`);
    const held = this.held().filter(({ seq }) => seq !== null);
    const reached = greatest([this.reached() ?? 0n, first - 1n]);
    if (reached < last && this.proofs.length > 0)
      lines.push(`${span(reached + 1n, last)}: no proof of an event reaches this far, so only the hashes were checked.`);
    const size = greatest([0n, ...held.map(({ claim }) => claim.size)]);
    if (size > last) lines.push(`${span(last + 1n, size)}: in the log, and not given.`);
    const bare = last - first + 1n - BigInt(new Set(held.map(({ seq }) => seq)).size);
    if (bare > 0n) lines.push(`Fields outside the hash (${[...PUBLIC, ...PRIVATE].join(", ")}) of the events without a proof of their own (${bare}).`);
    for (const { seq, claim, found } of this.ofEvents())
      if (found.word === "holds" && claim.isErased) lines.push(`The private fields of event #${seq}: erased or withheld.`);
  }
}

export const STEPS = [
  ["signatures", (trial) => trial.signatures()],
  ["quorum", (trial) => trial.quorum()],
  ["fork", (trial) => trial.fork()],
  ["consistency", (trial) => trial.checkConsistency()],
  ["rollback", (trial) => trial.rollback()],
  ["chain fork", (trial) => trial.chainFork()],
  ["chain rollback", (trial) => trial.chainRollback()],
  ["heads", (trial) => trial.heads()],
  ["chain", (trial) => trial.checkChain()],
  ["fields", (trial) => trial.fields()],
  ["schema", (trial) => trial.schema()],
  ["erasure", (trial) => trial.erasure()],
  ["leaves", (trial) => trial.leaves()],
  ["owner", (trial) => trial.owner()],
  ["tail", (trial) => trial.tail()],
  ["time", (trial) => trial.time()],
];

/** The checkpoint with the most entries; the first of several. */
const largestOf = (sources) => sources.reduce((best, next) => (best === null || next.size > best.size ? next : best), null);
/** The same, but the last of several: proofs come behind kept checkpoints, and are what the server says today. */
const newestOf = (sources) => largestOf([...sources].reverse());

/** The first two roots of one tree and size that differ, by size, then in the order given. */
function differing(roots) {
  const sorted = [...roots].sort(bySize(({ size }) => size));
  for (const [at, one] of sorted.entries()) {
    for (let next = at + 1; next < sorted.length && sorted[next].size === one.size; next++)
      if (sorted[next].tree === one.tree && !same(sorted[next].root, one.root)) return [one, sorted[next]];
  }
  return [];
}

/**
 * The verdict on raw events and files. `values` has the options of the command line; `read(name, most)` gives the bytes
 * of a file; `events` is null if none were given.
 */
export function judge(values, read, events, steps = STEPS) {
  const each = (names, most, make) => (names ?? []).map((name) => named(printable(name), () => make(name, read(name, most))));
  let policy = null;
  if (values.policy) [policy] = each([values.policy], 1 << 18, (_, bytes) => new Policy(bytes));
  else if (values.key) policy = named("--key", () => policyOfKeys(values.key));
  const kept = each(values.checkpoint, 1 << 20, (name, bytes) => new Kept(name, new Note(bytes)));
  const proofs = each(values.proof, (1 << 20) + (1 << 17), (name, bytes) => {
    const file = new Proof(bytes);
    return new Kept(name, file.note, file);
  });
  const consistency = each(values.consistency, 1 << 16, (name, bytes) => new Consistency(name, bytes));
  const needed = proofs.find(({ seq }) => seq !== null && events === null);
  if (needed) throw new Error(`${needed.name}: give event #${needed.seq}, too: the proof is about it`);
  const expects = values.expect ?? [];
  const outcome = events && verifyEvents(events, expects);
  const checked = (events ?? []).map((raw) => ({ ...readChecked(raw), raw }));
  for (const event of checked) if (!event.malformed) event.ms = BigInt(Date.parse(event.timestamp));
  return new Trial(policy, kept, proofs, consistency, outcome, checked, expects).judge(steps);
}

export function trustInWords({ valid, signed, faults, shown, not_shown, head }) {
  const lines = faults.flatMap(({ reason, attack, broken_from: from, broken_at: to, message }) => {
    const at = to === undefined ? "" : BigInt(from) === BigInt(to) ? ` at chain_seq ${to}` : ` from chain_seq ${from} to ${to}`;
    return [`BROKEN${at} (${reason}): ${attack}`, `  ${message}`];
  });
  if (valid) lines.push(signed ? "VALID" : "VALID, BUT NO SIGNATURE WAS CHECKED");
  for (const [title, list] of [["Shown:", shown], ["Not shown:", not_shown]])
    if (list.length > 0) lines.push(title, ...list.map((line) => `  ${line}`));
  if (head) lines.push(`Head, to be noted for the next time: ${head}`);
  return lines.join("\n");
}

/** JSON.stringify for values with BigInts, which are written as numbers. */
export function trustInJson(value) {
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return `[${value.map(trustInJson).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}:${trustInJson(item)}`).join(",")}}`;
}

// ---- The test vectors ---------------------------------------------------------------------------------------------

function resultOf(call) {
  try {
    call();
    return "ok";
  } catch (error) {
    if (error instanceof Refused) return error.reason === "unsigned" ? "signature" : error.reason;
    throw error;
  }
}
function expect(found, wanted) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (a !== b) throw new Error(`${a}, but expected ${b}`);
}
const hash = (text) => Buffer.from(text, "base64");
const hashes = (texts) => texts.map(hash);
const unhexed = (text) => Buffer.from(text, "hex");

/** The tree of the vectors: entry i is i in decimal digits. */
const tree = new Tree();
function testTree(size) {
  for (let number = tree.leaves.length; number < size; number++) tree.leaves.push(leafHash(String(number)));
  return tree;
}

const RUN = {
  sizes(vector) {
    const size = Number(vector.size);
    const { leaves } = testTree(size);
    const root = tree.root(0, size);
    expect(b64(root), vector.root);
    if (!vector.inclusion) return;
    const digest = (count, proof) => sha256(...Array.from({ length: count }, (_, at) => proof(at)).flat()).toString("hex");
    expect(digest(size, (index) => {
      const path = tree.inclusion(index, size);
      verifyInclusion(leaves[index], BigInt(index), BigInt(size), root, path);
      return path;
    }), vector.inclusion);
    expect(digest(size, (at) => {
      const path = tree.consistency(at + 1, size);
      verifyConsistency(BigInt(at + 1), tree.root(0, at + 1), BigInt(size), root, path);
      return path;
    }), vector.consistency);
    expect(digest(size, (start) => {
      const end = Math.min(size, start + 5);
      const path = tree.range(start, end, size);
      verifyRange(BigInt(start), leaves.slice(start, end), BigInt(size), root, path);
      return path;
    }), vector.range);
  },
  trees(vector) {
    const [size, root, path] = [BigInt(vector.size), hash(vector.root), hashes(vector.path)];
    const kinds = {
      inclusion: () => verifyInclusion(hash(vector.leaf), BigInt(vector.index), size, root, path),
      consistency: () => verifyConsistency(BigInt(vector.old), hash(vector.old_root), size, root, path),
      range: () => verifyRange(BigInt(vector.start), hashes(vector.leaves), size, root, path),
    };
    expect(resultOf(kinds[vector.kind]), vector.result);
  },
  leaves(vector) {
    const event = readEvent(vector.event);
    expect(commitment(unhexed(vector.salt), event).toString("hex"), vector.private);
    const leaf = leafOf(event, unhexed(vector.private));
    expect([leaf.toString("hex"), b64(leafHash(leaf))], [vector.leaf, vector.leaf_hash]);
    expect(tagOf(event, vector.mode).toString("hex"), vector.tag);
  },
  salts(vector) {
    if (vector.kind === "line") return expect(resultOf(() => parseKey(vector.line)), vector.result);
    const keys = vector.keys.map(parseKey);
    const parts = (first, last) => keys.map((key) => cut(key, BigInt(first), BigInt(last)));
    if (vector.kind === "salt") {
      const [found] = parts(vector.seq, vector.seq).flatMap(([inside]) => inside);
      return expect(found ? found.key.toString("hex") : null, vector.salt);
    }
    const both = parts(vector.from, vector.to);
    expect([0, 1].map((side) => both.flatMap((part) => part[side].map(keyLine))), [vector.cover, vector.punctured]);
  },
  heads(vector) {
    const tag = unhexed(vector.tag ?? "");
    const hidden = ({ size, root, blind }) => hiddenHead(size, hash(root), unhexed(blind));
    if (vector.kind === "blind") {
      const code = createHmac("sha256", unhexed(vector.secret)).update(tag).update(uint64(vector.index)).digest();
      return expect(code.subarray(0, 16).toString("hex"), vector.blind);
    }
    if (vector.kind === "trie") {
      const root = trieRoot(vector.heads.map((head) => [unhexed(head.tag), hidden(head)]));
      return expect(b64(root), vector.trie_root);
    }
    const [root, path] = [hash(vector.trie_root), hashes(vector.path)];
    expect(resultOf(() => {
      if (vector.kind === "absent")
        return verifyAbsent(tag, root, path, vector.foreign && [unhexed(vector.foreign[0]), hash(vector.foreign[1])]);
      if (!same(trieClimb(tag, trieLeaf(tag, hidden(vector)), path), root)) throw new Refused("root", "another root");
    }), vector.result);
  },
  notes(vector) {
    if (vector.kind === "vkey") return expect(resultOf(() => new Key(vector.vkey)), vector.result);
    if (vector.kind === "checkpoint") return expect(resultOf(() => parseCheckpoint(vector.text)), vector.result);
    if (vector.kind === "sign") return expect(signNote(vector.skey, vector.text), vector.note);
    let signed = [];
    const keys = vector.keys.map((key) => new Key(key));
    expect(resultOf(() => { signed = [...new Note(Buffer.from(vector.note)).verify(keys)]; }), vector.result);
    expect(signed.map(([place, time]) => [place, String(time)]), vector.signed ?? []);
  },
  entries(vector) {
    let kind = "";
    const result = resultOf(() => { kind = parseEntry(Buffer.from(vector.entry)); });
    expect(kind === null ? "unknown" : result, vector.result);
  },
  tiles(vector) {
    if (vector.kind === "path") {
      expect(resultOf(() => parseTile(vector.path)), vector.result);
      if (vector.result === "ok") expect(tilePath(parseTile(vector.path)), vector.path);
    } else if (vector.kind === "tree") {
      expect(tilesOf(Number(vector.size)), vector.tiles);
    } else if (vector.kind === "tile") {
      const { level, index, width } = parseTile(vector.path);
      const span = 256 ** Number(level);
      const at = (_, offset) => (Number(index) * 256 + offset) * span;
      testTree(Number(vector.size));
      const parts = Array.from({ length: width }, at).map((start) => tree.root(start, start + span));
      expect(sha256(...parts).toString("hex"), vector.sha256);
    } else {
      let entries = [];
      expect(resultOf(() => { entries = parseBundle(hash(vector.bundle), vector.width); }), vector.result);
      expect(entries.map((entry) => entry.toString("hex")), vector.entries ?? []);
    }
  },
  policies(vector) {
    let policy, accepted;
    if (resultOf(() => { policy = new Policy(Buffer.from(vector.policy)); }) !== "ok") return expect("policy", vector.result);
    expect(resultOf(() => { accepted = policy.verify(new Note(Buffer.from(vector.note))); }), vector.result);
    expect(accepted?.cosigned, vector.cosigned);
  },
  proofs(vector) {
    expect(resultOf(() => {
      const proof = new Proof(Buffer.from(vector.proof));
      const extra = proof.extra ?? Buffer.alloc(0);
      const { entry } = vector.event === null ? new HeadProof(extra).lead() : new EventProof(extra).lead(readEvent(vector.event));
      if (vector.entry) expect(entry, vector.entry);
      proof.verify(entry, new Policy(Buffer.from(vector.policy)));
    }), vector.result);
  },
};

/** What a case of verify.json comes to: the exit code, and the report or what is wrong with the input. */
export function runCase({ files, arguments: args }, steps = STEPS) {
  const [text, many] = [{ type: "string" }, { type: "string", multiple: true }];
  const options = { expect: many, key: many, policy: text, proof: many, checkpoint: many, consistency: many, json: { type: "boolean" } };
  const { values, positionals } = parseArgs({ args, options, allowPositionals: true });
  const events = positionals.length === 0 ? null : positionals.flatMap((name) => eventsIn(files[name]));
  try {
    const result = judge(values, (name) => Buffer.from(files[name]), events, steps);
    return { exit: result.valid ? 0 : 10, text: `${values.json ? trustInJson(result) : trustInWords(result)}\n` };
  } catch (error) {
    return { exit: 2, text: error.message };
  }
}

/** Runs every case of the vectors; `report` gets a line for each that fails. */
export function runVectors(directory, report = console.log) {
  let [passed, failed] = [0, 0];
  for (const [name, run] of Object.entries(RUN)) {
    for (const vector of JSON.parse(readFileSync(join(directory, `${name}.json`), "utf8")).cases) {
      try {
        run(vector);
        passed++;
      } catch (error) {
        failed++;
        report(`${name}: ${vector.name}: ${error.message}`);
      }
    }
  }
  report(`${passed} passed, ${failed} failed`);
  return failed;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.length !== 4 || process.argv[2] !== "--vectors") {
    console.error("usage: node sealog_trust.mjs --vectors DIR");
    process.exitCode = 2;
  } else process.exitCode = runVectors(process.argv[3]) === 0 ? 0 : 10;
}
