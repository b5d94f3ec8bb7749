// Works in every runtime with fetch: no import of Node.
import { Sealog, verifyEvents, pseudonymize } from "sealog";
import { Recorder } from "sealog/testing";

const requests = [];
const fetch = async (url, init) => {
  requests.push({ url, ...init });
  const count = url.endsWith("/batch") ? JSON.parse(init.body).events.length : 0;
  const ids = count ? { log_ids: Array(count).fill("ID") } : { log_id: "ID" };
  return new Response(JSON.stringify({ ...ids, request_id: "req_1" }), { status: 202, headers: { "Sealog-Chain-Seq": "1", "Sealog-Hash": "ab" } });
};
const receipts = [];
const sealog = new Sealog({
  url: "https://audit.example.com", apiKey: `at_live_${"k".repeat(49)}`, fetch, flushIntervalMs: 1,
  onReceipt: (receipt) => receipts.push(receipt),
});
const { log_id, chain_seq } = await sealog.log({ action: "user.login" });
await sealog.enqueue({ action: "user.login" });
await sealog.enqueue({ action: "user.logout" });
const left = await sealog.close();
const recorder = new Recorder();
await recorder.enqueue({ action: "user.login" });
recorder.assertCount(1);
const keys = requests.map(({ headers }) => headers["Idempotency-Key"]);
const facts = [log_id, chain_seq, left, receipts.length, requests.length, new Set(keys).size, verifyEvents([]).valid];
const expected = ["ID", 1, 0, 2, 2, 2, true];
if (JSON.stringify(facts) !== JSON.stringify(expected)) throw new Error(`${JSON.stringify(facts)} is not ${JSON.stringify(expected)}`);
if (pseudonymize("key", "value") !== "ps_90fbfcf15e74a36b89dbdb2a721d9aec") throw new Error(pseudonymize("key", "value"));
