import assert from "node:assert/strict";
import { test } from "node:test";
import { countThatFits, isRejection, isRetryable, MemoryQueue, parcelOf, waitMs } from "../dist/esm/core.js";
import { errorOf, retryAfterOf } from "../dist/esm/errors.js";

const answer = (status, body, headers = {}) =>
  ({ status, text: typeof body === "string" ? body : JSON.stringify(body), header: (name) => headers[name] ?? null });
const sealogError = (status, code) => errorOf(answer(status, { error: { code, message: "…" } }));
const RULES = { maxAttempts: 5, retryBaseMs: 1000 };
const LIMITS = {
  batchMaxEvents: 3, batchMaxBytes: 1000, flushIntervalMs: 50, queueMaxEvents: 5, queueMaxBytes: 500,
};
const event = (bytes) => ({ text: "x".repeat(bytes), bytes });
const queueAt = (clock) => {
  let keys = 0;
  return new MemoryQueue(LIMITS, () => `key${++keys}`, () => clock.now);
};

test("waits double up to eight times the base, jitter covers all of it", () => {
  const error = sealogError(500, "event/write_failed");
  const bounds = [1, 2, 3, 4].map((failures) => waitMs(error, failures, RULES, () => 1));
  assert.deepEqual(bounds, [1000, 2000, 4000, 8000]);
  assert.equal(waitMs(error, 4, RULES, () => 0), 0);
});

test("after the last attempt of others, a spool waits up to sixty times the base", () => {
  const error = sealogError(500, "event/write_failed");
  assert.deepEqual([5, 6, 7, 50].map((failures) => waitMs(error, failures, RULES, () => 1)),
    [16_000, 32_000, 60_000, 60_000]);
});

test("no wait is shorter than Retry-After", () => {
  const error = errorOf(answer(429, { error: { code: "rate/limit_exceeded" } }, { "retry-after": "7" }));
  assert.equal(waitMs(error, 1, RULES, () => 0), 7000);
  assert.equal(error.retry_after_s, 7);
});

test("a date in Retry-After is compared with the answer's date, not with this machine's clock", () => {
  const headers = { "retry-after": "Wed, 01 Jan 2020 00:00:30 GMT", date: "Wed, 01 Jan 2020 00:00:10 GMT" };
  assert.equal(retryAfterOf(answer(503, "", headers)), 20);
  assert.equal(retryAfterOf(answer(503, "", { "retry-after": "soon" })), undefined);
});

test("only what may succeed later is retried", () => {
  const page = (status) => errorOf(answer(status, "<html>", { "content-type": "text/html" }));
  const retried = [
    sealogError(500, "server/internal"), sealogError(429, "rate/limit_exceeded"), page(429), page(502),
    sealogError(409, "event/idempotency_key_in_flight"),
  ];
  const final = [
    sealogError(401, "auth/key_revoked"), sealogError(402, "subscription/trial_expired"), page(403), page(307),
    sealogError(409, "event/idempotency_key_conflict"), sealogError(422, "action/invalid"),
  ];
  assert.deepEqual(retried.map(isRetryable), retried.map(() => true));
  assert.deepEqual(final.map(isRetryable), final.map(() => false));
});

test("a batch is taken apart only if Sealog rejected it", () => {
  const codes = [[400, "validation/invalid_json"], [403, "framework/disabled"], [413, "validation/body_too_large"]];
  for (const [status, code] of codes) assert.equal(isRejection(sealogError(status, code)), true, code);
  assert.equal(isRejection(errorOf(answer(403, "<html>"))), false);
  assert.equal(isRejection(sealogError(401, "auth/key_revoked")), false);
});

test("a batch has at most so many events and bytes, and at least one event", () => {
  const overhead = '{"events":[]}'.length;
  const limits = { ...LIMITS, batchMaxBytes: overhead + 202 };
  assert.equal(countThatFits([event(100), event(100), event(1)], 0, limits), 2);
  assert.equal(countThatFits([event(100), event(101)], 0, limits), 1);
  assert.equal(countThatFits([event(900), event(1)], 0, limits), 1);
  assert.equal(countThatFits([event(1), event(1), event(1), event(1)], 0, LIMITS), 3);
});

test("a queue is full at its limits and has room again once events have ended", () => {
  const queue = queueAt({ now: 0 });
  for (let i = 0; i < 5; i++) assert.equal(queue.push(event(10)), undefined);
  assert.match(queue.push(event(10)).message, /queueMaxEvents/);
  const batch = queue.take();
  assert.equal(queue.push(event(10)).code, "client/queue_full"); // events in flight count
  queue.settle(batch, batch.members);
  assert.equal(queue.push(event(481)).message.includes("queueMaxBytes"), true);
  assert.equal(queue.push(event(480)), undefined);
  assert.equal(queue.couldFit(event(500)), true);
  assert.equal(queue.couldFit(event(501)), false);
});

test("a batch is due when it is full, or when its first event has waited long enough", () => {
  const clock = { now: 1000 };
  const queue = queueAt(clock);
  assert.equal(queue.dueAt(), Infinity);
  queue.push(event(1));
  clock.now = 1040;
  queue.push(event(1));
  assert.equal(queue.dueAt(), 1050);
  queue.push(event(1));
  assert.equal(queue.dueAt(), -Infinity);
});

test("a batch keeps its key, and its events have derived keys once it is split", () => {
  const queue = queueAt({ now: 0 });
  for (const text of ["{1}", "{2}", "{3}"]) queue.push({ text, bytes: 3 });
  const batch = queue.take();
  assert.equal(queue.take(), batch);
  assert.deepEqual(parcelOf(batch), {
    path: "/v1/events/batch", key: "key1", body: '{"events":[{1},{2},{3}]}', members: batch.members,
  });
  queue.split(batch);
  for (const [index, body] of [[0, "{1}"], [1, "{2}"], [2, "{3}"]]) {
    const parcel = parcelOf(queue.take());
    assert.deepEqual([parcel.path, parcel.key, parcel.body], ["/v1/events", `key1-${index}`, body]);
    queue.settle(batch, parcel.members);
  }
  assert.equal(queue.pending, 0);
  assert.equal(queue.take(), undefined);
});
