// Batching, keys and retry decisions, without any input or output.

import {
  IdempotencyConflict, QueueFull, RateLimited, ServerError, TransportError, type SealogError,
} from "./errors.js";
import type { Encoded } from "./event.js";

export interface Limits {
  batchMaxEvents: number;
  batchMaxBytes: number;
  /** An event waits at most this long for others to share its batch. */
  flushIntervalMs: number;
}

/** An event of a batch that has not ended yet. */
export interface Member extends Encoded {
  /** Index in the batch, which makes the key of the event if it has to be sent alone. */
  readonly index: number;
}

/** Events that are sent in one request, under one key, until each has ended as a receipt or as an error. */
export interface Batch {
  readonly key: string;
  members: Member[];
  /** Whether its events are sent one by one, because the service rejected one of them. */
  isSplit: boolean;
}

/** One request of a batch: all of it, or one event of a split batch. */
export interface Parcel {
  readonly path: string;
  readonly key: string;
  readonly body: string;
  readonly members: readonly Member[];
}

export function parcelOf({ key, members, isSplit }: Batch): Parcel {
  const [first] = members;
  if (isSplit && first) {
    return { path: "/v1/events", key: `${key}-${first.index}`, body: first.text, members: [first] };
  }
  const body = `{"events":[${members.map(({ text }) => text).join(",")}]}`;
  return { path: "/v1/events/batch", key, body, members };
}

/**
 * Keeps events in order until they have ended. `MemoryQueue` forgets them when the process dies, a spool does
 * not. All methods return at once; what `push` has accepted is kept as promised by the queue.
 */
export interface Queue {
  /** Events that have neither ended nor are held. */
  readonly pending: number;
  /** Whether events outlive this process. They are not given up then. */
  readonly isDurable: boolean;
  /** Accepts an event, or says why there is no room. */
  push(event: Encoded): QueueFull | undefined;
  /** Whether the event could fit if the queue were empty. */
  couldFit(event: Encoded): boolean;
  /** When the next batch is to be sent, as a value of `performance.now()`; infinity if there is none. */
  dueAt(): number;
  /** The batch to send now: the same one until all of its members have ended. */
  take(): Batch | undefined;
  /** From now on the events of this batch are sent one by one. */
  split(batch: Batch): void;
  /** These members, a prefix of the batch's, have ended. */
  settle(batch: Batch, members: readonly Member[]): void;
  /** Takes over events that other processes left behind. */
  adopt(): Promise<void>;
  /**
   * Gives up the batch that is being sent and everything behind it. Returns the events, unless they are kept.
   */
  close(): Encoded[];
}

interface Waiting extends Encoded { since: number }

export class MemoryQueue implements Queue {
  readonly isDurable = false;
  #waiting: Waiting[] = [];
  #head = 0; // index of the first one; the array is compacted now and then, so that a shift costs nothing
  #waitingBytes = 0;
  #batch: Batch | undefined;
  #events = 0; // with those in the batch
  #bytes = 0;

  constructor(
    private readonly limits: Limits & { queueMaxEvents: number; queueMaxBytes: number },
    private readonly newKey: () => string,
    private readonly now = (): number => performance.now(), // the wall clock may be set back by hours
  ) {}

  get pending(): number {
    return this.#events;
  }

