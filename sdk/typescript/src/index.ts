export * from "./errors.js";
export type { Event, JsonValue, Metadata } from "./event.js";
