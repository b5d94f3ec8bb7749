// For the tests of applications: a logger that keeps events in memory, and assertions about them.

import { merged, type Context, type Logger, type LogOptions } from "./client.js";
import { Closed } from "./errors.js";
import { encode, type Event } from "./event.js";
import type { Receipt } from "./receipts.js";
import { sha256Hex } from "./sha256.js";

/** Fields that an event must have. Members of `metadata` that are not named may have any value. */
export type Pattern = Partial<Event>;

/**
 * Takes the place of a client. It checks events like a client does, so a test fails where production would.
 * Events are recorded as they would be sent, with the context and without what `beforeSend` removes.
 */
export class Recorder implements Logger {
  /** The events in the order in which they were logged. */
  readonly events: Event[] = [];
  readonly #context: (() => Context | undefined) | undefined;
  readonly #beforeSend: ((event: Event) => Event) | undefined;
  #failures: Error[] = [];
  #isClosed = false;

  /** `context`: for example `currentContext` of `sealog/node`. */
  constructor(options: {
    context?: () => Context | undefined;
    beforeSend?: (event: Event) => Event;
  } = {}) {
    this.#context = options.context;
    this.#beforeSend = options.beforeSend;
  }

  async log(event: Event, options: LogOptions = {}): Promise<Receipt> {
    this.#record(event, options.context);
    const chain_seq = this.events.length;
    const hash = sha256Hex(String(chain_seq));
    const log_id = `01TEST${String(chain_seq).padStart(20, "0")}`;
    return { log_id, chain_seq, hash, request_id: `req_${log_id}`, replayed: false };
  }

  enqueue(event: Event, options: Pick<LogOptions, "context"> = {}): Promise<void> {
    this.#record(event, options.context);
    return Promise.resolve();
  }

  async flush(): Promise<number> {
    return 0;
  }

  async close(): Promise<number> {
    this.#isClosed = true;
    return 0;
  }

  /**
   * The next `log` or `enqueue` fails with this error, so that a test can see what the application does then.
   */
  failNext(error: Error): void {
    this.#failures.push(error);
  }

  clear(): void {
    this.events.length = 0;
  }

  /** Returns the first event that matches, or throws an error that lists the events there are. */
  assertLogged(pattern: Pattern): Event {
    const found = this.events.find((event) => matches(event, pattern));
    if (!found) throw new Error(`no event matches ${JSON.stringify(pattern)}; ${this.#listing()}`);
    return found;
  }

  assertNotLogged(pattern: Pattern = {}): void {
    const found = this.events.find((event) => matches(event, pattern));
    if (found) throw new Error(`an event matches ${JSON.stringify(pattern)}: ${JSON.stringify(found)}`);
  }

  /** Checks that exactly so many events match. */
  assertCount(count: number, pattern: Pattern = {}): void {
    const found = this.events.filter((event) => matches(event, pattern)).length;
    if (found === count) return;
    throw new Error(`${found} events match ${JSON.stringify(pattern)}, not ${count}; ${this.#listing()}`);
  }

  #record(event: Event, given: Context | undefined): void {
    if (this.#isClosed) throw new Closed("the recorder was closed", { code: "client/closed" });
    const context = given ?? this.#context?.();
    const complete = context ? merged(event, context) : event;
    const { text } = encode(this.#beforeSend ? this.#beforeSend(complete) : complete);
    const failure = this.#failures.shift();
    if (failure) throw failure;
    this.events.push(JSON.parse(text) as Event);
  }

  #listing(): string {
    const lines = this.events.map((event) => `\n  ${JSON.stringify(event)}`);
    return this.events.length === 0 ? "no event was logged" : `logged were:${lines.join("")}`;
  }
}

function matches(actual: unknown, pattern: unknown): boolean {
  if (typeof pattern !== "object" || pattern === null) return actual === pattern;
  if (typeof actual !== "object" || actual === null || Array.isArray(actual) !== Array.isArray(pattern)) return false;
  if (Array.isArray(pattern) && (actual as unknown[]).length !== pattern.length) return false;
  return Object.entries(pattern).every(([key, value]) => matches((actual as Record<string, unknown>)[key], value));
}
