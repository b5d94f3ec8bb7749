// Queued events in files, so that they outlive the process: sdk/suite/README.md, section 5, defines the
// format, which all client libraries share. The order of writes is the whole argument:
//
//   t0  E   the event is in the file, then enqueue() returns
//   t1  B   the batch and its key are in the file, then the request is sent
//   t2      the answer arrives, then the callbacks run
//   t3  D   the events are settled
//
// A process that dies after t1 and before t3 leaves a batch that is sent again with the same bytes under the
// same key, so the service stores it once.

import { spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";
import * as zlib from "node:zlib";
import { countThatFits, type Batch, type Limits, type Member, type Queue } from "./core.js";
import { QueueFull, SealogError, SpoolError } from "./errors.js";
import { EVENT_BYTES_MAX, type Encoded } from "./event.js";

export interface SpoolOptions {
  dir: string;
  /** Syncs each record, so that events survive a loss of power, too. */
  sync: boolean;
  maxBytes: number;
  /** A batch that was first sent this long ago is held, because the service may have forgotten its key. */
  holdAfterMs: number;
  /** The wall clock. */
  now(): number;
}

/** A batch that is not sent until the application decides. */
export interface HeldBatch {
  id: string;
  /**
   * `age`: its key may have expired. `damaged`: a part of the file cannot be read, so the events may be
   * stored.
   */
  reason: "age" | "damaged";
  /** The events that can be read. */
  events: Record<string, unknown>[];
}

interface Place { readonly n: number; readonly at: number; readonly bytes: number }
interface SpoolMember extends Member { readonly n: number }

/** A batch with a `B` record, or, while `key` is empty, events that have to be held before they got one. */
interface SpoolBatch {
  readonly file: SpoolFile;
  readonly first: number;
  readonly count: number;
  firstSentMs: number;
  key: string;
  isSplit: boolean;
  places: (Place & { index: number })[];
  heldFor?: "age" | "damaged";
}

const FILE_NAME = /^\d{13}-[0-9a-f]{16}\.spool$/;
const HEADER = "H sealog-spool 1";
const HEADER_BYTES = HEADER.length + 10;
const FILE_BYTES_MAX = 8 * 1024 * 1024;
const NAME_MS_MAX = 9_999_999_999_999; // a name has room for 13 digits
const LF = 10;

export class Spool implements Queue {
  readonly isDurable = true;
  #files: SpoolFile[] = []; // in the order in which they are sent; the last one is our own
  #current: { batch: Batch; of: SpoolBatch } | undefined;
  #left = new Set<string>(); // names of files of another version, which are left alone
  #pending = 0;
  #adopting: Promise<void> | undefined;

  constructor(
    private readonly options: SpoolOptions,
    private readonly limits: Limits,
    private readonly warn: (warning: SealogError) => void,
  ) {
    try {
      fs.mkdirSync(options.dir, { recursive: true, mode: 0o700 });
    } catch (cause) {
      throw unusable(`cannot use spoolDir ${options.dir}`, cause);
    }
    this.#files.push(SpoolFile.create(options));
  }

  get pending(): number {
    return this.#pending;
  }

  push(event: Encoded): QueueFull | undefined {
    let file = this.#own();
    const size = this.#files.reduce((sum, { bytes }) => sum + bytes, 0);
    if (size + event.bytes + recordBytes(file.nextN, this.options.now()) > this.options.maxBytes) {
      const message = `the spool is full (${size} bytes): wait until events are sent, or raise spoolMaxBytes`;
      return new QueueFull(message, { code: "client/spool_full" });
    }
    if (file.bytes >= Math.min(FILE_BYTES_MAX, Math.max(65_536, this.options.maxBytes / 4))) {
      file = SpoolFile.create(this.options);
      this.#files.push(file);
    }
    file.appendEvent(event, this.options.now());
    this.#pending++;
    return undefined;
  }

  couldFit(event: Encoded): boolean {
    const { maxBytes, now } = this.options;
    return HEADER_BYTES + event.bytes + recordBytes(this.#own().nextN, now()) <= maxBytes;
  }

  dueAt(): number {
    if (this.#current) return -Infinity;
    for (const file of this.#files) {
      if (file.batches.some((batch) => !batch.heldFor)) return -Infinity;
      if (file.unsent.length === 0) continue;
      const { batchMaxEvents, batchMaxBytes, flushIntervalMs } = this.limits;
      const isFull = file.unsent.length >= batchMaxEvents || file.unsent.bytes >= batchMaxBytes;
      return isFull || file !== this.#own() ? -Infinity : file.unsent.since + flushIntervalMs;
    }
    return Infinity;
  }

  take(): Batch | undefined {
    if (this.#current && !this.#isTooOld(this.#current.of)) return this.#current.batch;
    this.#current = undefined;
    for (const file of this.#files) {
      const ready = file.batches.find((batch) => !batch.heldFor && !this.#isTooOld(batch));
      const of = ready ?? this.#begin(file);
      if (!of) continue;
      this.#current = { of, batch: { key: of.key, isSplit: of.isSplit, members: file.read(of.places) } };
      return this.#current.batch;
    }
    return undefined;
  }

  split(batch: Batch): void {
    const of = this.#ofCurrent(batch);
    of.file.append(`S ${of.first}`, this.options.sync);
    of.isSplit = batch.isSplit = true;
  }

  settle(batch: Batch, members: readonly Member[]): void {
    const of = this.#ofCurrent(batch);
    batch.members = batch.members.slice(members.length);
    this.#end(of, members.length);
    if (batch.members.length === 0) this.#current = undefined;
  }

  adopt(): Promise<void> {
    this.#adopting ??= this.#adopt().finally(() => { this.#adopting = undefined; });
    return this.#adopting;
  }

  async #adopt(): Promise<void> {
    const names = namesIn(this.options.dir).sort();
    const adopted: SpoolFile[] = [];
    for (const name of names) {
      if (this.#left.has(name) || this.#files.some((file) => file.name === name)) continue;
      const file = await SpoolFile.adopt(this.options.dir, name);
      if (!file) continue;
      const { damage, isForeign } = file.load(this.limits);
      if (isForeign) {
        this.#left.add(name);
        file.close();
        const message = `${file.path} has a version that this library does not know; upgrade the library to send it`;
        this.warn(new SpoolError(message, { code: "client/spool_version" }));
        continue;
      }
      if (damage > 0) {
        const message = `${damage} bytes of ${file.path} are damaged; they were copied to ${file.path}.damaged`;
        this.warn(new SpoolError(message, { code: "client/spool_damaged" }));
      }
      if (file.unsettled === 0) file.remove();
      else adopted.push(file);
    }
    for (const file of adopted) {
      const held = file.batches.filter((batch) => batch.heldFor);
      this.#pending += file.unsettled - held.reduce((sum, { places }) => sum + places.length, 0);
      for (const batch of held) this.#warnHeld(batch);
    }
    this.#files.splice(this.#files.length - 1, 0, ...adopted);
  }

  close(): Encoded[] {
    for (const file of this.#files) {
      if (file.unsettled === 0) file.remove();
      else file.close();
    }
    this.#files = [];
    this.#current = undefined;
    return [];
  }

  held(): HeldBatch[] {
    return this.#files.flatMap((file) => file.batches.flatMap((batch) => (batch.heldFor === undefined ? [] : [{
      id: idOf(batch),
      reason: batch.heldFor,
      events: file.read(batch.places).map(({ text }) => JSON.parse(text) as Record<string, unknown>),
    }])));
  }

  /** Lets a held batch be sent under a new key, or reports its events as dropped and settles them. */
  release(id: string, choice: "send" | "drop", report: (text: string) => void): void {
    const batch = this.#files.flatMap((file) => file.batches).find((one) => one.heldFor && idOf(one) === id);
    if (!batch) throw new SpoolError(`no held batch has the id ${id}; held() lists them`, { code: "client/spool" });
    if (choice === "send") {
      batch.places = batch.places.map((place, index) => ({ ...place, index }));
      this.#key(batch);
      delete batch.heldFor;
      this.#pending += batch.places.length;
      return;
    }
    for (const { text } of batch.file.read(batch.places)) report(text);
    this.#pending += batch.places.length; // #end takes them off again
    this.#end(batch, batch.places.length);
  }

  #own(): SpoolFile {
    return this.#files[this.#files.length - 1] as SpoolFile;
  }

  #ofCurrent(batch: Batch): SpoolBatch {
    if (this.#current?.batch !== batch) throw new SpoolError("not the batch that is being sent");
    return this.#current.of;
  }

  /** Makes a batch of the oldest events of a file that were never sent. */
  #begin(file: SpoolFile): SpoolBatch | undefined {
    if (file.unsent.length === 0) return undefined;
    const places = file.unsent.takeBatch(this.limits).map((place, index) => ({ ...place, index }));
    const [{ n: first }, count] = [places[0]!, places.length];
    const batch: SpoolBatch = { file, first, count, firstSentMs: 0, key: "", isSplit: false, places };
    try {
      this.#key(batch);
    } catch (error) {
      file.unsent.putBack(places);
      throw error;
    }
    file.batches.push(batch);
    return batch;
  }

  #key(batch: SpoolBatch): void {
    const [key, ms] = [`ts-${randomBytes(20).toString("hex")}`, this.options.now()];
    batch.file.append(`B ${batch.first} ${batch.count} ${ms} ${key}`, this.options.sync);
    Object.assign(batch, { key, firstSentMs: ms, isSplit: false });
  }

  #isTooOld(batch: SpoolBatch): boolean {
    if (Math.abs(this.options.now() - batch.firstSentMs) < this.options.holdAfterMs) return false;
    batch.heldFor = "age";
    this.#pending -= batch.places.length;
    this.#warnHeld(batch);
    return true;
  }

  #warnHeld({ file, heldFor, places }: SpoolBatch): void {
    const why = heldFor === "age" ? "was first sent too long ago" : "is damaged";
    const message = `a batch of ${places.length} events in ${file.path} ${why}, so the service may store it twice; `
      + "list it with held(), then release() it";
    this.warn(new SpoolError(message, { code: "client/held" }));
  }

  /** The first events of a batch have ended. */
  #end(batch: SpoolBatch, count: number): void {
    const { file } = batch;
    const ended = batch.places.splice(0, count);
    this.#pending -= ended.length;
    file.unsettled -= ended.length;
    if (batch.places.length === 0) file.batches.splice(file.batches.indexOf(batch), 1);
    try {
      if (file.unsettled > 0) {
        for (const { first, length } of runsOf(ended)) file.append(`D ${first} ${length}`, false);
      } else if (file === this.#own()) {
        file.cutBack();
      } else {
        this.#files.splice(this.#files.indexOf(file), 1);
        file.remove();
      }
    } catch (cause) { // after a restart these events are sent again under the same key, and stored once
      this.warn(unusable(`cannot record in ${file.path} that ${ended.length} events were sent`, cause));
    }
  }
}

