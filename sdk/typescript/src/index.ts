export * from "./errors.js";
export type { Event, JsonValue, Metadata } from "./event.js";
export { canonical, eventsIn, hashOf, verifyEvents } from "./verify.js";
export type { BreakReason, Head, RawEvent, Verification } from "./verify.js";
