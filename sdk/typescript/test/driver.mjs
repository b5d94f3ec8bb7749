// Maps the steps of the behaviour suite (sdk/suite/README.md, section 2) to calls of this library.
import { BlockList } from "node:net";
import { createInterface } from "node:readline";
import { pseudonymize, Sealog, SealogError, verifyEvents, verifyProof, withContext } from "../dist/esm/node.js";
import { blockListOf, clientAddress } from "../dist/esm/context.js";

const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

const BEFORE_SEND = {
  remove_secret: ({ metadata: { secret, ...rest }, ...event }) => ({ ...event, metadata: rest }),
  none: () => undefined,
  fail: () => { throw new Error("before_send failed on purpose"); },
};

const SPECIAL = {
  nan: () => NaN,
  infinity: () => Infinity,
  date: () => new Date(0),
  bytes: () => new Uint8Array(3),
  function: () => () => 1,
  cycle: () => { const loop = {}; loop.loop = loop; return loop; },
  lone_surrogate: () => "half \ud83d",
};
const revive = (_, value) => (value?.$special ? SPECIAL[value.$special]() : value);

let client;
let seen = { receipts: [], errors: [], warnings: [] };
let onSeen = () => {};
const note = (list, item) => { seen[list].push(item); onSeen(); };
const background = new Map();

function optionsOf({ clock_offset_ms = 0, before_send, ...options }) {
  const named = Object.fromEntries(Object.entries(options).map(([name, value]) => [camel(name), value]));
  return {
    ...named,
    now: () => Date.now() + clock_offset_ms,
    ...(before_send && { beforeSend: BEFORE_SEND[before_send] }),
    onReceipt: (receipt, { resource }) => note("receipts", { ...receipt, resource }),
    onError: (error, { resource }) => note("errors", { resource, error: errorOf(error) }),
    onWarning: ({ code }) => note("warnings", code),
  };
}

/** Options have the names of this language; the suite compares those of the protocol. */
function errorOf(error) {
  if (!(error instanceof SealogError)) throw error;
  const { name, code, status, request_id, doc_url, suggestion, retry_after_s } = error;
  const field = code === "client/invalid_option" ? snake(error.field) : error.field;
  const message = error.message.replace(/\b(spool|queue|timeout)[A-Z]\w*\b/g, snake);
  return { type: name, code, status, message, request_id, doc_url, suggestion, field, retry_after_s };
}

const STEPS = {
  new: ({ options }) => { client = new Sealog(optionsOf(options)); return null; },
  log: ({ event, key, context = {}, traceparent }) =>
    withContext({ ...context, traceparent }, () => client.log(event, { idempotencyKey: key })),
  enqueue: async ({ event, events = [event], context = {} }) => {
    for (const one of events) await withContext(context, () => client.enqueue(one));
    return null;
  },
  flush: async ({ timeout_ms }) => ({ pending: await client.flush(timeout_ms) }),
  close: async ({ timeout_ms }) => ({ pending: await client.close(timeout_ms) }),
  collect: async ({ until = {} }) => {
    while (Object.entries(until).some(([list, count]) => seen[list].length < count)) {
      await new Promise((resolve) => { onSeen = resolve; });
    }
    const collected = seen;
    seen = { receipts: [], errors: [], warnings: [] };
    return collected;
  },
  is_pending: async ({ name, for_ms }) => {
    const late = new Promise((resolve) => setTimeout(resolve, for_ms, { pending: true }));
    return await Promise.race([late, background.get(name).then(() => ({ pending: false }))]);
  },
  held: () => client.held().map(({ id, reason, events }) =>
    ({ id, reason, resources: events.map(({ resource }) => resource) })),
  release: ({ held, choice }) => { client.release(held, choice); return null; },
  audit: () => client.audit(),
  list: async ({ filters, limit }) => {
    const resources = [];
    for await (const { resource } of client.events(filters, { pageSize: limit })) resources.push(resource);
    return { resources };
  },
  get: ({ log_id }) => client.event(log_id),
  actions: async () => ({ total: (await client.actions()).length }),
  verify: ({ from_seq, to_seq }) => client.verify({ from_seq, to_seq }),
  verify_events: ({ texts, heads }) => verifyEvents(texts, heads),
  verify_proof: ({ text, proof, vkey }) => verifyProof(text, proof, vkey),
  pseudonymize: ({ key, value }) => pseudonymize(key, value),
  client_address: ({ peer, forwarded, trusted }) =>
    clientAddress(peer, forwarded.join(","), trusted ? blockListOf(trusted) : new BlockList()) ?? null,
};

async function outcomeOf(step) {
  try {
    return { ok: (await STEPS[step.do](step)) ?? null };
  } catch (error) {
    return { error: errorOf(error) };
  }
}

const show = (_, value) => (typeof value === "bigint" ? Number(value) : value);
for await (const line of createInterface({ input: process.stdin })) {
  const step = JSON.parse(line, revive);
  let outcome = { ok: null };
  if (!STEPS[step.do] && step.do !== "join") outcome = { unsupported: true };
  else if (step.do === "join") outcome = await background.get(step.name);
  else if (step.background) background.set(step.background, outcomeOf(step));
  else outcome = await outcomeOf(step);
  process.stdout.write(`${JSON.stringify({ id: step.id, ...outcome }, show)}\n`);
}
process.exit();