const namesIn = (dir: string): string[] => fs.readdirSync(dir).filter((name) => FILE_NAME.test(name));

const idOf = ({ file, first }: SpoolBatch): string => `${file.name}:${first}`;

/** Consecutive numbers as ranges. */
function runsOf(places: readonly Place[]): { first: number; length: number }[] {
  const runs: { first: number; length: number }[] = [];
  for (const { n } of places) {
    const last = runs[runs.length - 1];
    if (last && last.first + last.length === n) last.length++;
    else runs.push({ first: n, length: 1 });
  }
  return runs;
}

function unusable(what: string, cause: unknown): SpoolError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new SpoolError(`${what}: ${reason}; choose another directory, or free space`, { code: "client/spool", cause });
}

const recordBytes = (n: number, ms: number): number => `00000000 E ${n} ${ms} \n`.length;

/**
 * Events that wait for a batch, in order. Four numbers each: there may be millions while the service is away.
 */
class Unsent {
  #numbers: number[] = []; // n, at, bytes, since
  #head = 0;
  bytes = 0;

  get length(): number {
    return (this.#numbers.length - this.#head) / 4;
  }

  /** When the first of them was queued, as a value of `performance.now()`. */
  get since(): number {
    return this.#numbers[this.#head + 3] ?? Infinity;
  }

  push(n: number, at: number, bytes: number, since: number): void {
    this.#numbers.push(n, at, bytes, since);
    this.bytes += bytes + 1;
  }


  /** Takes the first consecutive events that fit into a batch. */
  takeBatch(limits: Limits): Place[] {
    const places: Place[] = [];
    for (let i = this.#head; i < this.#numbers.length; i += 4) {
      const place = this.#at(i);
      const before = places[places.length - 1];
      if (places.length === limits.batchMaxEvents || (before && place.n !== before.n + 1)) break;
      places.push(place);
    }
    places.length = countThatFits(places, 0, limits);
    this.#head += places.length * 4;
    for (const { bytes } of places) this.bytes -= bytes + 1;
    if (this.#head > 4096 && this.#head * 2 > this.#numbers.length) {
      this.#numbers = this.#numbers.slice(this.#head);
      this.#head = 0;
    }
    return places;
  }

  putBack(places: readonly Place[]): void {
    const front = places.flatMap(({ n, at, bytes }) => [n, at, bytes, 0]); // long due
    this.#numbers = [...front, ...this.#numbers.slice(this.#head)];
    this.#head = 0;
    for (const { bytes } of places) this.bytes += bytes + 1;
  }

  #at(i: number): Place {
    return { n: this.#numbers[i]!, at: this.#numbers[i + 1]!, bytes: this.#numbers[i + 2]! };
  }
}

/** One file, whose lock this process holds. */
class SpoolFile {
  batches: SpoolBatch[] = [];
  readonly unsent = new Unsent();
  unsettled = 0;
  nextN = 1;
  bytes = 0;

