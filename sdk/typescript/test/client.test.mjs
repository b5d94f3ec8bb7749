import assert from "node:assert/strict";
import { test } from "node:test";
import { QueueFull, Sealog, ValidationError } from "../dist/esm/index.js";
import { MemoryReceipts } from "../dist/esm/receipts.js";
import { gate, KEY, service, URL_ } from "./service.mjs";

const event = (resource, more) => ({ action: "user.login", resource, ...more });
const clientOf = ({ fetch }, options) =>
  new Sealog({ url: URL_, apiKey: KEY, fetch, retryBaseMs: 0, flushIntervalMs: 5, ...options });

/** What console[name] was called with while `work` ran. */
async function printed(name, work) {
  const [original, lines] = [console[name], []];
  console[name] = (...args) => lines.push(args.map(String).join(" "));
  try {
    await work();
  } finally {
    console[name] = original;
  }
  return lines;
}

test("no request follows redirects", async () => {
  const sealog = service();
  const client = clientOf(sealog);
  await client.log(event("r1"));
  await client.enqueue(event("r2"));
  await client.close();
  assert.deepEqual(sealog.requests.map(({ redirect }) => redirect), ["manual", "manual"]);
});

test("a redirect that a browser hides is refused, too", async () => {
  const hidden = { status: 0, type: "opaqueredirect", headers: new Headers(), text: async () => "" };
  const client = clientOf(service([() => hidden]));
  await assert.rejects(client.log(event("r1")), { code: "client/redirect" });
});

test("an error without a callback is printed, with the action and the code", async () => {
  const refused = { status: 401, body: '{"error":{"code":"auth/key_revoked","message":"revoked"}}' };
  const client = clientOf(service([refused]));
  const lines = await printed("error", async () => {
    await client.enqueue(event("r1"));
    await client.flush();
  });
  assert.equal(lines.length, 1);
  assert.match(lines[0], /user\.login of r1.*auth\/key_revoked/);
});

test("a callback that throws ends no other event", async () => {
  const got = [];
  const client = clientOf(service(), {
    onReceipt: ({ chain_seq }, { resource }) => {
      got.push([chain_seq, resource]);
      throw new Error("a bug of the application");
    },
  });
  const lines = await printed("error", async () => {
    for (const name of ["r1", "r2", "r3"]) await client.enqueue(event(name));
    assert.equal(await client.close(), 0);
  });
  assert.deepEqual(got, [[1, "r1"], [2, "r2"], [3, "r3"]]);
  assert.equal(lines.length, 3);
});

test("a bad event throws at once, even if the promise is not awaited", () => {
  const client = clientOf(service());
  assert.throws(() => client.enqueue(event("r1", { metadata: { price: NaN } })), ValidationError);
  assert.throws(() => client.enqueue(event("r1", { actorId: "u-1" })), /actor_id/);
});

test("calls of enqueue that wait for room are bounded, so a missing await cannot fill the memory", async () => {
  const hold = gate();
  const sealog = service([async (request, store) => { await hold.opened; return store(request); }]);
  const client = clientOf(sealog, { queueMaxEvents: 2, batchMaxEvents: 2 });
  const waiting = [];
  for (let i = 1; i <= 4; i++) waiting.push(client.enqueue(event(`r${i}`)));
  assert.throws(() => client.enqueue(event("r5")), (error) =>
    error instanceof QueueFull && /await/.test(error.message));
  hold.open();
  await Promise.all(waiting);
  await client.close();
  assert.deepEqual(sealog.resources(), ["r1", "r2", "r3", "r4"]);
});

test("events that wait for room keep their order", async () => {
  const hold = gate();
  const sealog = service([async (request, store) => { await hold.opened; return store(request); }]);
  const client = clientOf(sealog, { queueMaxEvents: 3, batchMaxEvents: 1 });
  const names = Array.from({ length: 6 }, (_, i) => `r${i}`);
  const waiting = names.map((name) => client.enqueue(event(name)));
  hold.open();
  await Promise.all(waiting);
  await client.close();
  assert.deepEqual(sealog.resources(), names);
});

test("a small event does not overtake a large one that waits for room", async () => {
  const hold = gate();
  const sealog = service([async (request, store) => { await hold.opened; return store(request); }]);
  const client = clientOf(sealog, { queueMaxBytes: 300, batchMaxEvents: 1 });
  const large = { metadata: { text: "x".repeat(130) } };
  const waiting = [client.enqueue(event("r1", large)), client.enqueue(event("r2", large)), client.enqueue(event("r3"))];
  hold.open();
  await Promise.all(waiting);
  await client.close();
  assert.deepEqual(sealog.resources(), ["r1", "r2", "r3"]);
});

