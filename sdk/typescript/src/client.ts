import { isRejection, isRetryable, MemoryQueue, parcelOf, waitMs } from "./core.js";
import type { Batch, Limits, Member, Parcel, Queue } from "./core.js";
import { Closed, errorOf, QueueFull, SealogError, ValidationError } from "./errors.js";
import type { ErrorAnswer } from "./errors.js";
import { encode } from "./event.js";
import type { Encoded, Event } from "./event.js";
import { badOption, Http } from "./http.js";
import type { Call, Fetch } from "./http.js";
import { Proofs } from "./proof.js";
import { newKey, randomReady } from "./random.js";
import { auditReceipts, Catalog, readActions, readEvent, readEvents, verifyRange } from "./reading.js";
import type { Action, AuditReport, Filters, StoredEvent } from "./reading.js";
import { MemoryReceipts, receiptsOf } from "./receipts.js";
import type { Receipt, Receipts } from "./receipts.js";
import type { Verification } from "./verify.js";

/** Fields for events that do not set them, and the trace that the running request belongs to. */
export type Context = Omit<Event, "action"> & { traceparent?: string | undefined };

export interface Options {
  /** Address of the server. Default: the environment variable SEALOG_URL. */
  url?: string | undefined;
  /** Default: the environment variable SEALOG_API_KEY. */
  apiKey?: string | undefined;
  /** Called for every queued event that was stored. */
  onReceipt?: ((receipt: Receipt, event: Event) => void) | undefined;
  /** Called for every queued event that was not stored. Without it, the error goes to `console.error`. */
  onError?: ((error: SealogError, event: Event) => void) | undefined;
  /** Called for a condition that needs attention but has lost nothing. Default: `console.warn`. */
  onWarning?: ((warning: SealogError) => void) | undefined;
  /**
   * Gets each event before it is serialised and returns the one to send, for example without personal data.
   */
  beforeSend?: ((event: Event) => Event) | undefined;
  /** The key of the server's log, NAME+ID+KEY, with which `audit` checks the signatures of proofs. */
  vkey?: string | undefined;
  /** Checks actions against the catalog before anything is sent. */
  checkActions?: boolean | undefined;
  /** Adds `trace_id` and `span_id` of the context's `traceparent` to the metadata of each event. */
  traceMetadata?: boolean | undefined;
  /** If the queue is full, `enqueue` waits for room ("block", the default) or throws `QueueFull`. */
  onFull?: "block" | "error" | undefined;
  queueMaxEvents?: number | undefined;
  queueMaxBytes?: number | undefined;
  batchMaxEvents?: number | undefined;
  batchMaxBytes?: number | undefined;
  /** An event waits at most this long for others to share its batch. */
  flushIntervalMs?: number | undefined;
  maxAttempts?: number | undefined;
  retryBaseMs?: number | undefined;
  /** `log` gives up when its waits would take longer than this in total. */
  retryBudgetMs?: number | undefined;
  /** For one attempt, from connecting to the last byte of the answer. */
  timeoutMs?: number | undefined;
  /** Default: the runtime's own. */
  fetch?: Fetch | undefined;
}

export interface LogOptions {
  /**
   * A key of your own, for example `order-42-shipped`. The service stores one event for each key within 24
   * hours.
   */
  idempotencyKey?: string | undefined;
  context?: Context | undefined;
}

/** What application code needs to log: a client, or a `Recorder` of `sealog/testing` in its place. */
export interface Logger {
  log(event: Event, options?: LogOptions): Promise<Receipt>;
  enqueue(event: Event, options?: Pick<LogOptions, "context">): Promise<void>;
  flush(timeoutMs?: number): Promise<number>;
  close(timeoutMs?: number): Promise<number>;
}

/** Numbers that options may set, with the smallest value of each. */
const NUMBERS = {
  queueMaxEvents: [10_000, 1],
  queueMaxBytes: [33_554_432, 1],
  batchMaxEvents: [100, 1],
  batchMaxBytes: [1_900_000, 1],
  flushIntervalMs: [1_000, 0],
  maxAttempts: [5, 1],
  retryBaseMs: [1_000, 0],
  retryBudgetMs: [60_000, 0],
  timeoutMs: [30_000, 1],
} as const satisfies Record<string, readonly [number, number]>;
type Numbers = Record<keyof typeof NUMBERS, number>;
const BATCH_EVENTS_MAX = 100; // the service takes no more