  private constructor(
    readonly path: string, readonly name: string, private readonly fd: number, private readonly sync: boolean,
  ) {}

  /** Creates a file, locked and with its header before other processes can see its name. */
  static create({ dir, sync, now }: SpoolOptions): SpoolFile {
    try {
      // A process that takes the files over sends them by name. Two files of one millisecond, or of a clock
      // that was set back, must not change places. A client creates its first file before it takes over any.
      const newestMs = Math.max(-1, ...namesIn(dir).map((name) => Number(name.slice(0, 13))));
      const ms = Math.min(Math.max(now(), newestMs + 1), NAME_MS_MAX);
      const name = `${String(ms).padStart(13, "0")}-${randomBytes(8).toString("hex")}.spool`;
      const path = join(dir, name);
      const { O_RDWR, O_APPEND, O_CREAT, O_EXCL } = fs.constants;
      const fd = fs.openSync(`${path}.new`, O_RDWR | O_APPEND | O_CREAT | O_EXCL | LOCK_AT_OPEN, 0o600);
      if (!lockNow(fd)) throw new Error("the new file is locked");
      const file = new SpoolFile(path, name, fd, sync);
      file.append(HEADER, sync);
      fs.renameSync(`${path}.new`, path);
      if (sync) {
        const directory = fs.openSync(dir, "r");
        fs.fsyncSync(directory);
        fs.closeSync(directory);
      }
      return file;
    } catch (cause) {
      if (cause instanceof SpoolError) throw cause;
      throw unusable(`cannot create a file in spoolDir ${dir}`, cause);
    }
  }

