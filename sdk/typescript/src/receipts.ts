import type { ErrorAnswer } from "./errors.js";
import { badAnswer, objectOf } from "./http.js";

/** The service's acknowledgement: the event is sealed and on stable storage. */
export interface Receipt {
  log_id: string;
  /** Position in the chain. Undefined if something on the way has removed the header. */
  chain_seq: number | undefined;
  /** Of the last event of a batch only; it covers the events before it, too. */
  hash: string | undefined;
  request_id: string;
  /** Whether the event had been stored by an earlier attempt. */
  replayed: boolean;
}

/** Receipts that `audit` compares with the service, in the order in which they were received. */
export interface Receipts extends AsyncIterable<Receipt> {
  add(receipts: readonly Receipt[]): void;
  /** How many receipts there was no room for. */
  readonly dropped?: number;
}

/** The newest receipts. */
export class MemoryReceipts implements Receipts {
  #kept: Receipt[] = [];
  #added = 0;

  constructor(private readonly most = 10_000) {}

  add(receipts: readonly Receipt[]): void {
    for (const receipt of receipts) this.#kept.push(receipt);
    this.#added += receipts.length;
    // Cut now and then: each cut copies the array.
    if (this.#kept.length >= 2 * this.most) this.#kept = this.#kept.slice(-this.most);
  }

  get dropped(): number {
    return Math.max(0, this.#added - this.most);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Receipt, void> {
    yield* this.#kept.slice(-this.most);
  }
}

/** The receipts in a 202, one for each of `count` events. Throws if the answer is not that of Sealog. */
export function receiptsOf(answer: ErrorAnswer, count: number, isBatch: boolean): Receipt[] {
  const body = objectOf(answer);
  const ids: unknown = isBatch ? body["log_ids"] : [body["log_id"]];
  const isWhole = Array.isArray(ids) && ids.length === count && ids.every((id) => typeof id === "string");
  if (answer.status !== 202 || !isWhole) throw badAnswer(answer);
  const [, first] = /^([0-9]+)(?:-[0-9]+)?$/.exec(answer.header("sealog-chain-seq") ?? "") ?? [];
  const hash = answer.header("sealog-hash") ?? undefined;
  const request_id = typeof body["request_id"] === "string" ? body["request_id"] : answer.header("x-request-id") ?? "";
  const replayed = answer.header("idempotency-replayed") === "true";
  return (ids as string[]).map((log_id, i) => ({
    log_id,
    chain_seq: first === undefined ? undefined : Number(first) + i,
    hash: i === ids.length - 1 ? hash : undefined,
    request_id,
    replayed,
  }));
}