const OPTION_NAMES = new Set([
  ...Object.keys(NUMBERS), "url", "apiKey", "onReceipt", "onError", "onWarning", "beforeSend", "checkActions", "onFull",
  "traceMetadata", "fetch", "vkey",
]);

/** Parts that another runtime provides; `sealog/node` has a spool, receipts in a file and a context. */
export interface Parts {
  queue?(limits: Limits, warn: (warning: SealogError) => void): Queue;
  receipts?: Receipts | undefined;
  context?(): Context | undefined;
  /** Names of the options that the caller has taken out and checked. */
  optionNames?: readonly string[];
  adoptIntervalMs?: number;
}

const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f-]{2,200}$/;
const E_MAIL = /^[^@\s]+@[^@\s]+\.[^@\s]+$/;
const DONE = Promise.resolve(); // returned by every `enqueue` that need not wait

/**
 * A client of Sealog. `log` waits until the event is stored; `enqueue` returns at once and a sender in the
 * background stores the events in order. Every queued event ends once, in `onReceipt` or in `onError`.
 */
export class Sealog implements Logger {
  readonly #options: Options;
  readonly #numbers: Numbers;
  readonly #http: Http;
  readonly #parts: Parts;
  readonly #queue: Queue;
  readonly #receipts: Receipts;
  readonly #catalog: Catalog | undefined;
  readonly #isTest: boolean;
  readonly #abort = new AbortController();
  readonly #blocked: { event: Encoded; done: () => void; fail: (error: SealogError) => void }[] = [];
  #isClosed = false;
  #ended = 0; // events that have ended since the start
  #flushes = 0; // calls of `flush` and `close` that wait for the queue
  #wake: (() => void) | undefined; // ends the sender's sleep
  #sleepsUntil = -Infinity; // of the sender; -Infinity while it works
  #sender: Promise<void> | undefined;
  #adopted: Promise<void> = DONE;
  #adoptTimer: ReturnType<typeof setInterval> | undefined;
  #order: Promise<unknown> = DONE; // the last `enqueue` that waits for the catalog
  #onEnd: (() => void)[] = [];
  #warnedOf = ""; // code of the failure that the sender has reported
  #warnedIncomplete = false;
  #unkept = 0; // receipts that could not be written

