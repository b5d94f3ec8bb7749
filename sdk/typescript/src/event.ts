import { ValidationError } from "./errors.js";

/** A value that JSON can hold without a loss. */
export type JsonValue = string | number | boolean | null | JsonValue[] | { [key: string]: JsonValue | undefined };
export type Metadata = { [key: string]: JsonValue | undefined };

/** An event to log. The fields have the names of the interface; `undefined` and `null` count as absent. */
export interface Event<Action extends string = string> {
  /** A name from the catalog or a registered custom action, for example `user.login`. */
  action: Action;
  /** A stable internal id of the person or system; no e-mail address. */
  actor_id?: string | null | undefined;
  /** The form `type/id` is recommended, for example `document/42`. */
  resource?: string | null | undefined;
  metadata?: Metadata | null | undefined;
  actor_type?: string | null | undefined;
  resource_type?: string | null | undefined;
  severity?: string | null | undefined;
  session_id?: string | null | undefined;
  /** The client's own time, by RFC 3339. */
  ts_client?: string | null | undefined;
}

/** An event in the bytes that will be sent. */
export interface Encoded {
  readonly text: string;
  readonly bytes: number;
}

export const EVENT_BYTES_MAX = 262_144;
const FIELD_CHARS_MAX = 255;
const DEPTH_MAX = 500; // of objects in objects; JSON.stringify itself overflows the stack somewhere above

const STRING_FIELDS = new Set([
  "action", "actor_id", "resource", "actor_type", "resource_type", "severity", "session_id", "ts_client",
]);
const RFC3339 = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/;
const HALF_CHARACTER = /[\ud800-\udfff]/u; // with the flag u, proper pairs do not match

/**
 * Checks an event and serialises it. Throws a `ValidationError` that names the field and what to do about it.
 */
export function encode(event: Event): Encoded {
  let text: string;
  if (!isSound(event)) throw faultOf(event);
  try {
    text = JSON.stringify(event);
  } catch {
    throw faultOf(event);
  }
  // JSON.stringify writes half a character as the escape \udxxx; a text that holds these letters itself is
  // sound.
  if (text.includes("\\ud") && hasHalfCharacter(event)) throw faultOf(event);
  const bytes = utf8Length(text);
  if (bytes > EVENT_BYTES_MAX) throw tooLarge(event, bytes);
  return { text, bytes };
}

type NodeGlobals = { Buffer?: { byteLength(text: string): number } };
const nodeBuffer = (globalThis as NodeGlobals).Buffer;

/** Bytes of a text in UTF-8. */
export function utf8Length(text: string): number {
  return nodeBuffer ? nodeBuffer.byteLength(text) : new TextEncoder().encode(text).length;
}

/** The quick check, which says only whether there is a fault; `faultOf` searches it again and names it. */
function isSound(event: unknown): boolean {
  if (!isPlainObject(event)) return false;
  for (const name in event) {
    const value = event[name];
    if (value === undefined || value === null) {
      if (name === "metadata" || STRING_FIELDS.has(name)) continue;
      return false;
    }
    if (name === "metadata") {
      if (!isPlainObject(value) || !isJson(value, 0)) return false;
    } else if (typeof value !== "string" || !STRING_FIELDS.has(name) || value.length > FIELD_CHARS_MAX
      || value.includes("\0") || (name === "ts_client" && !RFC3339.test(value))) {
      // A text of more UTF-16 units than 255 may still have no more than 255 characters: `faultOf` counts
      // them.
      if (faultOfField(name, value) !== undefined) return false;
    }
  }
  return typeof event["action"] === "string" && event["action"] !== "";
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  // Compared with null and not with Object.prototype, because objects may come from another realm (vm,
  // iframe).
  return prototype === null || (Object.getPrototypeOf(prototype) === null && !Array.isArray(value));
}

function isJson(value: unknown, depth: number): boolean {
  switch (typeof value) {
    case "string": case "boolean": return true;
    case "number": return Number.isFinite(value);
    case "object": break;
    default: return false;
  }
  if (value === null) return true;
  if (depth > DEPTH_MAX) return false;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) if (!isJson(value[i], depth + 1)) return false;
    return true;
  }
  if (!isPlainObject(value)) return false;
  for (const key in value) {
    const member = value[key];
    if (member !== undefined && !isJson(member, depth + 1)) return false;
  }
  return true;
}

function hasHalfCharacter(value: unknown): boolean {
  if (typeof value === "string") return HALF_CHARACTER.test(value);
  if (typeof value !== "object" || value === null) return false;
  return Object.entries(value).some(([key, member]) => HALF_CHARACTER.test(key) || hasHalfCharacter(member));
}

