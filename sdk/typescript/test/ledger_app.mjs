// The application that the ledger kills: it queues events through a spool and writes down what it was
// promised. With the argument "drain" it queues nothing, sends what is left and ends.
import { appendFileSync } from "node:fs";
import { setImmediate as pause } from "node:timers/promises";
import { Sealog } from "../dist/esm/node.js";

const [mode, url, apiKey, spoolDir, ledger, first] = process.argv.slice(2);
const note = (...fields) => appendFileSync(ledger, `${fields.join(" ")}\n`);
const sealog = new Sealog({
  url, apiKey, spoolDir, retryBaseMs: 10, flushIntervalMs: 5, batchMaxEvents: 20, timeoutMs: 5_000,
  onReceipt: ({ log_id, chain_seq }, { resource }) => note("receipt", resource, log_id, chain_seq),
  onError: ({ code }, { resource }) => note("error", resource, code),
  onWarning: ({ code }) => note("warning", code),
});

if (mode === "drain") {
  note("left", await sealog.flush(60_000));
  await sealog.close();
} else {
  for (let n = Number(first); ; n++) {
    await sealog.enqueue({ action: "document.updated", resource: String(n), metadata: { text: "é".repeat(n % 200) } });
    note("queued", n);
    if (n % 10 === 0) await pause(); // lets the sender run
  }
}
