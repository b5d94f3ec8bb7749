import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { KEY } from "./service.mjs";

/** A server that stores the resources of batches, or refuses connections. */
async function server(t) {
  const resources = [];
  const http = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const { events } = JSON.parse(body);
    resources.push(...events.map(({ resource }) => resource));
    response.writeHead(202).end(JSON.stringify({ log_ids: events.map((_, i) => `ID${i}`), request_id: "req_1" }));
  });
  await new Promise((resolve) => http.listen(0, "127.0.0.1", resolve));
  t.after(() => http.close());
  return { url: `http://127.0.0.1:${http.address().port}`, resources };
}

/** Runs a program that has a client `sealog` and has queued r1. Resolves with its end. */
function program(url, code, options = {}) {
  const all = JSON.stringify({ url, apiKey: KEY, flushIntervalMs: 600_000, ...options });
  const source = `import { Sealog } from ${JSON.stringify(new URL("../dist/esm/node.js", import.meta.url).href)};
    const sealog = new Sealog(${all});
    sealog.enqueue({ action: "user.login", resource: "r1" });
    ${code}`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", source]);
  let stderr = "";
  child.stderr.on("data", (chunk) => { stderr += chunk; });
  const ended = new Promise((resolve) => child.on("exit", (code, signal) => resolve({ code, signal, stderr })));
  const ready = new Promise((resolve) => child.stdout.once("data", resolve));
  return { child, ended, ready };
}

const STAY = "setInterval(() => {}, 1000); console.log('ready');";

test("a signal sends what is queued and then has its usual effect", async (t) => {
  const { url, resources } = await server(t);
  const { child, ended, ready } = program(url, STAY);
  await ready;
  child.kill("SIGTERM");
  assert.equal((await ended).signal, "SIGTERM");
  assert.deepEqual(resources, ["r1"]);
});

test("a handler of the application decides when the process ends, and can still log", async (t) => {
  const { url, resources } = await server(t);
  // The pause gives the client's hook the time to end the process or to repeat the signal, which it must not.
  const { child, ended, ready } = program(url, `${STAY} let signals = 0; process.on("SIGTERM", async () => {
    if (++signals > 1) return;
    await sealog.flush();
    await new Promise((resolve) => setTimeout(resolve, 300));
    sealog.enqueue({ action: "user.logout", resource: "r2" });
    await sealog.close();
    process.exit(10 + signals);
  });`);
  await ready;
  child.kill("SIGTERM");
  assert.equal((await ended).code, 11);
  assert.deepEqual(resources, ["r1", "r2"]);
});

test("the end of the program sends what is queued", async (t) => {
  const { url, resources } = await server(t);
  assert.equal((await program(url, "", { flushIntervalMs: 10 }).ended).code, 0);
  assert.deepEqual(resources, ["r1"]);
});

test("process.exit() with queued events is an error that cannot be overlooked", async (t) => {
  const { url } = await server(t);
  const { stderr } = await program(url, "process.exit(0);").ended;
  assert.match(stderr, /1 queued events that were not sent/);
});

test("with a spool the program ends although the server is away, and the event stays", async (t) => {
  const dir = mkdtempSync(join(tmpdir(), "sealog-exit-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const options = { spoolDir: dir, retryBaseMs: 20, exitTimeoutMs: 200 };
  const { code } = await program("http://127.0.0.1:9", "", options).ended;
  assert.equal(code, 0);
  assert.equal(readdirSync(dir).length, 1);
  const { url, resources } = await server(t);
  await program(url, "await sealog.close();", options).ended;
  assert.deepEqual(resources, ["r1", "r1"]);
  assert.deepEqual(readdirSync(dir), []);
});
