import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs, { appendFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { crc32, slowCrc32, Spool } from "../dist/esm/spool.js";
import { Sealog } from "../dist/esm/node.js";
import { gate, KEY, service, URL_ } from "./service.mjs";

const LIMITS = { batchMaxEvents: 100, batchMaxBytes: 1_900_000, flushIntervalMs: 0 };
const encoded = (text) => ({ text, bytes: Buffer.byteLength(text) });
const textOf = (resource) => JSON.stringify({ action: "user.login", resource });

function directory(t) {
  const dir = mkdtempSync(join(tmpdir(), "sealog-spool-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

function spoolIn(dir, { warnings = [], ...options } = {}, limits = LIMITS) {
  const all = { dir, sync: false, maxBytes: 1e9, holdAfterMs: 86_100_000, now: Date.now, ...options };
  return new Spool(all, limits, ({ code }) => warnings.push(code));
}

const filesIn = (dir, end = ".spool") => readdirSync(dir).filter((name) => name.endsWith(end)).sort();
const linesOf = (dir) => filesIn(dir).flatMap((name) => readFileSync(join(dir, name), "utf8").trimEnd().split("\n"));
const contentsOf = (dir) => linesOf(dir).map((line) => line.slice(9).replace(/\d{13}/, "MS").replace(/ts-\w+/, "KEY"));
const record = (content) => {
  const digits = crc32(Buffer.from(content)).toString(16).padStart(8, "0");
  return `${digits} ${content}\n`;
};
const leave = (dir, contents, tail = "") =>
  writeFileSync(join(dir, `1700000000000-${"0".repeat(16)}.spool`), contents.map(record).join("") + tail);

test("the checksum is zlib's, in every version of Node", () => {
  assert.equal(slowCrc32(Buffer.from("123456789")), 0xcbf43926);
  assert.equal(crc32(Buffer.from("123456789")), 0xcbf43926);
  assert.equal(slowCrc32(Buffer.alloc(0)), 0);
});

test("records are written in the order event, batch, end", (t) => {
  const dir = directory(t);
  const spool = spoolIn(dir);
  for (const name of ["r1", "é"]) spool.push(encoded(textOf(name)));
  const expected = ["H sealog-spool 1", `E 1 MS ${textOf("r1")}`, `E 2 MS ${textOf("é")}`];
  assert.deepEqual(contentsOf(dir), expected);
  const batch = spool.take();
  assert.deepEqual(contentsOf(dir), [...expected, "B 1 2 MS KEY"]);
  assert.deepEqual(batch.members.map(({ text }) => text), [textOf("r1"), textOf("é")]);
  spool.split(batch);
  spool.settle(batch, batch.members.slice(0, 1));
  assert.deepEqual(contentsOf(dir), [...expected, "B 1 2 MS KEY", "S 1", "D 1 1"]);
  for (const line of linesOf(dir)) assert.equal(`${line}\n`, record(line.slice(9)));
  spool.settle(batch, batch.members);
  assert.deepEqual(contentsOf(dir), ["H sealog-spool 1"]);
  spool.close();
  assert.deepEqual(readdirSync(dir), []);
});

test("events, batches and splits are synced if asked for, and settling is not", (t) => {
  let synced;
  const recorded = t.mock.method(fs, "fdatasyncSync", (fd) => {
    const text = readFileSync(`/proc/self/fd/${fd}`, "utf8");
    synced.push(text.trimEnd().split("\n").at(-1)[9]);
  });
  syncBuiltinESMExports();
  t.after(() => {
    recorded.mock.restore();
    syncBuiltinESMExports();
  });
  for (const [sync, kinds] of [[true, "HEEBS"], [false, ""]]) {
    synced = [];
    const spool = spoolIn(directory(t), { sync });
    for (const name of ["r1", "r2"]) spool.push(encoded(textOf(name)));
    const batch = spool.take();
    spool.split(batch);
    spool.settle(batch, batch.members.slice(0, 1));
    assert.equal(synced.join(""), kinds);
    spool.close();
  }
});

test("files and directory are for their owner alone", (t) => {
  const dir = join(directory(t), "spool");
  spoolIn(dir);
  assert.equal(statSync(dir).mode & 0o777, 0o700);
  assert.equal(statSync(join(dir, filesIn(dir)[0])).mode & 0o777, 0o600);
});

test("the lock is flock(2): other programs respect it, and the kernel frees it", async (t) => {
  const dir = directory(t);
  const spool = spoolIn(dir);
  spool.push(encoded(textOf("r1")));
  const path = join(dir, filesIn(dir)[0]);
  const tryLock = () => spawnSync("flock", ["-n", path, "true"]).status;
  assert.equal(tryLock(), 1);
  const other = spoolIn(dir); // a second client in the same process
  await other.adopt();
  assert.equal(other.pending, 0);
  spool.close();
  assert.equal(tryLock(), 0);
  await other.adopt();
  assert.equal(other.pending, 1);
  assert.equal(tryLock(), 1);
});

test("a full file is followed by a new one, and is deleted once its events have ended", async (t) => {
  const dir = directory(t);
  const spool = spoolIn(dir, { maxBytes: 400_000 });
  const text = JSON.stringify({ action: "user.login", metadata: { text: "x".repeat(30_000) } });
  for (let i = 0; i < 9; i++) assert.equal(spool.push(encoded(text)), undefined);
  assert.equal(filesIn(dir).length, 3); // a file is full at a quarter of the whole
  for (let batch; (batch = spool.take());) spool.settle(batch, batch.members);
  assert.equal(filesIn(dir).length, 1);
  assert.equal(spool.pending, 0);
});

test("the spool is bounded by the bytes of its files", (t) => {
  const dir = directory(t);
  const text = textOf("r1");
  const room = record("H sealog-spool 1").length + record(`E 1 ${Date.now()} ${text}`).length;
  const spool = spoolIn(dir, { maxBytes: room });
  assert.equal(spool.push(encoded(text)), undefined);
  assert.equal(spool.push(encoded("{}")).code, "client/spool_full");
  assert.equal(spool.couldFit(encoded(text)), true);
  assert.equal(spool.couldFit(encoded(`${text} `)), false);
});

test("many events that were left are sent in batches, in order", async (t) => {
  const dir = directory(t);
  const names = Array.from({ length: 250 }, (_, i) => `r${i}`);
  const before = spoolIn(dir);
  for (const name of names) before.push(encoded(textOf(name)));
  before.close();
  const spool = spoolIn(dir);
  await spool.adopt();
  const sizes = [];
  const got = [];
  for (let batch; (batch = spool.take());) {
    sizes.push(batch.members.length);
    got.push(...batch.members.map(({ text }) => JSON.parse(text).resource));
    spool.settle(batch, batch.members);
  }
  assert.deepEqual(sizes, [100, 100, 50]);
  assert.deepEqual(got, names);
  assert.equal(filesIn(dir).length, 1);
});

test("files sort by age within a millisecond and behind a clock that was set back", async (t) => {
  const dir = directory(t);
  const clock = { now: 1_700_000_000_000 };
  const open = () => spoolIn(dir, { maxBytes: 1e6, now: () => clock.now });
  const names = Array.from({ length: 24 }, (_, i) => `r${i}`);
  for (const half of [names.slice(0, 12), names.slice(12)]) {
    const spool = open();
    const padding = "x".repeat(250_000); // each fills a file
    for (const name of half.slice(0, 3)) spool.push(encoded(JSON.stringify({ resource: name, padding })));
    for (const name of half.slice(3)) spool.push(encoded(JSON.stringify({ resource: name })));
    await spool.adopt();
    spool.close();
    clock.now -= 3_600_000;
  }
  assert.equal(filesIn(dir).length, 8);
  const spool = open();
  await spool.adopt();
  const got = [];
  for (let batch; (batch = spool.take());) {
    got.push(...batch.members.map(({ text }) => JSON.parse(text).resource));
    spool.settle(batch, batch.members);
  }
  assert.deepEqual(got, names);
});

test("a name never gets a fourteenth digit", (t) => {
  const dir = directory(t);
  const options = { now: () => 9_999_999_999_999 };
  for (const name of ["r1", "r2"]) {
    const spool = spoolIn(dir, options);
    spool.push(encoded(textOf(name)));
    spool.close();
  }
  assert.deepEqual(filesIn(dir).map((name) => name.slice(0, 14)), Array(2).fill("9999999999999-"));
});

test("damaged bytes are kept aside and reported, events behind them are sent", async (t) => {
  const dir = directory(t);
  const tail = `00000000 B 1 1 5 key\n${record(`E 2 1 ${textOf("r2")}`)}cut`;
  leave(dir, ["H sealog-spool 1", `E 1 1 ${textOf("r1")}`], tail);
  const warnings = [];
  const spool = spoolIn(dir, { warnings });
  await spool.adopt();
  assert.deepEqual(warnings, ["client/spool_damaged", "client/held"]);
  assert.equal(readFileSync(join(dir, filesIn(dir, ".damaged")[0]), "utf8"), "00000000 B 1 1 5 key\ncut");
  assert.deepEqual(spool.held().map(({ reason, events }) => [reason, events[0].resource]), [["damaged", "r1"]]);
  assert.deepEqual(spool.take().members.map(({ text }) => text), [textOf("r2")]);
});

test("a batch with an event that cannot be read is held, as its bytes cannot be repeated", async (t) => {
  const dir = directory(t);
  leave(dir, ["H sealog-spool 1", `E 1 1 ${textOf("r1")}`, `B 1 2 ${Date.now()} key`, `E 3 1 ${textOf("r3")}`]);
  const spool = spoolIn(dir);
  await spool.adopt();
  assert.deepEqual(spool.held().map(({ reason }) => reason), ["damaged"]);
  assert.deepEqual(spool.take().members.map(({ text }) => text), [textOf("r3")]);
});

test("a batch becomes too old one millisecond after the last moment at which it is sent", async (t) => {
  const dir = directory(t);
  const clock = { now: 1_700_000_000_000 };
  leave(dir, ["H sealog-spool 1", `E 1 1 ${textOf("r1")}`, `B 1 1 ${clock.now} key`]);
  const warnings = [];
  const spool = spoolIn(dir, { warnings, holdAfterMs: 1000, now: () => clock.now });
  await spool.adopt();
  clock.now += 999;
  assert.equal(spool.take().key, "key");
  clock.now += 1;
  assert.equal(spool.take(), undefined);
  assert.deepEqual([warnings, spool.pending], [["client/held"], 0]);
  const [{ id }] = spool.held();
  assert.throws(() => spool.release("nonsense", "send"), /held\(\)/);
  spool.release(id, "send");
  assert.notEqual(spool.take().key, "key");
  assert.equal(spool.pending, 1);
});

test("a flush does not wait for a batch that gets too old while it is retried", async (t) => {
  const dir = directory(t);
  const clock = { now: 1_700_000_000_000 };
  const late = () => { clock.now += 86_400_000; throw new TypeError("fetch failed"); };
  const codes = [];
  const client = new Sealog({
    url: URL_, apiKey: KEY, fetch: service([late]).fetch, spoolDir: dir, retryBaseMs: 0, now: () => clock.now,
    onWarning: ({ code }) => codes.push(code), exitHooks: false,
  });
  await client.enqueue({ action: "user.login" });
  assert.equal(await client.flush(60_000), 0);
  assert.deepEqual(codes, ["client/held"]);
  assert.equal(client.held().length, 1);
  await client.close();
});

test("an event is in the file before enqueue returns", async (t) => {
  const dir = directory(t);
  const hold = gate();
  const sealog = service([async (request, store) => { await hold.opened; return store(request); }]);
  const client = new Sealog({ url: URL_, apiKey: KEY, fetch: sealog.fetch, spoolDir: dir, exitHooks: false });
  client.enqueue({ action: "user.login", resource: "r1" });
  assert.match(linesOf(dir).at(-1), /E 1 \d+ \{"action":"user.login","resource":"r1"\}$/);
  hold.open();
  await client.close();
  assert.deepEqual(readdirSync(dir), []);
});

test("half a character and other bad input leave no trace in the spool", async (t) => {
  const dir = directory(t);
  const client = new Sealog({ url: URL_, apiKey: KEY, fetch: service().fetch, spoolDir: dir, exitHooks: false });
  assert.throws(() => client.enqueue({ action: "user.login", resource: "\ud83d" }), { field: "resource" });
  assert.deepEqual(contentsOf(dir), ["H sealog-spool 1"]);
  await client.close();
});

test("a file of a client that died while it created it is ignored", async (t) => {
  const dir = directory(t);
  appendFileSync(join(dir, `1700000000000-${"0".repeat(16)}.spool.new`), record("H sealog-spool 1"));
  const spool = spoolIn(dir);
  await spool.adopt();
  assert.equal(spool.pending, 0);
});
