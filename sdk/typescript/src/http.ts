import { SealogError, TransportError, ValidationError, type ErrorAnswer } from "./errors.js";

/** The part of `fetch` that this library uses, so that any runtime's fits and tests can pass their own. */
export type Fetch = (url: string, init: {
  method: string;
  headers: Record<string, string>;
  body?: string;
  redirect: "manual";
  signal: AbortSignal;
}) => Promise<{
  status: number;
  type?: string;
  headers: { get(name: string): string | null };
  text(): Promise<string>;
}>;

export interface HttpOptions {
  url: string;
  apiKey: string;
  timeoutMs: number;
  fetch?: Fetch | undefined;
}

export interface Call {
  method: "GET" | "POST";
  /** From `/v1/` on, with the query. */
  path: string;
  body?: string;
  idempotencyKey?: string | undefined;
  traceparent?: string | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * One request, one answer: no retries, no redirects. Rejects with a `TransportError` if there is no whole
 * answer.
 */
export class Http {
  readonly #base: string;
  readonly #apiKey: string;
  readonly #timeoutMs: number;
  readonly #fetch: Fetch;

  constructor(options: HttpOptions) {
    this.#base = baseOf(options.url);
    this.#apiKey = keyOf(options.apiKey);
    this.#timeoutMs = options.timeoutMs;
    const fetch = options.fetch ?? (globalThis as { fetch?: Fetch }).fetch;
    if (!fetch) throw badOption("fetch", "is missing in this runtime; use Node 18 or newer, or pass one");
    this.#fetch = fetch;
  }

  async send(call: Call): Promise<ErrorAnswer> {
    const abort = new AbortController();
    const stop = (): void => abort.abort();
    call.signal?.addEventListener("abort", stop);
    if (call.signal?.aborted) stop();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const url = this.#base + call.path;
    try {
      const fetch = this.#fetch; // called without a receiver: the browser's refuses any but the window
      const pending = fetch(url, {
        method: call.method,
        headers: this.#headers(call),
        redirect: "manual",
        signal: abort.signal,
        ...(call.body !== undefined && { body: call.body }),
      });
      // The limit covers the body, too: a server that sends a byte a minute would hold the queue for ever. It
      // begins after the call, because Node loads its whole HTTP client in the first one.
      timer = setTimeout(stop, this.#timeoutMs);
      const answer = await pending;
      const status = answer.type === "opaqueredirect" ? 307 : answer.status; // browsers hide the status
      return { status, text: await answer.text(), header: (name) => answer.headers.get(name) };
    } catch (cause) {
      if (call.signal?.aborted) throw new TransportError("the client was closed", { code: "client/closed", cause });
      throw this.#failure(url, cause, abort.signal.aborted);
    } finally {
      clearTimeout(timer);
      call.signal?.removeEventListener("abort", stop);
    }
  }

  #headers(call: Call): Record<string, string> {
    return {
      Authorization: `Bearer ${this.#apiKey}`,
      Accept: "application/json",
      "User-Agent": "sealog-typescript/0.1.0",
      ...(call.body !== undefined && { "Content-Type": "application/json" }),
      ...(call.idempotencyKey !== undefined && { "Idempotency-Key": call.idempotencyKey }),
      ...(call.traceparent !== undefined && { traceparent: call.traceparent }),
    };
  }

  #failure(url: string, cause: unknown, isTimeout: boolean): TransportError {
    const { origin, protocol } = new URL(url);
    if (isTimeout) {
      const message = `no whole answer from ${origin} within timeoutMs (${this.#timeoutMs} ms)`;
      return new TransportError(message, { code: "client/timeout", cause });
    }
    const reason = deepestOf(cause);
    const other = protocol === "https:" ? "http" : "https";
    const isTls = /SSL|TLS|CERT|SIGNED|UNABLE_TO/.test(reason.code)
      || (protocol === "https:" && TLS_MESSAGE.test(reason.message));
    const advice = PROTOCOL_MISMATCH.test(`${reason.code} ${reason.message}`)
      ? `; if this port speaks ${other.toUpperCase()}, set \`url\` to ${other}://…`
      : "";
    const message = `no answer from ${origin}: ${reason.message || reason.code || "the connection failed"}${advice}`;
    return new TransportError(message, { code: isTls ? "client/tls" : "client/connection", cause });
  }
}

const PROTOCOL_MISMATCH = /HPE_|SSL|TLS|UND_ERR_SOCKET|ECONNRESET|other side closed|invalid http|corrupt message/i;
const TLS_MESSAGE = /TLS handshake|certificate|corrupt message|fatal alert/; // Bun and Deno (rustls) have no code

/** fetch hides the reason ("fetch failed") in a chain of causes. */
function deepestOf(error: unknown): { code: string; message: string } {
  let { code, message } = { code: "", message: "" };
  for (let at = error as { code?: unknown; message?: unknown; cause?: unknown } | undefined; at; ) {
    if (typeof at.code === "string") code = at.code;
    if (typeof at.message === "string" && at.message !== "") message = at.message;
    at = at.cause as typeof at;
  }
  return { code, message: code && !message.includes(code) ? `${message} (${code})` : message };
}

export const badOption = (field: string, problem: string): ValidationError =>
  new ValidationError(`${field} ${problem}`, { code: "client/invalid_option", field });

function baseOf(text: unknown): string {
  let url: URL;
  try {
    if (typeof text !== "string") throw new TypeError();
    url = new URL(text);
  } catch {
    const problem = text === undefined || text === "" ? "is missing" : `is not a URL: ${String(text)}`;
    throw badOption("url", `${problem}; set it to the server's address with http:// or https://, `
      + "for example https://audit.example.com");
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") {
    throw badOption("url", `begins with ${url.protocol}; it must begin with https:// (or http:// on this machine)`);
  }
  if (url.username || url.password) throw badOption("url", "contains a user name or password; pass the key as apiKey");
  if (url.search || url.hash) throw badOption("url", "contains ? or #; pass the server's address alone");
  const path = url.pathname.replace(/\/+$/, "");
  if (/\/v1(\/|$)/.test(path)) throw badOption("url", "contains /v1, which the client adds; pass the server's address");
  return url.origin + path;
}

function keyOf(key: unknown): string {
  if (typeof key !== "string" || key === "") {
    throw badOption("apiKey", "is missing; create one in the dashboard (API Keys) and pass it, or set SEALOG_API_KEY");
  }
  if (!/^at_(live|test)_[0-9A-Za-z]{49}$/.test(key)) {
    // The value is not part of the message: it may be a secret of another kind.
    throw badOption("apiKey",
      "is not a key of Sealog (at_live_ or at_test_, then 49 letters and digits); copy all of it");
  }
  return key;
}

/** The JSON object in a successful answer. A page of a proxy is an error that can be retried. */
export function objectOf(answer: ErrorAnswer): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(answer.text);
    if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
  } catch { /* below */ }
  throw badAnswer(answer);
}

export function badAnswer(answer: ErrorAnswer): SealogError {
  const kind = answer.header("content-type") ?? "unknown type";
  return new TransportError(
    `status ${answer.status} with a body that is not Sealog's (${kind}): check \`url\` and the proxies on the way`,
    { code: "client/bad_answer", status: answer.status, request_id: answer.header("x-request-id") ?? undefined },
  );
}
