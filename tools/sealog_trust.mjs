#!/usr/bin/env node
// Checks Sealog's trees, notes and proofs without Sealog: plain Node 18.3 or newer, no packages, no network.
// `node sealog_trust.mjs --vectors DIR` runs the project's test vectors (vectors/trust).
//
// Ed25519 is Node's own, with two checks before it that Node does not make: of public keys, and of R in a signature.

import { createHash, createHmac, createPrivateKey, createPublicKey, sign, verify } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { members } from "./sealog_verify.mjs";

/** `reason` is the word that the vectors use. */
export class Refused extends Error {
  constructor(reason, what) {
    super(what);
    this.reason = reason;
  }
}
const malformed = (what) => new Refused("malformed", what);
const sha256 = (...parts) => parts.reduce((hash, part) => hash.update(part), createHash("sha256")).digest();
const byte = (value) => Buffer.from([value]);
const same = (a, b) => Buffer.compare(a, b) === 0;

// ---- Texts: every value has one spelling --------------------------------------------------------------------------

const NUMBER_MAX = 2n ** 63n - 1n;
const SEPARATOR = /[\u0000-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000+]/;
const isName = (text) => text !== "" && !SEPARATOR.test(text);

function decimal(text, field) {
  if (!/^(?:0|[1-9][0-9]{0,18})$/.test(text) || BigInt(text) > NUMBER_MAX)
    throw malformed(`${field} must be a decimal number without leading zeros, at most 2^63 - 1`);
  return BigInt(text);
}
const b64 = (bytes) => Buffer.from(bytes).toString("base64");
function unbase64(text, field, length) {
  const bytes = Buffer.from(text, "base64");
  if (b64(bytes) !== text || (length !== undefined && bytes.length !== length))
    throw malformed(`${field} must be standard base64 with padding, of its length`);
  return bytes;
}
function unhex(text, length, field) {
  if (text.length !== 2 * length || !/^[0-9a-f]*$/.test(text)) throw malformed(`${field} must have ${2 * length} hex digits`);
  return Buffer.from(text, "hex");
}
function utf8(bytes, field) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw malformed(`${field} must be UTF-8`);
  }
}
const uint64 = (value) => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return bytes;
};

/** A text whose lines all end with a line feed. */
class Lines {
  constructor(text) {
    this.rest = text;
  }
  next(field) {
    const end = this.rest.indexOf("\n");
    if (end < 0) throw malformed(`${field} must be on a line of its own that ends with a line feed`);
    const line = this.rest.slice(0, end);
    this.rest = this.rest.slice(end + 1);
    return line;
  }
  value(name) {
    const line = this.next(name);
    if (!line.startsWith(`${name} `)) throw malformed(`${name} must be the name of this line`);
    return line.slice(name.length + 1);
  }
  hashes(most) {
    const hashes = [];
    while (this.rest !== "" && this.rest[0] !== "\n") {
      if (hashes.length === most) throw malformed(`the path has more than ${most} hashes`);
      hashes.push(unbase64(this.next("path"), "path", 32));
    }
    return hashes;
  }
  empty() {
    if (this.next("empty line") !== "") throw malformed("an empty line must be here");
  }
  end() {
    if (this.rest !== "") throw malformed("there are lines behind the end");
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
  if (size > NUMBER_MAX) throw new Refused("size", "the size is above 2^63 - 1");
  if (path.length > HASHES_MAX) throw new Refused("too long", "the path has more than 63 hashes");
  if (end > size) throw new Refused("outside", `the proof is about ${end} leaves, but the tree has ${size}`);
}
function checkLength(path, expected) {
  if (path.length !== expected) throw new Refused("length", `the path must have ${expected} hashes, and has ${path.length}`);
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
  const isLeft = (level) => level >= inner || (index >> BigInt(level)) & 1n;
  const found = rest.reduce((hash, beside, level) => (isLeft(level) ? nodeHash(beside, hash) : hash), seed);
  if (!same(found, oldRoot) || !same(climb(seed, index, rest, inner), root))
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
  if (words.length !== 4 || words[0] !== "key") throw malformed("a key is `key DEPTH PREFIX HEX`");
  const [depth, prefix] = [decimal(words[1], "DEPTH"), decimal(words[2], "PREFIX")];
  if (depth > DEPTH || prefix >> depth) throw malformed("DEPTH is at most 48 and PREFIX below 2^DEPTH");
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
    return [Buffer.from([firstTag + at, value.length >> 8, value.length & 255]), value];
  }));
}
const commitment = (salt, event) => sha256(byte(4), salt, fields(event, PRIVATE, 5));
const leafOf = (event, commitment) => Buffer.concat([
  byte(1), uint64(event.chain_seq), event.hash, commitment,
  Buffer.from([event.schema_version >> 8, event.schema_version & 255]), fields(event, PUBLIC, 1),
]);
const tagOf = (event, mode) => sha256(`sealog/chain/v1\n${event.tenant_id}\n${event.project_id}\n${mode}\n`);

