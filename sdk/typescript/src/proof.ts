// Proofs that an event is in a signed tree: docs/format.md, section 8. Every value has one spelling, and any
// other is refused, so that this reader and other programs cannot differ about a proof.

import { SealogError } from "./errors.js";
import { badOption } from "./http.js";
import { webCrypto } from "./random.js";
import { sha256 } from "./sha256.js";
import { fieldsOf, hashOf } from "./verify.js";
import type { RawEvent } from "./verify.js";

/** Why a proof does not hold; `vectors/trust/README.md` has most. */
export type ProofReason =
  | "malformed" | "event" | "seq" | "schema" | "hash" | "annotations" | "leaf" | "root"
  | "origin" | "signature"
  /** Another checkpoint of the same size had another root. */
  | "fork";

export interface ProofResult {
  holds: boolean;
  reason?: ProofReason;
  message?: string;
}

/**
 * Checks a proof of an event, as `GET /tlog/v1/chain/proof?format=tlog-proof` gives it, without the service.
 * Without the log's `vkey` no signature is checked.
 */
export async function verifyProof(event: RawEvent, proof: string, vkey?: string): Promise<ProofResult> {
  return new Proofs(vkey).check(event, proof);
}

/** Checks the proofs of one log. Checkpoints of one size have to agree over all of them. */
export class Proofs {
  readonly #key: Key | undefined;
  readonly #roots = new Map<bigint, string>();
  #signed = ""; // the checkpoint whose signature was checked last: proofs share it

  constructor(vkey?: string) {
    this.#key = vkey === undefined ? undefined : keyOf(vkey);
  }

  get hasKey(): boolean {
    return this.#key !== undefined;
  }

  async check(event: RawEvent, proof: string): Promise<ProofResult> {
    try {
      await this.#check(event, proof);
      return { holds: true };
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      return { holds: false, reason: error.reason, message: error.message };
    }
  }

