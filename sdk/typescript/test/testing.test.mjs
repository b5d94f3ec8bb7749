import assert from "node:assert/strict";
import { test } from "node:test";
import { Recorder } from "../dist/esm/testing.js";

test("a recorder finds an event by some of its fields", async () => {
  const recorder = new Recorder();
  await recorder.log({ action: "user.login", actor_id: "u-1", metadata: { method: "password", tries: [1, 2] } });
  await recorder.enqueue({ action: "user.logout", actor_id: "u-1" });
  const found = recorder.assertLogged({ action: "user.login", metadata: { tries: [1, 2] } });
  assert.equal(found.metadata.method, "password");
  recorder.assertCount(2, { actor_id: "u-1" });
  recorder.assertNotLogged({ action: "user.deleted" });
});

test("an assertion that fails lists the events there are", async () => {
  const recorder = new Recorder();
  assert.throws(() => recorder.assertLogged({ action: "user.login" }), /no event was logged/);
  await recorder.enqueue({ action: "user.login", metadata: { tries: [1, 2] } });
  assert.throws(() => recorder.assertLogged({ action: "user.logout" }), /logged were:\n.*user\.login/);
  assert.throws(() => recorder.assertLogged({ metadata: { tries: [1] } }), /no event matches/);
  assert.throws(() => recorder.assertNotLogged(), /an event matches/);
  assert.throws(() => recorder.assertCount(2), /1 events match/);
});

test("a recorder rejects what a client rejects", async () => {
  const recorder = new Recorder();
  assert.throws(() => recorder.enqueue({ action: "user.login", metadata: { at: new Date() } }), /toISOString/);
  await assert.rejects(recorder.log({ actor_id: "u-1" }), { field: "action" });
  recorder.assertCount(0);
});

test("a recorder applies context and beforeSend", async () => {
  const recorder = new Recorder({
    context: () => ({ actor_id: "u-1" }),
    beforeSend: ({ metadata, ...event }) => event,
  });
  await recorder.enqueue({ action: "user.login", metadata: { secret: 1 } });
  assert.deepEqual(recorder.events, [{ action: "user.login", actor_id: "u-1" }]);
});

test("a recorder fails once where a test asks for it", async () => {
  const recorder = new Recorder();
  recorder.failNext(new Error("down"));
  await assert.rejects(recorder.log({ action: "user.login" }), /down/);
  assert.equal((await recorder.log({ action: "user.login" })).chain_seq, 1);
  await recorder.close();
  await assert.rejects(recorder.log({ action: "user.login" }), { code: "client/closed" });
});