/** The fields of an event that a leaf commits to, and whether its hash fits. */
function readEvent(raw) {
  const texts = new Map();
  for (const { key, text } of members(raw)) {
    if (texts.has(key)) throw new Refused("event", `${key} is there twice`);
    texts.set(key, text);
  }
  const text = (name) => texts.get(`"${name}"`) ?? "null";
  const string = (name) => {
    const value = JSON.parse(text(name));
    const isRight = value === null || (typeof value === "string" && !/[\ud800-\udfff]/u.test(value));
    if (!isRight) throw new Refused("event", `${name} is not a string`);
    return value;
  };
  const payload = ["log_id", "tenant_id", "action", "actor_id", "resource", "metadata"];
  const hashed = `${string("prev_hash")}{${payload.map((name) => `"${name}":${text(name)}`).join(",")}}`;
  const hash = unhex(string("hash") ?? "", 32, "hash");
  const event = { chain_seq: BigInt(text("chain_seq")), hash };
  event.schema_version = Number(texts.get('"schema_version"') ?? 1);
  event.fits = same(sha256(hashed + Date.parse(string("timestamp"))), hash);
  for (const name of [...PUBLIC, ...PRIVATE, "tenant_id", "project_id"]) event[name] = string(name);
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
  if (path.length > 256) throw new Refused("too long", "the path has more than 256 hashes");
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
    const [, name, id, encoded] = /^([^+]*)\+([^+]*)\+(.*)$/s.exec(text) ?? [];
    if (encoded === undefined || !isName(name)) throw malformed("a vkey is `NAME+ID+KEY`");
    const bytes = unbase64(encoded, "vkey", 33);
    [this.name, this.id, this.kind, this.key] = [name, unhex(id, 4, "vkey"), bytes[0], bytes.subarray(1)];
    if (this.kind !== 1 && this.kind !== 4) throw malformed("a vkey has type 01 or 04");
    if (!isLargePoint(this.key)) throw malformed("the key of a vkey is a point of large order in its one spelling");
    if (!same(sha256(name, "\n", bytes).subarray(0, 4), this.id)) throw malformed("the id is not that of name and key");
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
    if (bytes.length > 1 << 20) throw malformed("a note has at most 1 MiB");
    const note = utf8(bytes, "note");
    if (/[\u0000-\u0009\u000b-\u001f]/.test(note)) throw malformed("a note has no control characters but line feeds");
    const end = note.lastIndexOf("\n\n");
    const lines = note.slice(end + 2);
    if (end < 0 || !lines.endsWith("\n")) throw malformed("a note is a text, an empty line and signatures, a line each");
    this.text = note.slice(0, end + 1);
    this.signatures = lines.slice(0, -1).split("\n").map((line) => {
      const [, name, encoded] = /^\u2014 ([^ ]+) ([^ ]+)$/.exec(line) ?? [];
      if (!encoded || !isName(name)) throw malformed("a signature is `— NAME BASE64`");
      const signature = unbase64(encoded, "signature");
      if (signature.length < 5) throw malformed("a signature has 4 bytes of key id before it");
      return { name, id: signature.subarray(0, 4), bytes: signature.subarray(4) };
    });
    if (this.signatures.length > 64) throw malformed("a note has at most 64 signatures");
  }
  /** The place of each key that signed, with the latest time of its cosignatures. */
  verify(keys) {
    const signed = new Map();
    for (const { name, id, bytes } of this.signatures) {
      const place = keys.findIndex((key) => key.name === name && same(key.id, id));
      if (place < 0) continue;
      const time = keys[place].verify(this.text, bytes);
      if (time === null) throw new Refused("signature", `the signature of ${name} does not fit`);
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
  const size = decimal(lines.next("size"), "size");
  const root = unbase64(lines.next("root"), "root", 32);
  if (origin === "") throw malformed("the origin must not be empty");
  lines.end();
  return { origin, size, root };
}
function signNote(secret, text) {
  const [name, id, key] = secret.slice("PRIVATE+KEY+".length).split(/\+(.{8})\+/s);
  const der = Buffer.concat([PKCS8, unbase64(key, "signing key", 33).subarray(1)]);
  const signature = sign(null, Buffer.from(text), createPrivateKey({ key: der, format: "der", type: "pkcs8" }));
  return `${text}\n\u2014 ${name} ${b64(Buffer.concat([Buffer.from(id, "hex"), signature]))}\n`;
}

// ---- Entries of the store log, tiles ------------------------------------------------------------------------------

/** The kind of an entry; null for one that is not known. */
function parseEntry(bytes) {
  if (bytes.length > 65535) throw malformed("an entry has at most 65535 bytes");
  const lines = new Lines(utf8(bytes, "entry"));
  const kind = lines.next("kind");
  const number = (field) => decimal(lines.next(field), field);
  if (kind === "sealog/genesis/v1") {
    const [origin, , interval, delay] = [lines.next("origin"), number("time"), number("interval"), number("max delay")];
    if (!isName(origin) || !interval || !delay) throw malformed("a genesis entry has an origin and seconds above 0");
    if (lines.rest !== "") {
      const words = lines.value("previous").split(" ");
      if (words.length !== 3 || !isName(words[0])) throw malformed("previous must be `previous ORIGIN SIZE ROOT`");
      decimal(words[1], "size");
      unbase64(words[2], "root", 32);
    }
  } else if (kind === "sealog/key/v1") {
    number("time");
    const [role, change] = [lines.next("role"), lines.next("change")];
    if (!["log", "service"].includes(role) || !["add", "retire"].includes(change))
      throw malformed("role must be `log` or `service`, change `add` or `retire`");
    new Key(lines.next("vkey"));
  } else if (kind === "sealog/heads/v1") {
    number("time");
    unbase64(lines.next("root"), "root", 32);
  } else if (kind === "sealog/restore/v1") {
    number("time");
    number("index");
    const reason = lines.next("reason");
    if (reason.trim() === "" || /[\u0000-\u001f\u007f-\u009f]/.test(reason)) throw malformed("reason must be printable");
  } else return null;
  lines.end();
  return kind;
}
const headsText = (time, root) => `sealog/heads/v1\n${time}\n${b64(root)}\n`;

function parseTile(path) {
  const form = /^tile\/(entries|0|[1-9][0-9]?)\/((?:x[0-9]{3}\/)*[0-9]{3})(?:\.p\/([1-9][0-9]{0,2}))?$/;
  const [, level, groups, width] = form.exec(path) ?? [];
  if (!groups) throw malformed("a path is tile/L/N or tile/L/N.p/W");
  const index = BigInt(groups.replace(/[x/]/g, ""));
  if ((level !== "entries" && Number(level) > 63) || groups.startsWith("x000") || index > NUMBER_MAX || Number(width) > 255)
    throw malformed("L is at most 63, N has no needless group and is below 2^63, W is at most 255");
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
    if (bytes.length < end) throw malformed("the bundle ends inside an entry");
    entries.push(bytes.subarray(2, end));
    bytes = bytes.subarray(end);
  }
  if (bytes.length > 0) throw malformed("the bundle has more entries than its width");
  return entries;
}

