// Question: what does enqueue() cost an application, compared with JSON.stringify of the same event in the
// same process? Limits: 3 times that without a spool, 10 times with a spool that does not sync; memory
// bounded by the queue. Estimate before the first run: 2 times (stringify once, walk the event once), 6 times
// (one write(2) more).
//
//     node --expose-gc bench.mjs [ROUNDS]      exit code 1 if a limit is exceeded
//
// The kinds take turns in each round, so that other load on the machine hits all of them; the median of the
// ratios counts. No request is answered: the sender holds one batch in flight, and everything else stays in
// the queue.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Sealog } from "./dist/esm/node.js";

const ROUNDS = Number(process.argv[2] ?? 15);
const CALLS = 10_000;
const EVENT = {
  action: "document.updated",
  actor_id: "u-17",
  resource: "document/4711",
  session_id: "s-9f86d081",
  metadata: { method: "web", ip_address: "203.0.113.9", changes: [{ field: "title", from: "Draft", to: "Größe" }] },
};

const dir = mkdtempSync(join(tmpdir(), "sealog-bench-"));
const client = (options) => new Sealog({
  url: "http://127.0.0.1:9", apiKey: `at_live_${"k".repeat(49)}`, fetch: () => new Promise(() => {}), exitHooks: false,
  onFull: "error", queueMaxEvents: 1e9, queueMaxBytes: 1e12, spoolMaxBytes: 1e12, ...options,
});

/** Processor time of one call, with that of the collector: other programs on the machine do not count. */
function nanosecondsOf(work) {
  const start = process.cpuUsage();
  for (let i = 0; i < CALLS; i++) work();
  const { user, system } = process.cpuUsage(start);
  return (user + system) * 1000 / CALLS;
}

const memory = client();
const spool = client({ spoolDir: dir });
const kinds = {
  stringify: () => JSON.stringify(EVENT),
  enqueue: () => memory.enqueue(EVENT),
  "enqueue with spool": () => spool.enqueue(EVENT),
};
const rounds = [];
for (let round = -3; round < ROUNDS; round++) { // three to warm up
  const times = {};
  for (const [name, work] of Object.entries(kinds)) {
    times[name] = nanosecondsOf(work);
    await new Promise((resolve) => setImmediate(resolve));
  }
  if (round >= 0) rounds.push(times);
}
const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
const ratioOf = (name) => median(rounds.map((times) => times[name] / times.stringify));

const limits = { enqueue: 3, "enqueue with spool": 10 };
let isOver = false;
const stringifyNs = Math.round(median(rounds.map(({ stringify }) => stringify)));
console.log(`stringify: ${stringifyNs} ns for ${JSON.stringify(EVENT).length} characters`);
for (const [name, limit] of Object.entries(limits)) {
  const ratio = ratioOf(name);
  isOver ||= ratio > limit;
  const time = Math.round(median(rounds.map((times) => times[name])));
  console.log(`${name}: ${time} ns, ${ratio.toFixed(2)} times stringify (limit ${limit})`);
}

// Memory: a full queue of 10,000 events, then a hundred times as many calls that are refused.
const heap = () => { globalThis.gc?.(); return process.memoryUsage().heapUsed; };
const before = heap();
const bounded = client({ queueMaxEvents: 10_000 });
let refused = 0;
const fill = (calls) => {
  for (let i = 0; i < calls; i++) {
    try { bounded.enqueue(EVENT); } catch { refused++; }
  }
};
fill(10_000);
const full = heap();
fill(100_000);
const after = heap();
const bytes = Buffer.byteLength(JSON.stringify(EVENT)) * 10_000;
const megabytes = (count) => `${(count / 1e6).toFixed(1)} MB`;
console.log(`queue of 10,000 events (${megabytes(bytes)} of text): heap grew by ${megabytes(full - before)}, `
  + `then by ${megabytes(after - full)} over ${refused} refused calls`);
isOver ||= refused !== 100_000 || (globalThis.gc !== undefined && after - full > bytes / 2);

rmSync(dir, { recursive: true });
process.exit(isOver ? 1 : 0);
