import assert from "node:assert/strict";
import { createServer, get } from "node:http";
import { BlockList } from "node:net";
import { test } from "node:test";
import { blockListOf, clientAddress } from "../dist/esm/context.js";
import { currentContext, expressContext, fastifyContext, withContext } from "../dist/esm/node.js";
import { Recorder } from "../dist/esm/testing.js";

const TRACE = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;

/** Answers one request with `handler`, sent with these headers through a real socket. */
async function serve(handler, headers) {
  const server = createServer(handler);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => get({ port, host: "127.0.0.1", headers, agent: false }, (answer) =>
    answer.resume().on("end", resolve)));
  await new Promise((resolve) => server.close(resolve));
}

test("Express: an event gets actor, session, address, request id and trace of its request", async () => {
  const recorder = new Recorder({ context: currentContext });
  let trace;
  const middleware = expressContext({
    trustedProxies: ["127.0.0.0/8"], actor: (request) => request.user?.id, session: () => "s-1",
  });
  await serve((request, response) => middleware(request, response, async () => {
    request.user = { id: "u-17" }; // authentication runs behind the middleware
    await new Promise((resolve) => setImmediate(resolve));
    recorder.enqueue({ action: "document.updated", resource: "document/1" });
    trace = currentContext().traceparent;
    response.end();
  }), { "x-forwarded-for": "203.0.113.9", "x-request-id": "abc-1", traceparent: TRACE });
  assert.deepEqual(recorder.events, [{
    action: "document.updated", resource: "document/1", actor_id: "u-17", session_id: "s-1",
    metadata: { ip_address: "203.0.113.9", request_id: "abc-1" },
  }]);
  assert.equal(trace, TRACE);
  assert.equal(currentContext(), undefined);
});

test("Fastify: the hook reaches all routes, not those of the plugin alone", async () => {
  const recorder = new Recorder({ context: currentContext });
  const plugin = fastifyContext();
  assert.equal(plugin[Symbol.for("skip-override")], true);
  let hook;
  let isDone = false;
  const addHook = (name, added) => { assert.equal(name, "onRequest"); hook = added; };
  plugin({ addHook }, {}, () => { isDone = true; });
  assert.ok(isDone);
  const request = { id: "req-7", headers: { "x-forwarded-for": "203.0.113.9" }, socket: { remoteAddress: "::1" } };
  hook(request, {}, () => recorder.enqueue({ action: "user.login" }));
  assert.deepEqual(recorder.events[0].metadata, { ip_address: "::1", request_id: "req-7" });
});

test("a header that could carry anything is not copied", () => {
  const recorder = new Recorder({ context: currentContext });
  const request = { headers: { "x-request-id": "a b\n", traceparent: "nonsense" }, socket: {} };
  expressContext()(request, {}, () => recorder.enqueue({ action: "user.login" }));
  assert.deepEqual(recorder.events, [{ action: "user.login" }]);
});

test("the actor can be set while the request runs", () => {
  const recorder = new Recorder({ context: currentContext });
  expressContext({ actor: () => null })({ headers: {} }, {}, () => {
    currentContext().actor_id = "u-1";
    recorder.enqueue({ action: "user.login" });
  });
  assert.equal(recorder.events[0].actor_id, "u-1");
});

test("an inner context adds to the outer one", () => {
  const recorder = new Recorder({ context: currentContext });
  withContext({ actor_id: "u-1", metadata: { a: 1 } }, () =>
    withContext({ resource: "r", metadata: { b: 2 } }, () => recorder.enqueue({ action: "user.login" })));
  assert.deepEqual(recorder.events[0],
    { action: "user.login", actor_id: "u-1", resource: "r", metadata: { a: 1, b: 2 } });
});

test("a forwarded address counts only from the right, behind trusted proxies (spec 8.2)", () => {
  const trusted = blockListOf(["10.0.0.0/8", "2001:db8::1"]);
  const cases = [
    ["192.0.2.1", "203.0.113.9", "192.0.2.1"],
    ["10.0.0.1", "", "10.0.0.1"],
    ["10.0.0.1", "1.1.1.1, 203.0.113.9", "203.0.113.9"],
    ["::ffff:10.0.0.1", "203.0.113.9:4711, 10.9.9.9", "203.0.113.9"],
    ["2001:db8::1", "[2001:db8::2]:80", "2001:db8::2"],
    ["10.0.0.1", "203.0.113.9, unknown, 10.0.0.2", "10.0.0.2"],
    ["10.0.0.1", `203.0.113.9${", 10.0.0.2".repeat(32)}`, "10.0.0.2"],
    ["10.0.0.1", `203.0.113.9${", 10.0.0.2".repeat(31)}`, "203.0.113.9"],
    [undefined, "203.0.113.9", undefined],
  ];
  for (const [peer, forwarded, client] of cases) assert.equal(clientAddress(peer, forwarded, trusted), client);
  assert.equal(clientAddress("127.0.0.1", "203.0.113.9", new BlockList()), "127.0.0.1");
});

test("a range that is none is refused with an example", () => {
  for (const bad of ["proxy.local", "10.0.0.0/33", "10.0.0.0/8/8", "10.0.0.0/x", "10.0.0.0/"]) {
    assert.throws(() => expressContext({ trustedProxies: [bad] }), { field: "trustedProxies" }, bad);
  }
});