// ---- Policies -----------------------------------------------------------------------------------------------------

/** Logs, witnesses and the quorum. Names are octets: each byte is one character here. */
class Policy {
  logs = [];
  witnesses = new Map();
  groups = new Map();
  quorum = undefined;

  constructor(bytes) {
    const text = Buffer.from(bytes).toString("latin1");
    if (text.length > 1 << 18 || (text !== "" && !text.endsWith("\n")) || /[\u0000-\u0008\u000b-\u001f\u007f]/.test(text))
      throw malformed("a policy has at most 256 KiB, ends with a line feed and has no control characters");
    const taken = new Set();
    for (const line of text.split("\n")) {
      const words = line.split(/[ \t]+/).filter((word) => word !== "");
      if (words.length === 0 || words[0].startsWith("#")) continue;
      const [kind, name, needed, ...names] = words;
      if (kind === "log" && [2, 3].includes(words.length)) {
        this.logs.push(this.key(name, 1, this.logs));
      } else if (kind === "witness" && [3, 4].includes(words.length)) {
        const key = this.key(needed, 4, [...this.witnesses.values()]);
        this.witnesses.set(this.fresh(name), key);
      } else if (kind === "group" && words.length >= 3) {
        this.fresh(name);
        for (const member of names) {
          if (taken.has(member) || !this.has(member)) throw malformed("a member is defined above and in no other group");
          taken.add(member);
        }
        const count = { all: names.length, any: 1 }[needed] ?? Number(decimal(needed, "K"));
        if (count < 1 || count > names.length) throw malformed("a group needs `any`, `all` or a number of its members");
        this.groups.set(name, { count, names });
      } else if (kind === "quorum" && words.length === 2 && this.quorum === undefined) {
        if (name !== "none" && !this.has(name)) throw malformed("the quorum must name a witness or group of a line above");
        this.quorum = name;
      } else throw malformed("a line is log, witness, group, one quorum, or a comment");
      if (Math.max(this.logs.length, this.witnesses.size, this.groups.size) > 32) throw malformed("at most 32 of each");
    }
    if (this.quorum === undefined) throw malformed("there must be one quorum line");
  }
  key(text, kind, others) {
    const key = new Key(utf8(Buffer.from(text, "latin1"), "vkey"));
    if (key.kind !== kind) throw malformed("the vkey of a log has type 01, that of a witness 04");
    if (others.some((other) => same(other.key, key.key) || (other.name === key.name && same(other.id, key.id))))
      throw malformed("two lines have the same key");
    return key;
  }
  has(name) {
    return this.witnesses.has(name) || this.groups.has(name);
  }
  fresh(name) {
    if (name === "none" || this.has(name)) throw malformed("a name must be new and not `none`");
    return name;
  }
  verify(note) {
    const { origin, size, root } = parseCheckpoint(note.text);
    if (!this.logs.some((log) => log.name === origin)) throw new Refused("origin", `the policy has no log ${origin}`);
    let signed;
    try {
      signed = note.verify([...this.logs, ...this.witnesses.values()]);
    } catch (error) {
      throw error instanceof Refused ? new Refused("signature", error.message) : error;
    }
    if (!this.logs.some((log, place) => log.name === origin && signed.has(place)))
      throw new Refused("signature", "the log did not sign");
    const cosigned = [...this.witnesses.keys()].filter((_, place) => signed.has(this.logs.length + place));
    const hasWitnessed = (name) => {
      if (this.witnesses.has(name)) return cosigned.includes(name);
      const { count, names } = this.groups.get(name);
      return names.filter(hasWitnessed).length >= count;
    };
    if (this.quorum !== "none" && !hasWitnessed(this.quorum))
      throw new Refused("quorum", `${cosigned.length} of ${this.witnesses.size} witnesses signed, too few`);
    return { size, root, cosigned: cosigned.length };
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
    if (bytes.length > (1 << 20) + (1 << 17)) throw malformed("the proof is too long");
    const lines = new Lines(utf8(bytes, "proof"));
    if (lines.next("header") !== "c2sp.org/tlog-proof@v1") throw malformed("the first line must be c2sp.org/tlog-proof@v1");
    this.extra = Buffer.alloc(0);
    if (lines.rest.startsWith("extra ")) {
      this.extra = unbase64(lines.value("extra"), "extra");
      if (this.extra.length < 1 || this.extra.length > 65536) throw malformed("extra must have 1 to 65536 bytes");
    }
    this.index = decimal(lines.value("index"), "index");
    this.path = lines.hashes(HASHES_MAX);
    lines.empty();
    this.note = new Note(Buffer.from(lines.rest));
  }
  verify(entry, policy) {
    const { size, root } = policy.verify(this.note);
    asRoot(() => verifyInclusion(leafHash(entry), this.index, size, root, this.path));
  }
}

