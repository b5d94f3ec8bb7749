// Events by the types that `sealog actions --emit ts` wrote: complete ones pass.
import { Recorder } from "sealog/testing";
import type { Action, CatalogEvent } from "./actions.js";

const events: CatalogEvent[] = [
  { action: "user.login" },
  { action: "user.login", actor_id: "u-17", metadata: { method: "password", absent: undefined } },
  { action: "order.shipped", metadata: { carrier: "DHL", "tracking-id": 4711, weight: null } },
  { action: 'order "returned" */', actor_id: null, metadata: { class: true, metadata: {}, actor_id: [] } },
  { action: "order_shipped", metadata: null },
  { action: "import", metadata: { "9 lives": 9, "größe": "XL" } },
  { action: "ai_act.inference_logged", metadata: { ai_system_id: "s-1", model_version: "2" } },
];
const name: Action = "order.shipped";
const recorder = new Recorder();
for (const event of events) await recorder.log(event);
recorder.assertLogged({ action: name, metadata: { carrier: "DHL" } });
recorder.assertCount(7);