  push(event: Encoded): QueueFull | undefined {
    const { queueMaxEvents, queueMaxBytes } = this.limits;
    if (this.#events >= queueMaxEvents || this.#bytes + event.bytes > queueMaxBytes) {
      const message = `the queue is full (${this.#events} events, ${this.#bytes} bytes): wait for receipts, or raise `
        + (this.#events >= queueMaxEvents ? "queueMaxEvents" : "queueMaxBytes");
      return new QueueFull(message, { code: "client/queue_full" });
    }
    this.#events++;
    this.#bytes += event.bytes;
    this.#waitingBytes += event.bytes + 1;
    this.#waiting.push({ text: event.text, bytes: event.bytes, since: this.now() });
    return undefined;
  }

  couldFit(event: Encoded): boolean {
    return this.limits.queueMaxEvents > 0 && event.bytes <= this.limits.queueMaxBytes;
  }

  dueAt(): number {
    const first = this.#waiting[this.#head];
    if (this.#batch) return -Infinity;
    if (!first) return Infinity;
    const { batchMaxEvents, batchMaxBytes, flushIntervalMs } = this.limits;
    const isFull = this.#waiting.length - this.#head >= batchMaxEvents || this.#waitingBytes >= batchMaxBytes;
    return isFull ? -Infinity : first.since + flushIntervalMs;
  }

  take(): Batch | undefined {
    if (this.#batch || this.#head === this.#waiting.length) return this.#batch;
    const taken = countThatFits(this.#waiting, this.#head, this.limits);
    const events = this.#waiting.slice(this.#head, this.#head + taken);
    this.#head += taken;
    if (this.#head > 1000 && this.#head * 2 > this.#waiting.length) {
      this.#waiting = this.#waiting.slice(this.#head);
      this.#head = 0;
    }
    this.#waitingBytes -= events.reduce((sum, { bytes }) => sum + bytes + 1, 0);
    const members = events.map(({ text, bytes }, index) => ({ text, bytes, index }));
    this.#batch = { key: this.newKey(), members, isSplit: false };
    return this.#batch;
  }

  split(batch: Batch): void {
    batch.isSplit = true;
  }

  settle(batch: Batch, members: readonly Member[]): void {
    batch.members = batch.members.slice(members.length);
    this.#events -= members.length;
    for (const { bytes } of members) this.#bytes -= bytes;
    if (batch.members.length === 0) this.#batch = undefined;
  }

  async adopt(): Promise<void> {}

  close(): Encoded[] {
    const rest = [...(this.#batch?.members ?? []), ...this.#waiting.slice(this.#head)];
    this.#batch = undefined;
    this.#waiting = [];
    this.#head = this.#waitingBytes = this.#events = this.#bytes = 0;
    return rest;
  }
}

/** How many of these events, from `start` on, go into one batch. At least one, however large. */
export function countThatFits(
  events: ArrayLike<{ bytes: number }>, start: number, limits: Limits,
): number {
  let bytes = '{"events":[]}'.length;
  let count = 0;
  while (start + count < events.length && count < limits.batchMaxEvents) {
    bytes += (events[start + count] as { bytes: number }).bytes + 1;
    if (count > 0 && bytes > limits.batchMaxBytes) break;
    count++;
  }
  return count;
}

export interface RetryRules {
  maxAttempts: number;
  retryBaseMs: number;
}

/** Whether the same request may succeed later. */
export function isRetryable(error: SealogError): boolean {
  if (error instanceof IdempotencyConflict) return error.code === "event/idempotency_key_in_flight";
  if (error instanceof RateLimited || error instanceof ServerError) return true;
  if (!(error instanceof TransportError) || error.code === "client/redirect") return false;
  const { status } = error; // of an answer that does not come from Sealog
  return status === undefined || status >= 500 || (status >= 200 && status < 300);
}

/** Whether the service rejected the content of a batch, so that a part of it may be accepted. */
export const isRejection = (error: SealogError): boolean =>
  [400, 403, 413, 422].includes(error.status ?? 0) && error.code !== "client/bad_answer";

/**
 * The wait before the next attempt after this many failed ones: full jitter over a bound that doubles, and
 * never less than the service asks for.
 */
export function waitMs(error: SealogError, failures: number, rules: RetryRules, random = Math.random): number {
  const most = failures < rules.maxAttempts ? 8 : 60;
  const bound = rules.retryBaseMs * Math.min(2 ** (failures - 1), most);
  return Math.max(random() * bound, (error.retry_after_s ?? 0) * 1000);
}