/** Reads the way from a head to an entry; returns a function that gives the text of the entry. */
function readHeadPath(lines) {
  lines.empty();
  const time = decimal(lines.value("time"), "time");
  const blind = unhex(lines.value("blind"), 16, "blind");
  const path = lines.hashes(256);
  lines.end();
  return (tag, size, root) => headsText(time, trieClimb(tag, trieLeaf(tag, hiddenHead(size, root, blind)), path));
}
function entryOfHead(extra) {
  const lines = new Lines(utf8(extra, "extra"));
  if (lines.next("kind") !== "sealog/head-proof/v1") throw malformed("the kind must be sealog/head-proof/v1");
  const tag = unhex(lines.value("tag"), 32, "tag");
  const size = decimal(lines.value("size"), "size");
  const root = unbase64(lines.value("root"), "root", 32);
  return readHeadPath(lines)(tag, size, root);
}
/** The text of the store log's entry that has the event, if the proof is right. */
function entryOfEvent(extra, event) {
  const lines = new Lines(utf8(extra, "extra"));
  if (lines.next("kind") !== "sealog/event-proof/v1") throw malformed("the kind must be sealog/event-proof/v1");
  const mode = lines.value("mode");
  if (mode !== "live" && mode !== "test") throw malformed("mode must be `live` or `test`");
  const seq = decimal(lines.value("seq"), "seq");
  const salt = lines.value("salt");
  const isErased = salt === "-";
  const secret = isErased ? unhex(lines.value("private"), 32, "private") : unhex(salt, 16, "salt");
  const size = decimal(lines.value("size"), "size");
  const path = lines.hashes(HASHES_MAX);
  const entry = readHeadPath(lines);
  if (seq !== event.chain_seq) throw new Refused("seq", `the proof is about event #${seq}`);
  if (event.schema_version !== 1) throw new Refused("schema", `schema_version ${event.schema_version} is not known`);
  if (!event.fits) throw new Refused("hash", "the event was changed: its content does not match its hash");
  if (isErased && PRIVATE.some((name) => event[name] !== null))
    throw new Refused("annotations", "the event shows private fields, but its proof has no salt for them");
  const leaf = leafHash(leafOf(event, isErased ? secret : commitment(secret, event)));
  const root = asRoot(() => rootFromPath(leaf, seq === 0n ? NUMBER_MAX : seq - 1n, size, path));
  return entry(tagOf(event, mode), size, root);
}

// ---- The test vectors ---------------------------------------------------------------------------------------------

function resultOf(call) {
  try {
    call();
    return "ok";
  } catch (error) {
    if (error instanceof Refused) return error.reason;
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
      const entry = vector.event === null ? entryOfHead(proof.extra) : entryOfEvent(proof.extra, readEvent(vector.event));
      if (vector.entry) expect(entry, vector.entry);
      proof.verify(entry, new Policy(Buffer.from(vector.policy)));
    }), vector.result);
  },
};

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
