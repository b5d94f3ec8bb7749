import type { Action, CatalogEvent } from "./actions.js";

export const events: CatalogEvent[] = [
  { action: "user.logn" }, // wrong: no such action
  { action: "user.login", actorId: "u-17" }, // wrong: no such field
  { action: "order.shipped" }, // wrong: no metadata
  { action: "order.shipped", metadata: null }, // wrong: no metadata
  { action: "order.shipped", metadata: { carrier: "DHL" } }, // wrong: no tracking-id
  { action: "order.shipped", metadata: { carrier: "DHL", "tracking-id": null } }, // wrong: null is no value
  { action: "order.shipped", metadata: { carrier: "DHL", "tracking-id": undefined } }, // wrong: no value
  { action: "order.shipped", metadata: { carrier: "DHL", "tracking-id": new Date() } }, // wrong: not JSON
  { action: "ai_act.inference_logged", metadata: { ai_system_id: "s-1" } }, // wrong: no model_version
];
export const name: Action = "order.shiped"; // wrong: no such action