  async #check(event: RawEvent, proof: string): Promise<void> {
    const file = readFile(proof);
    const entry = entryOf(event, readClaim(file.extra));
    const { origin, size, root } = readCheckpoint(file.note.text);
    if (this.#key && file.note.whole !== this.#signed) {
      if (origin !== this.#key.name) throw new Refused("origin", `the checkpoint is of the log ${origin}`);
      await checkSignatures(file.note, this.#key);
      this.#signed = file.note.whole;
    }
    const found = b64(rootFromPath(sha256(join([0], utf8(entry))), file.index, size, file.path));
    if (found !== b64(root)) throw new Refused("root", "the proof leads to another root than that of the checkpoint");
    const earlier = this.#roots.get(size) ?? found;
    if (earlier !== found) throw new Refused("fork", `another checkpoint of ${size} entries had another root`);
    this.#roots.set(size, found);
  }
}

class Refused extends Error {
  constructor(readonly reason: ProofReason, what: string) {
    super(what);
  }
}

// ---- Texts ----

const NUMBER_MAX = 2n ** 63n - 1n;
const SEPARATOR = /[\u0000-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000+]/;
const isName = (text: string): boolean => text !== "" && !SEPARATOR.test(text);
const malformed = (what: string): Refused => new Refused("malformed", `${what} is missing or malformed`);
const encoder = new TextEncoder();
const utf8 = (text: string): Uint8Array => encoder.encode(text);

function join(...parts: (Uint8Array | readonly number[])[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

const b64 = (bytes: Uint8Array): string => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

/** @internal */
export function unbase64(text: string): Uint8Array | undefined {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text) || text.length % 4 !== 0) return undefined;
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  return b64(bytes) === text ? bytes : undefined; // unused bits may not be set
}

function unhex(text: string, length: number, what: string): Uint8Array {
  if (text.length !== 2 * length || !/^[0-9a-f]*$/.test(text)) throw malformed(what);
  return Uint8Array.from({ length }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}

function decimal(text: string, what: string): bigint {
  if (!/^(?:0|[1-9][0-9]{0,18})$/.test(text) || BigInt(text) > NUMBER_MAX) throw malformed(what);
  return BigInt(text);
}

/** A text whose lines all end with a line feed. */
class Lines {
  constructor(public rest: string) {}

  next(what: string): string {
    const end = this.rest.indexOf("\n");
    if (end < 0) throw malformed(what);
    const line = this.rest.slice(0, end);
    this.rest = this.rest.slice(end + 1);
    return line;
  }

  /** The value of the line `NAME VALUE`. */
  value(name: string): string {
    const line = this.next(name);
    if (!line.startsWith(`${name} `)) throw malformed(name);
    return line.slice(name.length + 1);
  }

  hash(what: string): Uint8Array {
    const hash = unbase64(this.next(what));
    if (hash?.length !== 32) throw malformed(what);
    return hash;
  }

  hashes(most: number): Uint8Array[] {
    const hashes: Uint8Array[] = [];
    while (this.rest !== "" && this.rest[0] !== "\n") {
      if (hashes.push(this.hash("path")) > most) throw malformed("path");
    }
    return hashes;
  }

  empty(): void {
    if (this.next("empty line") !== "") throw malformed("empty line");
  }

  end(): void {
    if (this.rest !== "") throw malformed("end");
  }
}

// ---- The file, and what its extra data claims ----

const PATH_MAX = 63;
const TRIE_PATH_MAX = 256;

interface Note { whole: string; text: string; signatures: { name: string; id: string; bytes: Uint8Array }[] }

function readFile(text: string): { extra: Uint8Array; index: bigint; path: Uint8Array[]; note: Note } {
  if (utf8(text).length > 1_179_648) throw malformed("proof");
  const lines = new Lines(text);
  if (lines.next("header") !== "c2sp.org/tlog-proof@v1") throw malformed("header");
  let extra: Uint8Array | undefined = new Uint8Array();
  if (lines.rest.startsWith("extra ")) {
    extra = unbase64(lines.value("extra"));
    if (!extra || extra.length < 1 || extra.length > 65_536) throw malformed("extra");
  }
  const index = decimal(lines.value("index"), "index");
  const path = lines.hashes(PATH_MAX);
  lines.empty();
  return { extra, index, path, note: readNote(lines.rest) };
}

/** @internal */
export function readNote(whole: string): Note {
  const end = whole.lastIndexOf("\n\n");
  const lines = whole.slice(end + 2);
  const isBad = utf8(whole).length > 1 << 20 || /[\u0000-\u0009\u000b-\u001f]/.test(whole);
  if (isBad || end < 0 || !lines.endsWith("\n")) throw malformed("checkpoint");
  const signatures = lines.slice(0, -1).split("\n").map((line, at) => {
    const [, name = "", encoded = ""] = /^\u2014 ([^ ]+) ([^ ]+)$/.exec(line) ?? [];
    const signature = isName(name) ? unbase64(encoded) : undefined;
    if (at >= 64 || !signature || signature.length < 5) throw malformed("signature");
    return { name, id: hexOf(signature.subarray(0, 4)), bytes: signature.subarray(4) };
  });
  return { whole, text: whole.slice(0, end + 1), signatures };
}

function readCheckpoint(text: string): { origin: string; size: bigint; root: Uint8Array } {
  const lines = new Lines(text);
  const origin = lines.next("origin");
  if (origin === "") throw malformed("origin");
  const size = decimal(lines.next("size"), "size");
  const root = lines.hash("root");
  lines.end();
  return { origin, size, root };
}

interface Claim {
  mode: string;
  seq: bigint;
  salt: Uint8Array | undefined;
  private: Uint8Array;
  size: bigint;
  path: Uint8Array[];
  time: bigint;
  blind: Uint8Array;
  triePath: Uint8Array[];
}

function readClaim(extra: Uint8Array): Claim {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(extra);
  } catch {
    throw malformed("extra");
  }
  const lines = new Lines(text);
  if (lines.next("kind") !== "sealog/event-proof/v1") throw malformed("kind");
  const mode = lines.value("mode");
  if (mode !== "live" && mode !== "test") throw malformed("mode");
  const seq = decimal(lines.value("seq"), "seq");
  const salt = lines.value("salt");
  const isErased = salt === "-";
  const claim = {
    mode,
    seq,
    salt: isErased ? undefined : unhex(salt, 16, "salt"),
    private: isErased ? unhex(lines.value("private"), 32, "private") : new Uint8Array(),
    size: decimal(lines.value("size"), "size"),
    path: lines.hashes(PATH_MAX),
  };
  lines.empty();
  const time = decimal(lines.value("time"), "time");
  const blind = unhex(lines.value("blind"), 16, "blind");
  const triePath = lines.hashes(TRIE_PATH_MAX);
  lines.end();
  return { ...claim, time, blind, triePath };
}

// ---- From an event to an entry of the store's log ----

const PUBLIC = ["category", "severity", "actor_type", "resource_type"];
const PRIVATE = ["session_id", "ts_client", "ip_address", "country", "city"];
const HASHED = [
  "log_id", "tenant_id", "project_id", "action", "actor_id", "resource", "metadata", "timestamp", "chain_seq",
  "prev_hash", "hash",
];

/** The entry that has this event, if the claim is right. */
function entryOf(raw: RawEvent, claim: Claim): string {
  const event = wholeEvent(raw);
  if (claim.seq !== event.seq) throw new Refused("seq", `the proof is about event #${claim.seq}`);
  if (event.schema !== 1) throw new Refused("schema", `schema_version ${event.schema} is not known; update the library`);
  if (!event.fits) throw new Refused("hash", "the event was changed: its content does not match its hash");
  if (!claim.salt && PRIVATE.some((name) => event.notes.has(name))) {
    throw new Refused("annotations", "the event shows private fields, but its proof has no salt for them");
  }
  const secret = claim.salt ? sha256(join([4], claim.salt, fields(event.notes, PRIVATE, 5))) : claim.private;
  const leaf = sha256(join([0, 1], uint64(event.seq), event.hash, secret, [0, 1], fields(event.notes, PUBLIC, 1)));
  const root = rootFromPath(leaf, claim.seq === 0n ? NUMBER_MAX : claim.seq - 1n, claim.size, claim.path);
  const tag = sha256(utf8(`sealog/chain/v1\n${event.tenant_id}\n${event.project_id}\n${claim.mode}\n`));
  const hidden = sha256(join([7, 1], uint64(claim.size), root, claim.blind));
  const trie = claim.triePath.reduce((hash, beside, at) => {
    const depth = claim.triePath.length - 1 - at;
    const isRight = ((tag[depth >> 3] as number) >> (7 - (depth & 7))) & 1;
    return sha256(isRight ? join([3], beside, hash) : join([3], hash, beside));
  }, sha256(join([2], tag, hidden)));
  return `sealog/heads/v1\n${claim.time}\n${b64(trie)}\n`;
}

/** The fields that a leaf covers. A field that neither the hash nor a leaf covers is refused. */
function wholeEvent(raw: RawEvent) {
  const texts = new Map<string, string>();
  const notes = new Map<string, string>();
  let schema = 1;
  let uncovered: string | undefined;
  for (const { key, text } of fieldsOf(raw)) {
    const name = (key ?? "").slice(1, -1);
    let isRight = text === "null" || HASHED.includes(name);
    if (name === "schema_version") {
      const isNumber = /^[1-9][0-9]{0,9}$/.test(text) && Number(text) < 2 ** 32;
      if (isNumber) schema = Number(text);
      isRight ||= isNumber;
    } else if (PUBLIC.includes(name) || PRIVATE.includes(name)) {
      const value = text[0] === '"' ? JSON.parse(text) as string : undefined;
      if (value !== undefined && !/[\ud800-\udfff]/u.test(value)) {
        notes.set(name, value);
        isRight = true;
      }
    } else if (!HASHED.includes(name)) {
      isRight = false;
    }
    if (texts.has(name) || !isRight) uncovered ??= name;
    texts.set(name, text);
  }
  if (schema === 1 && uncovered !== undefined) {
    throw new Refused("annotations", `neither the hash nor the proof covers the field ${uncovered}`);
  }
  const computed = hashOf(raw);
  if (computed === undefined) throw new Refused("event", "the event is malformed");
  const text = (name: string): string => JSON.parse(texts.get(name) as string) as string;
  const [tenant_id, project_id, hash] = [text("tenant_id"), text("project_id"), text("hash")];
  const seq = BigInt(texts.get("chain_seq") as string);
  return { seq, schema, tenant_id, project_id, hash: unhex(hash, 32, "hash"), fits: computed === hash, notes };
}

function fields(notes: Map<string, string>, names: readonly string[], firstKind: number): Uint8Array {
  return join(...names.flatMap((name, at) => {
    const value = notes.get(name);
    if (value === undefined) return [];
    const bytes = utf8(value);
    if (bytes.length > 65_535) throw new Refused("leaf", `no leaf can be made of an event with so long a ${name}`);
    return [[firstKind + at, bytes.length >> 8, bytes.length & 255], bytes];
  }));
}

function uint64(value: bigint): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, value);
  return bytes;
}