  /** Opens a file that another process left. Undefined if that process is alive, or the file is finished. */
  static async adopt(dir: string, name: string): Promise<SpoolFile | undefined> {
    const path = join(dir, name);
    let fd: number;
    try {
      fd = fs.openSync(path, fs.constants.O_RDWR | fs.constants.O_APPEND | LOCK_AT_OPEN);
    } catch (error) {
      if (["ENOENT", "EAGAIN"].includes((error as { code?: string }).code ?? "")) return undefined;
      throw unusable(`cannot open ${path}`, error);
    }
    const isOurs = await lock(fd) && fs.statSync(path, { throwIfNoEntry: false })?.ino === fs.fstatSync(fd).ino;
    if (isOurs) return new SpoolFile(path, name, fd, false);
    fs.closeSync(fd);
    return undefined;
  }

  appendEvent({ text, bytes }: Encoded, ms: number): void {
    const n = this.nextN;
    this.append(`E ${n} ${ms} ${text}`, this.sync);
    this.nextN++;
    this.unsettled++;
    this.unsent.push(n, this.bytes - bytes - 1, bytes, performance.now());
  }

  /** Appends a record with one write. If the disk takes only a part, the file gets its old length back. */
  append(content: string, sync: boolean): void {
    const length = 9 + SCRATCH.write(content, 9, "utf8");
    SCRATCH[length] = LF;
    writeHex(crc32(SCRATCH.subarray(9, length)));
    let wrote = 0;
    try {
      wrote = fs.writeSync(this.fd, SCRATCH, 0, length + 1);
      if (wrote <= length) throw new Error(`the disk took ${wrote} of ${length + 1} bytes`);
      if (sync) fs.fdatasyncSync(this.fd);
    } catch (cause) {
      if (wrote > 0) fs.ftruncateSync(this.fd, this.bytes);
      throw unusable(`cannot write to ${this.path}`, cause);
    }
    this.bytes += length + 1;
  }
  read(places: readonly (Place & { index: number })[]): SpoolMember[] {
    return places.map(({ n, at, bytes, index }) => {
      const buffer = Buffer.allocUnsafe(bytes);
      const got = fs.readSync(this.fd, buffer, 0, bytes, at);
      if (got !== bytes) throw unusable(`cannot read event ${n} of ${this.path}`, new Error("the file is too short"));
      return { n, index, bytes, text: buffer.toString("utf8") };
    });
  }

