// The middlewares in real Express and Fastify, over real sockets.
import assert from "node:assert/strict";
import { request } from "node:http";
import { test } from "node:test";
import express from "express";
import fastify from "fastify";
import { currentContext, expressContext, fastifyContext } from "../../dist/esm/node.js";
import { Recorder } from "../../dist/esm/testing.js";

const OPTIONS = {
  trustedProxies: ["127.0.0.0/8"], actor: (request) => request.user?.id, session: (request) => request.sid,
};
const TRACE = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Sends a body in two pieces, so that the framework has to wait for the second one. */
function post(port, path, id) {
  const headers = {
    "content-type": "application/json", "x-forwarded-for": `203.0.113.${id}`, "x-request-id": `req-${id}`,
    traceparent: TRACE,
  };
  return new Promise((resolve, reject) => {
    const sent = request({ host: "127.0.0.1", port, path, method: "POST", headers, agent: false }, (answer) =>
      answer.resume().on("end", () => resolve(answer.statusCode)));
    sent.on("error", reject);
    sent.write(`{"id":`);
    setTimeout(() => sent.end(`${id}}`), 20 + (id % 3) * 10);
  });
}

/** What each of 20 requests that run at the same time has to leave behind. */
async function check(port, recorder) {
  const ids = Array.from({ length: 20 }, (_, i) => i + 1);
  assert.deepEqual(await Promise.all(ids.map((id) => post(port, `/documents/${id}`, id))), ids.map(() => 200));
  const events = recorder.events.toSorted((a, b) => Number(a.resource) - Number(b.resource));
  assert.deepEqual(events, ids.map((id) => ({
    action: "document.updated", resource: `${id}`, actor_id: `u-${id}`, session_id: `s-${id}`,
    metadata: { ip_address: `203.0.113.${id}`, request_id: `req-${id}` },
  })));
  assert.equal(currentContext(), undefined);
}

test("Express: events have the context of their request behind a body parser and an await", async (t) => {
  const recorder = new Recorder({ context: currentContext });
  const app = express();
  app.use(expressContext(OPTIONS));
  app.use(express.json());
  app.use(async (request, _response, next) => { // an authentication
    await pause(5);
    Object.assign(request, { user: { id: `u-${request.body.id}` }, sid: `s-${request.body.id}` });
    next();
  });
  app.post("/documents/:id", async (request, response) => {
    await pause(5);
    assert.equal(currentContext()?.traceparent, TRACE);
    await recorder.enqueue({ action: "document.updated", resource: request.params.id });
    response.end();
  });
  const server = await new Promise((resolve) => { const one = app.listen(0, "127.0.0.1", () => resolve(one)); });
  t.after(() => server.close());
  await check(server.address().port, recorder);
});

test("Fastify: events have the context of their request behind a body parser and an await", async (t) => {
  const recorder = new Recorder({ context: currentContext });
  const app = fastify();
  await app.register(fastifyContext(OPTIONS));
  app.addHook("preHandler", async (request) => { // an authentication
    await pause(5);
    Object.assign(request, { user: { id: `u-${request.body.id}` }, sid: `s-${request.body.id}` });
  });
  await app.register(async (inner) => { // a plugin with routes of its own
    inner.post("/documents/:id", async (request) => {
      await pause(5);
      assert.equal(currentContext()?.traceparent, TRACE);
      await recorder.enqueue({ action: "document.updated", resource: request.params.id });
      return "";
    });
  });
  await app.listen({ port: 0, host: "127.0.0.1" });
  t.after(() => app.close());
  await check(app.server.address().port, recorder);
});