/**
 * RFC 9162, 2.1.3.2: the number of hashes follows from the place and the size.
 * @internal
 */
export function rootFromPath(leaf: Uint8Array, index: bigint, size: bigint, path: readonly Uint8Array[]): Uint8Array {
  const bits = (value: bigint): string => (value === 0n ? "" : value.toString(2));
  const inner = index < size ? bits(index ^ (size - 1n)).length : 0;
  const border = bits(index >> BigInt(inner)).replaceAll("0", "").length;
  if (index >= size || path.length !== inner + border) {
    throw new Refused("root", `a path of ${path.length} hashes does not fit leaf ${index} of ${size}`);
  }
  return path.reduce((hash, beside, level) => {
    const isRight = level >= inner || (index >> BigInt(level)) & 1n;
    return sha256(isRight ? join([1], beside, hash) : join([1], hash, beside));
  }, leaf);
}

// ---- Signatures ----

interface Key { name: string; id: string; bytes: Uint8Array }

const hexOf = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** @internal */
export function keyOf(vkey: unknown): Key {
  const [, name = "", id = "", encoded = ""] = /^([^+]*)\+([0-9a-f]{8})\+(.*)$/s.exec(String(vkey)) ?? [];
  const key = unbase64(encoded);
  const isRight = isName(name) && key?.length === 33 && key[0] === 1 && isLargePoint(key.subarray(1))
    && hexOf(sha256(join(utf8(`${name}\n`), key)).subarray(0, 4)) === id;
  if (!isRight) throw badOption("vkey", "must be the log's key, NAME+ID+KEY, as `sealog trust vkey` prints it");
  return { name, id, bytes: key.subarray(1) };
}