  /** Removes all records but the header; all events have ended. */
  cutBack(): void {
    fs.ftruncateSync(this.fd, HEADER_BYTES);
    this.bytes = HEADER_BYTES;
  }

  remove(): void {
    fs.rmSync(this.path, { force: true }); // before the lock is free, so that no other process takes the file over
    this.close();
  }

  close(): void {
    fs.closeSync(this.fd);
  }

  /** Reads all records. Damaged bytes are copied aside; an unfinished last line is cut off. */
  load(limits: Limits): { damage: number; isForeign: boolean } {
    const all = fs.readFileSync(this.path);
    const end = all.lastIndexOf(LF) + 1;
    const events = new Map<number, Place>();
    const settled = new Set<number>();
    const batches: SpoolBatch[] = [];
    const batchOf = new Map<number, SpoolBatch>(); // of each event the last one: a later B replaces an earlier one
    let [damage, damagedAt] = [0, -1];
    const setAside = (bytes: Buffer): void => {
      damage += bytes.length;
      fs.appendFileSync(`${this.path}.damaged`, bytes, { mode: 0o600 });
    };
    for (let at = 0, next: number; at < end; at = next) {
      next = all.indexOf(LF, at) + 1;
      const content = contentOf(all.subarray(at, next));
      if (content === undefined) {
        setAside(all.subarray(at, next));
        damagedAt = at;
        continue;
      }
      if (at === 0 && content.toString("latin1") !== HEADER) return { damage: 0, isForeign: true };
      const [kind, ...fields] = content.subarray(0, 400).toString("latin1").split(" ");
      const [first, count, ms] = fields.map(Number) as [number, number, number];
      if (kind === "E") {
        const skip = 9 + `E ${fields[0]} ${fields[1]} `.length;
        events.set(first, { n: first, at: at + skip, bytes: next - at - skip - 1 });
        this.nextN = Math.max(this.nextN, first + 1);
      } else if (kind === "B") {
        const numbers = Array.from({ length: count }, (_, i) => first + i).filter((n) => !settled.has(n));
        const places = numbers.flatMap((n, index) => (events.has(n) ? [{ ...events.get(n)!, index }] : []));
        const batch: SpoolBatch = {
          file: this, first, count, firstSentMs: ms, key: fields[3] ?? "", isSplit: false, places,
          ...(places.length < numbers.length && { heldFor: "damaged" as const }), // its body cannot be repeated
        };
        batches.push(batch);
        for (const n of numbers) batchOf.set(n, batch);
      } else if (kind === "S") {
        const batch = batchOf.get(first) ?? batches.find((one) => one.first === first);
        if (batch) batch.isSplit = true;
      } else if (kind === "D") {
        for (let n = first; n < first + count; n++) settled.add(n);
      }
    }
    if (end < all.length) {
      setAside(all.subarray(end));
      fs.ftruncateSync(this.fd, end);
    }
    this.bytes = end;
    for (const n of settled) events.delete(n);
    this.unsettled = events.size;
    for (const batch of batches) {
      batch.places = batch.places.filter(({ n }) => batchOf.get(n) === batch && events.delete(n));
      if (batch.places.length === 0) continue;
      if (batch.places.some(({ at }) => at < damagedAt)) batch.heldFor = "damaged";
      this.batches.push(batch);
    }
    // A damaged line may have been the B or S record of events before it: they may be stored, under an
    // unknown key.
    const suspect = new Unsent();
    for (const { n, at, bytes } of events.values()) (at < damagedAt ? suspect : this.unsent).push(n, at, bytes, 0);
    while (suspect.length > 0) {
      const places = suspect.takeBatch(limits).map((place, index) => ({ ...place, index }));
      const [{ n: first }, count] = [places[0]!, places.length];
      this.batches.push({
        file: this, first, count, firstSentMs: 0, key: "", isSplit: false, places, heldFor: "damaged",
      });
    }
    return { damage, isForeign: false };
  }
}

/** The content of a line with its checksum and line feed. Undefined if the checksum is wrong. */
function contentOf(line: Buffer): Buffer | undefined {
  const content = line.subarray(9, line.length - 1);
  const digits = line.subarray(0, 9).toString("latin1");
  return digits === `${crc32(content).toString(16).padStart(8, "0")} ` ? content : undefined;
}

const SCRATCH = Buffer.allocUnsafe(EVENT_BYTES_MAX + 128); // one record; filled and written without a pause
SCRATCH[8] = 32;
const HEX = Buffer.from("0123456789abcdef");

function writeHex(value: number): void {
  for (let i = 7, rest = value; i >= 0; i--, rest >>>= 4) SCRATCH[i] = HEX[rest & 15]!;
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

export function slowCrc32(bytes: Uint8Array): number {
  let crc = -1;
  for (let i = 0; i < bytes.length; i++) crc = (crc >>> 8) ^ CRC_TABLE[(crc ^ bytes[i]!) & 255]!;
  return ~crc >>> 0;
}

/** zlib's, where Node has it (20.15, 22.2 and newer). */
export const crc32: (bytes: Uint8Array) => number =
  (zlib as { crc32?: (bytes: Uint8Array) => number }).crc32 ?? slowCrc32;

// Node has no flock(2). Linux: flock(1) locks the descriptor that it inherits; the lock belongs to the open
// file description, so it stays after that child has ended. macOS: open(2) itself takes the same lock.
const LOCK_AT_OPEN = process.platform === "darwin" ? 0x20 /* O_EXLOCK */ | fs.constants.O_NONBLOCK : 0;
const FLOCK = ["-n", "3"] as const;
type Stdio = ["ignore", "ignore", "ignore", number];
const stdioWith = (fd: number): Stdio => ["ignore", "ignore", "ignore", fd];

function lockNow(fd: number): boolean {
  if (LOCK_AT_OPEN !== 0) return true;
  const { status, error } = spawnSync("flock", FLOCK, { stdio: stdioWith(fd) });
  if (error) throw noFlock(error);
  return status === 0;
}

async function lock(fd: number): Promise<boolean> {
  if (LOCK_AT_OPEN !== 0) return true;
  return await new Promise((resolve, reject) => {
    const child = spawn("flock", FLOCK, { stdio: stdioWith(fd) });
    child.on("error", (error) => reject(noFlock(error)));
    child.on("exit", (code) => resolve(code === 0));
  });
}

function noFlock(cause: Error): SpoolError {
  const message = `cannot run the program flock: ${cause.message}; install util-linux (or busybox), or use no spool`;
  return new SpoolError(message, { code: "client/spool", cause });
}