const wrong = (field: string, problem: string): ValidationError =>
  new ValidationError(`${field} ${problem}`, { code: "client/invalid_event", field });

function faultOf(event: unknown): ValidationError {
  if (!isPlainObject(event)) {
    return wrong("event", `is ${kindOf(event)}; pass a plain object such as {action: "user.login"}`);
  }
  for (const [name, value] of Object.entries(event)) {
    const fault = faultOfField(name, value);
    if (fault) return fault;
  }
  return wrong("action", "is missing; name what happened, for example \"user.login\"");
}

function faultOfField(name: string, value: unknown): ValidationError | undefined {
  if (name !== "metadata" && !STRING_FIELDS.has(name)) {
    const snake = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    const meant = [...STRING_FIELDS].find((field) => field === snake || field.startsWith(`${snake}_`));
    return wrong(name, "is not a field of an event, and the service would ignore it; "
      + (meant === undefined ? `put it into metadata.${name}` : `use ${meant}, or metadata.${name}`));
  }
  if (value === undefined || value === null) return undefined;
  if (name === "metadata") {
    if (isPlainObject(value)) return faultIn(value, "metadata", []);
    return wrong("metadata", `is ${kindOf(value)}; pass a plain object`);
  }
  if (typeof value !== "string") return wrong(name, `is ${kindOf(value)}; pass a string`);
  if (HALF_CHARACTER.test(value)) return halfCharacter(name);
  if (value.includes("\0")) return wrong(name, "contains the character NUL; remove it");
  const chars = value.length > FIELD_CHARS_MAX ? [...value].length : 0;
  if (chars > FIELD_CHARS_MAX) {
    return wrong(name, `has ${chars} characters; at most ${FIELD_CHARS_MAX} fit, put longer texts into metadata`);
  }
  if (name === "ts_client" && !RFC3339.test(value)) {
    return wrong(name, "is not a time by RFC 3339; write it like 2026-11-14T12:00:01.250Z");
  }
  return undefined;
}

const halfCharacter = (field: string): ValidationError =>
  wrong(field, "contains half a character (a lone surrogate), often from a text that was cut; cut between characters");

/** The first fault inside metadata. `around` are the objects that contain this value, to find cycles. */
function faultIn(value: unknown, path: string, around: readonly unknown[]): ValidationError | undefined {
  if (typeof value === "string") return HALF_CHARACTER.test(value) ? halfCharacter(path) : undefined;
  if (typeof value === "boolean" || value === null || Number.isFinite(value)) return undefined;
  if (typeof value === "number") return wrong(path, `is ${value}, which JSON cannot hold; send null or a string`);
  if (typeof value === "bigint") return wrong(path, "is a BigInt, which JSON cannot hold; send String(value)");
  if (value instanceof Date) return wrong(path, "is a Date; send value.toISOString()");
  if (around.includes(value)) return wrong(path, "contains itself; send a copy without the cycle");
  if (around.length > DEPTH_MAX) return wrong(path, `is nested more than ${DEPTH_MAX} levels deep; flatten it`);
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const fault = faultIn(value[i], `${path}[${i}]`, [...around, value]);
      if (fault) return fault;
    }
    return undefined;
  }
  if (!isPlainObject(value)) {
    return wrong(path, `is ${kindOf(value)}, which JSON cannot hold; send a plain object, an array or a string`);
  }
  for (const [key, member] of Object.entries(value)) {
    const at = /^[\w$]+$/.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`;
    if (HALF_CHARACTER.test(key)) return halfCharacter(at);
    const fault = member === undefined ? undefined : faultIn(member, at, [...around, value]);
    if (fault) return fault;
  }
  return undefined;
}

function tooLarge(event: Event, bytes: number): ValidationError {
  const sizes = Object.entries(event.metadata ?? {}).map(([key, value]) =>
    ({ key, size: utf8Length(JSON.stringify(value) ?? "") + key.length + 4 }));
  const largest = sizes.reduce((a, b) => (b.size > a.size ? b : a), { key: "", size: 0 });
  const advice = largest.size > bytes / 4
    ? `metadata.${largest.key} has ${largest.size} of them; store it elsewhere and log its address or digest`
    : `the ${sizes.length} fields of metadata are too large together; log fewer of them, or several events`;
  return wrong("event", `has ${bytes} bytes, more than 262,144: ${advice}`);
}

function kindOf(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  if (Array.isArray(value)) return "an array";
  if (typeof value !== "object") return `a ${typeof value}`;
  return `an instance of ${(value.constructor as { name?: string } | undefined)?.name ?? "a class"}`;
}