  constructor(options: Options = {}, parts: Parts = {}) {
    const env = (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env ?? {};
    const apiKey = options.apiKey ?? env["SEALOG_API_KEY"] ?? "";
    for (const name of Object.keys(options)) {
      if (!OPTION_NAMES.has(name) && !parts.optionNames?.includes(name)) {
        throw badOption(name, "is not an option; check its spelling (spool and receipts need sealog/node)");
      }
    }
    this.#options = options;
    this.#parts = parts;
    this.#numbers = numbersOf(options);
    if (options.onFull !== undefined && options.onFull !== "block" && options.onFull !== "error") {
      throw badOption("onFull", 'must be "block" or "error"');
    }
    const { timeoutMs } = this.#numbers;
    this.#http = new Http({ url: options.url ?? env["SEALOG_URL"] ?? "", apiKey, timeoutMs, fetch: options.fetch });
    this.#isTest = apiKey.startsWith("at_test_");
    new Proofs(options.vkey); // throws if it is no key
    this.#receipts = parts.receipts ?? new MemoryReceipts();
    this.#catalog = options.checkActions ? new Catalog((path) => this.#get(path), () => performance.now()) : undefined;
    this.#queue = parts.queue?.(this.#numbers, (warning) => this.#warn(warning))
      ?? new MemoryQueue(this.#numbers, newKey);
    if (this.#queue.isDurable) {
      const adopt = (): void => {
        this.#adopted = this.#queue.adopt().then(() => this.work(), (error) => this.#warn(error as SealogError));
      };
      adopt();
      this.#adoptTimer = setInterval(adopt, parts.adoptIntervalMs ?? 10_000);
      (this.#adoptTimer as { unref?(): void }).unref?.();
    }
  }

  /** Stores an event. Resolves after the service has it on stable storage. */
  async log(event: Event, options: LogOptions = {}): Promise<Receipt> {
    if (this.#isClosed) throw closed();
    const context = options.context ?? this.#parts.context?.();
    const prepared = this.#prepare(event, context);
    const { text } = encode(prepared);
    const key = options.idempotencyKey;
    if (key !== undefined && !/^[!-~]{1,255}$/.test(key)) {
      throw badOption("idempotencyKey", "must have 1 to 255 characters from ! to ~, without spaces");
    }
    await this.#catalog?.check(prepared);
    await randomReady();
    const traceparent = traceparentOf(context);
    const call: Call = { method: "POST", path: "/v1/events", body: text, idempotencyKey: key ?? newKey(), traceparent };
    const receipts = await this.#retrying(call, (answer) => receiptsOf(answer, 1, false));
    this.#keep(receipts);
    return receipts[0] as Receipt;
  }

  /**
   * Queues an event. A bad event and, with `onFull: "error"`, a full queue throw at once, so an `enqueue`
   * without `await` cannot hide them. The promise resolves when the event is in the queue (and written to the
   * spool).
   */
  enqueue(event: Event, options: Pick<LogOptions, "context"> = {}): Promise<void> {
    if (this.#isClosed) throw closed();
    const context = options.context ?? this.#parts.context?.();
    const prepared = this.#prepare(event, context);
    const encoded = encode(prepared);
    if (!this.#catalog) return this.#accept(encoded);
    const catalog = this.#catalog;
    const accepted = this.#order.then(() => catalog.check(prepared)).then(() => this.#accept(encoded));
    this.#order = accepted.catch(() => undefined);
    return accepted;
  }

  /** Sends what is queued now. Resolves with the number of events that have not ended within the time. */
  async flush(timeoutMs = 30_000): Promise<number> {
    const timer = deadline(timeoutMs);
    this.#flushes++;
    try {
      await Promise.race([Promise.all([this.#adopted, this.#order]), timer.passed]);
      const target = this.#ended + this.#queue.pending + this.#blocked.length;
      const left = (): number => Math.min(target - this.#ended, this.#queue.pending + this.#blocked.length);
      this.work();
      while (left() > 0 && !timer.isOver()) {
        await Promise.race([new Promise<void>((resolve) => this.#onEnd.push(resolve)), timer.passed]);
      }
      return Math.max(0, left());
    } finally {
      this.#flushes--;
      timer.clear();
    }
  }

  /**
   * Sends what is queued, then ends the client. Resolves with the number of events that were not sent:
   * without a spool they end as errors, with one they stay there for the next process.
   */
  async close(timeoutMs = 30_000): Promise<number> {
    if (this.#isClosed) return 0;
    this.#isClosed = true;
    clearInterval(this.#adoptTimer);
    await this.flush(timeoutMs);
    this.#abort.abort();
    this.#wake?.();
    await this.#sender;
    await this.#adopted;
    const left = this.#queue.pending + this.#blocked.length;
    for (const { text } of this.#queue.close()) this.report(closed("before this event could be sent"), text);
    for (const { fail } of this.#blocked.splice(0)) fail(closed("before there was room for this event"));
    return left;
  }

  /** Events that have neither ended nor are held. */
  get pending(): number {
    return this.#queue.pending + this.#blocked.length;
  }

  /** All events that match, newest first, read page by page as you iterate. */
  events(filters: Filters = {}, options: { pageSize?: number } = {}): AsyncGenerator<StoredEvent, void> {
    return readEvents((path) => this.#get(path), filters, options.pageSize);
  }

  /** One event. Rejects with `NotFound` if this key's project has no such event. */
  event(log_id: string): Promise<StoredEvent> {
    return readEvent((path) => this.#get(path), log_id);
  }

  /** The actions that this key may log. */
  actions(): Promise<Action[]> {
    return readActions((path) => this.#get(path));
  }

  /** The service's own verdict about its chain. `verifyEvents` checks without trusting the service. */
  verify(range: { from_seq?: number | undefined; to_seq?: number | undefined } = {}): Promise<Verification> {
    return verifyRange((path) => this.#get(path), range.from_seq, range.to_seq);
  }

  /**
   * Reads the acknowledged events back, recomputes their hashes and compares them with the receipts. Where the
   * server publishes proofs, asks for that of each event and checks it.
   */
  async audit(receipts: Receipts = this.#receipts): Promise<AuditReport> {
    const proofs = this.#isTest ? undefined : new Proofs(this.#options.vkey); // test chains have no trees
    const report = await auditReceipts((path) => this.#get(path), receipts, proofs, (warning) => this.#warn(warning));
    if (receipts === this.#receipts) report.dropped += this.#unkept;
    return report;
  }

  #prepare(event: Event, context: Context | undefined): Event {
    let prepared = context ? merged(event, this.#options.traceMetadata ? withTrace(context) : context) : event;
    const { beforeSend } = this.#options;
    if (beforeSend) {
      const fail = (problem: string, cause?: unknown): ValidationError =>
        new ValidationError(`before_send ${problem}`, { code: "client/invalid_event", field: "before_send", cause });
      try {
        prepared = beforeSend(prepared);
      } catch (cause) {
        throw fail("threw an error; fix the function: the event was not sent", cause);
      }
      if ((prepared ?? null) === null) throw fail("returned no event; return the event that is to be sent");
    }
    const actor = this.#isTest ? prepared?.actor_id : undefined;
    if (typeof actor === "string" && E_MAIL.test(actor)) {
      const message = "actor_id looks like an e-mail address; send an internal id, or pseudonymize(key, address)";
      this.#warn(new SealogError(message, { code: "client/personal_data", field: "actor_id" }));
    }
    return prepared;
  }

  #accept(event: Encoded): Promise<void> {
    const isBehind = this.#blocked.length > 0; // others wait for room already, and order is kept
    const full = isBehind ? undefined : this.#queue.push(event);
    if (!isBehind && !full) {
      if (this.#sleepsUntil > this.#queue.dueAt() || !this.#sender) this.work();
      return DONE;
    }
    if (full && (this.#options.onFull === "error" || !this.#queue.couldFit(event))) throw full;
    if (this.#blocked.length >= this.#numbers.queueMaxEvents) {
      const message = "the queue is full and as many calls of enqueue() wait for room: await each call";
      throw new QueueFull(message, { code: "client/queue_full" });
    }
    return new Promise((done, fail) => this.#blocked.push({ event, done, fail }));
  }

  /** Starts the sender, or wakes it up. */
  protected work(): void {
    if (this.#sender === undefined) {
      if (this.#queue.pending === 0) return;
      this.#sender = this.#send().catch((error) => {
        console.error("sealog: the sender stopped; this is a bug of the library", error);
      });
    }
    this.#wake?.();
  }

  async #send(): Promise<void> {
    await randomReady();
    await this.#adopted;
    let failures = 0;
    let key = "";
    while (!this.#abort.signal.aborted) {
      this.#notify();
      const dueAt = this.#flushes > 0 && this.#queue.pending > 0 ? -Infinity : this.#queue.dueAt();
      if (dueAt > performance.now()) {
        await this.#sleep(dueAt);
        continue;
      }
      let error: SealogError | undefined;
      let batch: Batch | undefined;
      try {
        batch = this.#queue.take();
        if (!batch) continue;
        const parcel = parcelOf(batch);
        if (parcel.key !== key) failures = 0;
        key = parcel.key;
        error = await this.#deliver(batch, parcel);
      } catch (cause) { // the disk of the spool fails; nothing was sent that it does not know
        error = cause instanceof SealogError ? cause : new SealogError(String(cause), { cause });
        this.#warn(error);
      }
      if (error && !this.#abort.signal.aborted) {
        failures++;
        if (batch && this.#giveUp(batch, error, failures)) continue;
        await this.#pause(waitMs(error, failures, this.#numbers));
      }
    }
  }

  /** Sends one request and ends its events. Returns the error if the request is to be repeated. */
  async #deliver(batch: Batch, parcel: Parcel): Promise<SealogError | undefined> {
    const { path, key, body, members } = parcel;
    let receipts: Receipt[];
    try {
      const signal = this.#abort.signal;
      const answer = await this.#http.send({ method: "POST", path, body, idempotencyKey: key, signal });
      if (answer.status < 200 || answer.status > 299) throw errorOf(answer);
      receipts = receiptsOf(answer, members.length, path.endsWith("/batch"));
    } catch (error) {
      return error as SealogError;
    }
    this.#warnedOf = "";
    this.#keep(receipts);
    receipts.forEach((receipt, i) => this.#call("onReceipt", receipt, (members[i] as Member).text));
    this.#settle(batch, members);
    return undefined;
  }

  /** Decides about a failed request. Returns false if it is to be repeated as it is. */
  #giveUp(batch: Batch, error: SealogError, failures: number): boolean {
    if (isRejection(error) && !batch.isSplit) {
      this.#queue.split(batch);
      return true;
    }
    if (isRetryable(error) && failures < this.#numbers.maxAttempts) return false;
    const isEventsFault = isRejection(error) || error.code === "event/idempotency_key_conflict";
    if (this.#queue.isDurable && !isEventsFault) {
      if (error.code !== this.#warnedOf) this.#warn(error); // once, not at each attempt
      this.#warnedOf = error.code;
      return false;
    }
    const { members } = parcelOf(batch);
    for (const { text } of members) this.report(error, text);
    this.#settle(batch, members);
    return true;
  }

  #settle(batch: Batch, members: readonly Member[]): void {
    this.#queue.settle(batch, members);
    this.#ended += members.length;
    while (this.#blocked.length > 0 && !this.#queue.push(this.#blocked[0]!.event)) this.#blocked.shift()!.done();
    this.#notify();
  }

  /** Lets `flush` count again. */
  #notify(): void {
    for (const resolve of this.#onEnd.splice(0)) resolve();
  }

  /**
   * A timer that keeps the process alive while it is needed to save events. A spool has saved them already.
   */
  #timer(work: () => void, ms: number): ReturnType<typeof setTimeout> {
    const timer = setTimeout(work, ms);
    if (this.#queue.isDurable) (timer as { unref?(): void }).unref?.();
    return timer;
  }

  /** Sleeps until then, or until `work` is called. An endless sleep does not keep the process alive. */
  async #sleep(until: number): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    this.#sleepsUntil = until;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      if (until !== Infinity) timer = this.#timer(resolve, until - performance.now());
    });
    clearTimeout(timer);
    this.#wake = undefined;
    this.#sleepsUntil = -Infinity;
  }

  /** Waits so long, or until the client ends. */
  async #pause(ms: number): Promise<void> {
    const { signal } = this.#abort;
    await new Promise<void>((resolve) => {
      const timer = this.#timer(resolve, ms);
      signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
    });
  }

  /**
   * Sends a request until there is an answer that `read` accepts, the attempts are used up or the budget is.
   */
  async #retrying<T>(call: Call, read: (answer: ErrorAnswer) => T): Promise<T> {
    const { maxAttempts, retryBudgetMs } = this.#numbers;
    let waited = 0;
    for (let failures = 1; ; failures++) {
      try {
        const answer = await this.#http.send(call);
        if (answer.status < 200 || answer.status > 299) throw errorOf(answer);
        return read(answer);
      } catch (error) {
        if (!(error instanceof SealogError) || !isRetryable(error) || failures >= maxAttempts) throw error;
        const wait = waitMs(error, failures, this.#numbers);
        waited += wait;
        if (waited > retryBudgetMs) throw error;
        await new Promise((resolve) => setTimeout(resolve, wait));
      }
    }
  }

  #get(path: string): Promise<ErrorAnswer> {
    const traceparent = traceparentOf(this.#parts.context?.());
    return this.#retrying({ method: "GET", path, traceparent }, (answer) => answer);
  }

  #keep(receipts: readonly Receipt[]): void {
    const { chain_seq, hash } = receipts[receipts.length - 1] ?? {};
    if ((chain_seq === undefined || hash === undefined) && !this.#warnedIncomplete) {
      this.#warnedIncomplete = true;
      const message = "a receipt lacks chain_seq or hash; let your proxy pass Sealog-Chain-Seq and Sealog-Hash";
      this.#warn(new SealogError(message, { code: "client/incomplete_receipt" }));
    }
    try {
      this.#receipts.add(receipts);
    } catch (cause) {
      this.#unkept += receipts.length;
      const message = `cannot keep ${receipts.length} receipts: ${String(cause)}; audit() will not cover these events`;
      this.#warn(new SealogError(message, { code: "client/receipts", cause }));
    }
  }

  /** Ends a queued event as an error. */
  protected report(error: SealogError, text: string): void {
    if (this.#options.onError) return this.#call("onError", error, text);
    const { action, resource } = JSON.parse(text) as Event;
    const event = `${action}${resource ? ` of ${resource}` : ""}`;
    console.error(`sealog: an event was not stored (${event}): ${error.code}: ${error.message}`);
  }

  #warn(warning: SealogError): void {
    try {
      if (this.#options.onWarning) this.#options.onWarning(warning);
      else console.warn(`sealog: ${warning.code}: ${warning.message}`);
    } catch (thrown) {
      console.error("sealog: onWarning threw an error", thrown);
    }
  }

  #call(name: "onReceipt" | "onError", outcome: Receipt | SealogError, text: string): void {
    const callback = this.#options[name] as ((outcome: Receipt | SealogError, event: Event) => void) | undefined;
    try {
      callback?.(outcome, JSON.parse(text) as Event);
    } catch (thrown) {
      console.error(`sealog: ${name} threw an error; the event has ended all the same`, thrown);
    }
  }
}

function numbersOf(options: Options): Numbers {
  const numbers = {} as Numbers;
  for (const [name, [standard, least]] of Object.entries(NUMBERS) as [keyof Numbers, readonly [number, number]][]) {
    const value = options[name] ?? standard;
    if (typeof value !== "number" || !(value >= least)) throw badOption(name, `must be a number, at least ${least}`);
    numbers[name] = value;
  }
  if (numbers.batchMaxEvents > BATCH_EVENTS_MAX) throw badOption("batchMaxEvents", `is at most ${BATCH_EVENTS_MAX}`);
  return numbers;
}

/** A text that has not the form would be refused as a header. */
const traceparentOf = (context: Context | undefined): string | undefined =>
  (context?.traceparent !== undefined && TRACEPARENT.test(context.traceparent) ? context.traceparent : undefined);

function withTrace(context: Context): Context {
  const [, trace_id, span_id] = TRACEPARENT.exec(context.traceparent ?? "") ?? [];
  return trace_id === undefined ? context : { ...context, metadata: { trace_id, span_id, ...context.metadata } };
}

/** The event, with what the context has and the event does not set. */
export function merged(event: Event, context: Context): Event {
  const { traceparent: _, metadata, ...fields } = context;
  const result: Record<string, unknown> = { ...fields };
  for (const [name, value] of Object.entries(event)) if (value !== undefined) result[name] = value;
  const adds = metadata && Object.values(metadata).some((value) => value !== undefined);
  const own = event.metadata ?? {};
  if (adds && typeof own === "object" && !Array.isArray(own)) result["metadata"] = { ...metadata, ...own };
  return result as unknown as Event;
}

const closed = (when = ""): Closed =>
  new Closed(`the client was closed${when && ` ${when}`}; create a new one`, { code: "client/closed" });

function deadline(ms: number): { passed: Promise<void>; isOver(): boolean; clear(): void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let isOver = false;
  const passed = new Promise<void>((resolve) => {
    timer = setTimeout(() => { isOver = true; resolve(); }, Math.min(ms, 2 ** 31 - 1));
  });
  return { passed, isOver: () => isOver, clear: () => clearTimeout(timer) };
}
