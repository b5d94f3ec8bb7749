const { Sealog: Portable } = require("sealog");
const { Sealog, ValidationError } = require("sealog/node");
const { Recorder } = require("sealog/testing");
const { mkdtempSync } = require("node:fs");

if (!(Sealog.prototype instanceof Portable)) throw new Error("two copies of the client");
const headers = { "Sealog-Chain-Seq": "1-1", "Sealog-Hash": "ab" };
const fetch = async (_, { body }) =>
  new Response(JSON.stringify({ log_ids: JSON.parse(body).events.map(() => "ID") }), { status: 202, headers });
const receipts = [];
const sealog = new Sealog({
  url: "https://audit.example.com", apiKey: `at_live_${"k".repeat(49)}`, fetch, spoolDir: mkdtempSync("spool-"),
  onReceipt: (receipt, event) => receipts.push(event.action),
});
sealog.enqueue({ action: "user.login" });
sealog.close().then((left) => {
  if (left !== 0 || receipts[0] !== "user.login") throw new Error(`${left} left, receipts of ${receipts}`);
});
try {
  new Recorder().enqueue({});
  throw new Error("an event without an action was accepted");
} catch (error) {
  if (!(error instanceof ValidationError)) throw error;
}