/**
 * One wrong signature of the key spoils the checkpoint, also beside a right one.
 * @internal
 */
export async function checkSignatures({ text, signatures }: Note, key: Key): Promise<void> {
  const own = signatures.filter(({ name, id }) => name === key.name && id === key.id);
  if (own.length === 0) throw new Refused("signature", `${key.name} has not signed the checkpoint`);
  for (const { bytes } of own) {
    if (!(await isSigned(key.bytes, utf8(text), bytes))) throw new Refused("signature", `the signature of ${key.name} is wrong`);
  }
}

const P = 2n ** 255n - 19n;
const ORDER = 2n ** 252n + 27742317777372353535851937790883648493n;
const D = 37095705934669439343138083508754565189542113879843219016388785533085940283555n;
const EIGHTH = 55188659117513257062467267217118295137698188065244968500265048394206261417927n;
const SMALL = [0n, 1n, P - 1n, EIGHTH, P - EIGHTH]; // y of the points of small order

const littleEndian = (bytes: Uint8Array): bigint => BigInt(`0x${hexOf(bytes.slice().reverse())}`);

function power(base: bigint, exponent: bigint): bigint {
  let result = 1n;
  for (base %= P; exponent > 0n; exponent >>= 1n, base = (base * base) % P) {
    if (exponent & 1n) result = (result * base) % P;
  }
  return result;
}

/** Whether 32 bytes are a point of large order in its one spelling. Libraries differ about the others. */
function isLargePoint(bytes: Uint8Array): boolean {
  const y = littleEndian(bytes) & (2n ** 255n - 1n);
  if (y >= P || SMALL.includes(y)) return false;
  const square = ((y * y - 1n) * power(D * y * y + 1n, P - 2n)) % P;
  return power((square + P) % P, (P - 1n) / 2n) === 1n;
}

async function isSigned(key: Uint8Array, message: Uint8Array, signature: Uint8Array): Promise<boolean> {
  if (signature.length !== 64 || !isLargePoint(signature.subarray(0, 32))) return false;
  if (littleEndian(signature.subarray(32)) >= ORDER) return false;
  const { subtle } = await webCrypto();
  try {
    const imported = await subtle.importKey("raw", key, { name: "Ed25519" }, false, ["verify"]);
    return await subtle.verify({ name: "Ed25519" }, imported, signature, message);
  } catch (cause) {
    const message = "this runtime cannot check Ed25519 signatures; use Node 18.4 or newer, or leave out vkey";
    throw new SealogError(message, { code: "client/unsupported", cause });
  }
}
