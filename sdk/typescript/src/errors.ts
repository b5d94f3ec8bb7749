/** Facts that an error has beyond its message. The fields have the names of the service's error object. */
export interface ErrorFacts {
  /**
   * Stable, `category/slug`: what programs decide by. Codes that begin with `client/` come from this library.
   */
  code?: string | undefined;
  status?: number | undefined;
  request_id?: string | undefined;
  doc_url?: string | undefined;
  suggestion?: string | undefined;
  /** Path of the wrong field, for example `metadata.items[2].price`. */
  field?: string | undefined;
  /** Seconds to wait before the next attempt, where the service gave a number or a date. */
  retry_after_s?: number | undefined;
  cause?: unknown;
}

/** The base of every error that this library throws or reports. */
export class SealogError extends Error {
  readonly code: string;
  readonly status: number | undefined;
  readonly request_id: string | undefined;
  readonly doc_url: string | undefined;
  readonly suggestion: string | undefined;
  readonly field: string | undefined;
  readonly retry_after_s: number | undefined;

  constructor(message: string, facts: ErrorFacts = {}) {
    super(message, facts.cause === undefined ? undefined : { cause: facts.cause });
    this.name = new.target.name;
    this.code = facts.code ?? "client/error";
    this.status = facts.status;
    this.request_id = facts.request_id;
    this.doc_url = facts.doc_url;
    this.suggestion = facts.suggestion;
    this.field = facts.field;
    this.retry_after_s = facts.retry_after_s;
  }
}

/** 401: the key is missing, wrong, revoked or expired. */
export class AuthError extends SealogError {}
/** The event or the request is wrong. Sending it again without a change fails again. */
export class ValidationError extends SealogError {}
/** The action is unknown, lacks required fields, or needs a framework that is not enabled. */
export class ActionError extends SealogError {}
/** The key was used for another request: two different events have the same idempotency key. */
export class IdempotencyConflict extends SealogError {}
/** 402: the trial has ended. Events that are stored can still be read. */
export class SubscriptionError extends SealogError {}
/** 5xx: the service failed. The event may or may not be stored; a retry with the same key stores it once. */
export class ServerError extends SealogError {}
/** No answer of Sealog: the network failed, or something else answered. */
export class TransportError extends SealogError {}
/** 404: the service has no such event for this key. */
export class NotFound extends SealogError {}
/** The queue or the spool is full, and the client does not wait for room (`onFull: "error"`). */
export class QueueFull extends SealogError {}
/** The client is closed, or was closed before the event could be sent. */
export class Closed extends SealogError {}
/** The directory of the spool cannot be used. */
export class SpoolError extends SealogError {}

/** 429: a rate is used up. `retry_after_s` has the seconds to wait. */
export class RateLimited extends SealogError {}

/** An answer, as far as errors need it. */
export interface ErrorAnswer {
  status: number;
  text: string;
  header(name: string): string | null;
}

/**
 * Seconds of `Retry-After`: a number, or a date compared with the answer's own `Date`, as clocks may differ.
 */
export function retryAfterOf(answer: ErrorAnswer): number | undefined {
  const text = answer.header("retry-after")?.trim();
  if (!text) return undefined;
  if (/^[0-9]+$/.test(text)) return Number(text);
  const seconds = (Date.parse(text) - Date.parse(answer.header("date") ?? "")) / 1000;
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds);
}

/** The error for an answer that is not a success. Tolerates missing fields, and bodies that are not JSON. */
export function errorOf(answer: ErrorAnswer): SealogError {
  const { status } = answer;
  const body = errorObjectOf(answer.text);
  const text = (name: string): string | undefined => (typeof body?.[name] === "string" ? body[name] : undefined);
  const code = text("code") ?? codeByStatus(status);
  const facts = {
    code: code ?? "client/bad_answer",
    status,
    request_id: text("request_id") ?? answer.header("x-request-id") ?? undefined,
    doc_url: text("doc_url"),
    suggestion: text("suggestion"),
    retry_after_s: retryAfterOf(answer),
  };
  const message = text("message") ?? foreignMessage(answer);
  if (status >= 300 && status < 400) return new TransportError(message, { ...facts, code: "client/redirect" });
  if (status === 429) return new RateLimited(message, facts);
  if (code === undefined) return new TransportError(message, facts); // a proxy's page
  if (status >= 500) return new ServerError(message, facts);
  if (status === 401) return new AuthError(message, facts);
  if (status === 402) return new SubscriptionError(message, facts);
  if (status === 404) return new NotFound(message, facts);
  if (status === 409) return new IdempotencyConflict(message, facts);
  if (/^(action|framework)\//.test(code)) return new ActionError(message, facts);
  return new ValidationError(message, facts);
}

/** For an answer without a Sealog error, such as that of a proxy: these statuses mean the same from anyone. */
function codeByStatus(status: number): string | undefined {
  if (status === 429) return "rate/limit_exceeded";
  return status >= 500 ? "server/unavailable" : undefined;
}

function errorObjectOf(text: string): Record<string, unknown> | undefined {
  try {
    const error: unknown = (JSON.parse(text) as { error?: unknown } | null)?.error;
    return typeof error === "object" && error !== null ? (error as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function foreignMessage(answer: ErrorAnswer): string {
  const { status } = answer;
  if (status >= 300 && status < 400) {
    const target = answer.header("location") ?? "another address";
    return `the server redirects to ${target}; redirects are refused because they would send the API key there: `
      + "set `url` to the final address";
  }
  const kind = answer.header("content-type") ?? "unknown type";
  return `status ${status} with a body that is not Sealog's (${kind}): check \`url\` and the proxies on the way`;
}