test("an event that can never fit is an error, although the queue blocks", async () => {
  const client = clientOf(service(), { queueMaxBytes: 50 });
  assert.throws(() => client.enqueue(event("r1", { metadata: { text: "x".repeat(50) } })), QueueFull);
});

test("with checkActions, events keep their order while the catalog is read", async () => {
  const hold = gate();
  const actions = ["user.login", "user.logout"].map((action) => ({ action, required_fields: [] }));
  const sealog = service([async () => { await hold.opened; return new Response(JSON.stringify({ actions })); }]);
  const client = clientOf(sealog, { checkActions: true });
  const all = [client.enqueue(event("r1")), client.enqueue(event("r2")), client.enqueue({ action: "user.logn" })];
  const flushed = client.flush();
  hold.open();
  const [, , wrong] = await Promise.allSettled(all);
  assert.equal(wrong.reason.suggestion, "user.login");
  assert.equal(await flushed, 0);
  assert.deepEqual(sealog.resources(), ["r1", "r2"]);
});

test("an option that does not exist is refused by its name", () => {
  assert.throws(() => clientOf(service(), { flushInterval: 5 }), { field: "flushInterval" });
  assert.throws(() => clientOf(service(), { spoolDir: "x" }), /sealog\/node/);
});

test("address and key come from the environment", async () => {
  const sealog = service();
  Object.assign(process.env, { SEALOG_URL: "https://audit.example.com/base/", SEALOG_API_KEY: KEY });
  try {
    await new Sealog({ fetch: (url, init) => (assert.equal(url, "https://audit.example.com/base/v1/events"),
      sealog.fetch(url, init)) }).log(event("r1"));
    assert.equal(sealog.requests[0].headers.Authorization, `Bearer ${KEY}`);
  } finally {
    delete process.env.SEALOG_URL;
    delete process.env.SEALOG_API_KEY;
  }
  assert.throws(() => new Sealog({ url: URL_ }), { field: "apiKey" });
});

test("a key never appears in an error", () => {
  const secret = "sk_live_of_another_service";
  assert.throws(() => new Sealog({ url: URL_, apiKey: secret }), (error) => !error.message.includes(secret));
});

test("fields of the event win over the context, metadata is merged", async () => {
  const sealog = service();
  const client = clientOf(sealog);
  const traceparent = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
  const context = { actor_id: "u-1", session_id: "s-1", metadata: { a: 1, b: 1 }, traceparent };
  await client.log(event("r1", { actor_id: "u-2", metadata: { b: 2 } }), { context });
  const [{ json, headers }] = sealog.requests;
  assert.deepEqual(json, {
    action: "user.login", resource: "r1", actor_id: "u-2", session_id: "s-1", metadata: { a: 1, b: 2 },
  });
  assert.equal(headers.traceparent, traceparent);
});

test("a receipt that lacks an id is no receipt", async () => {
  const short = { status: 202, body: '{"log_ids":["ID1"],"request_id":"req_1"}' };
  const errors = [];
  const client = clientOf(service(Array(5).fill(short)), { onError: (error) => errors.push(error.code) });
  await client.enqueue(event("r1"));
  await client.enqueue(event("r2"));
  await client.close();
  assert.deepEqual(errors, ["client/bad_answer", "client/bad_answer"]);
});

test("a flush does not wait for events that are queued after it", async () => {
  const holds = [gate(), gate()];
  const sealog = service(holds.map(({ opened }) => async (request, store) => { await opened; return store(request); }));
  const client = clientOf(sealog, { batchMaxEvents: 1 });
  await client.enqueue(event("r1"));
  const flushed = client.flush(60_000);
  await new Promise((resolve) => setImmediate(resolve));
  await client.enqueue(event("r2"));
  holds[0].open();
  assert.equal(await flushed, 0);
  assert.equal(client.pending, 1);
  holds[1].open();
  await client.close();
});

test("audit says how many receipts it could not check: no room in memory, or a file that fails", async () => {
  const kept = new MemoryReceipts(3);
  const receipt = (chain_seq) =>
    ({ log_id: `${chain_seq}`, chain_seq, hash: undefined, request_id: "", replayed: false });
  for (let i = 1; i <= 3; i++) kept.add([receipt(i)]);
  assert.equal(kept.dropped, 0);
  for (let i = 4; i <= 20; i += 2) kept.add([receipt(i), receipt(i + 1)]);
  const numbers = [];
  for await (const { chain_seq } of kept) numbers.push(chain_seq);
  assert.deepEqual([numbers, kept.dropped], [[19, 20, 21], 18]);

  const broken = { add() { throw new Error("disk full"); }, async *[Symbol.asyncIterator]() {} };
  const options = { url: URL_, apiKey: KEY, fetch: service().fetch, onWarning() {} };
  const client = new Sealog(options, { receipts: broken });
  await client.log(event("r1"));
  assert.equal((await client.audit()).dropped, 1);
  await client.close();
});
