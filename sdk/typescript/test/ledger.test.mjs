import assert from "node:assert/strict";
import { test } from "node:test";
import { runLedger } from "./ledger.mjs";
import { isMissing } from "./server.mjs";

test("no kill of the application or the service loses, doubles or reorders an event", { skip: isMissing }, async () => {
  const { queued, receipts, stored, warnings, ...rest } = await runLedger(3, 2);
  assert.ok(queued > 10, `${queued} events queued`);
  assert.ok(stored >= queued, `${stored} stored`);
  assert.ok(receipts >= queued, `${receipts} receipts`);
  assert.deepEqual(rest, {
    queued_lost: 0, acknowledged_lost: 0, stored_twice: 0, out_of_order: 0, errors: 0, left_in_spool: 0,
    is_chain_valid: true,
  });
});
