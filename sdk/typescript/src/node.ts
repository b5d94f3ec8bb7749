// The client for Node: the portable one with a spool, receipts in a file, the request's context and exit
// hooks.

import { appendFileSync, closeSync, createReadStream, fstatSync, openSync, readSync } from "node:fs";
import { createInterface } from "node:readline";
import { Sealog as PortableSealog, type Options as PortableOptions } from "./client.js";
import { currentContext } from "./context.js";
import { Closed, SpoolError } from "./errors.js";
import { badOption } from "./http.js";
import type { Receipt, Receipts } from "./receipts.js";
import { Spool, type HeldBatch } from "./spool.js";

export * from "./index.js";
export { currentContext, expressContext, fastifyContext, withContext } from "./context.js";
export type { FastifyLike, IncomingRequest, MiddlewareOptions } from "./context.js";
export type { HeldBatch } from "./spool.js";

export interface Options extends PortableOptions {
  /** Keeps queued events in this directory, so that they survive the end of the process. */
  spoolDir?: string | undefined;
  /** Syncs each event, so that it survives a loss of power, too. */
  spoolSync?: boolean | undefined;
  spoolMaxBytes?: number | undefined;
  /** How often events that other processes left in the directory are taken over. */
  adoptIntervalMs?: number | undefined;
  /** A batch that was first sent this long ago is held: the service knows its key for 24 hours only. */
  holdAfterMs?: number | undefined;
  /** A file that keeps the receipts for `audit`. Default: the newest 10,000, in memory. */
  receipts?: string | undefined;
  /** Sends queued events before the process ends (SIGTERM, SIGINT, an empty event loop). Default: true. */
  exitHooks?: boolean | undefined;
  /** How long the end of the process may wait for that. Default: 5,000. */
  exitTimeoutMs?: number | undefined;
  /** The wall clock; for tests. */
  now?: (() => number) | undefined;
}

const NODE_OPTIONS = [
  "spoolDir", "spoolSync", "spoolMaxBytes", "adoptIntervalMs", "holdAfterMs", "receipts", "exitHooks", "exitTimeoutMs",
  "now",
] as const;
const HOLD_AFTER_MS = 86_100_000; // five minutes less than 24 hours
const SPOOL_BYTES = 268_435_456;

export class Sealog extends PortableSealog {
  readonly #spool: Spool | undefined;

  constructor(options: Options = {}) {
    for (const name of ["spoolMaxBytes", "adoptIntervalMs", "holdAfterMs", "exitTimeoutMs"] as const) {
      const value = options[name];
      if (value !== undefined && !(value > 0)) throw badOption(name, "must be a number above 0");
    }
    const { spoolDir, now = Date.now } = options;
    let spool: Spool | undefined;
    super(options, {
      optionNames: NODE_OPTIONS,
      context: currentContext,
      ...(options.receipts !== undefined && { receipts: new FileReceipts(options.receipts) }),
      ...(options.adoptIntervalMs !== undefined && { adoptIntervalMs: options.adoptIntervalMs }),
      ...(spoolDir !== undefined && {
        queue: (limits, warn) => spool = new Spool({
          dir: spoolDir,
          sync: options.spoolSync ?? false,
          maxBytes: options.spoolMaxBytes ?? SPOOL_BYTES,
          holdAfterMs: options.holdAfterMs ?? HOLD_AFTER_MS,
          now,
        }, limits, warn),
      }),
    });
    this.#spool = spool;
    if (options.exitHooks !== false) watch(this, options.exitTimeoutMs ?? 5_000, spool !== undefined);
  }

  /** Batches in the spool that are not sent until you decide, because they may have been stored already. */
  held(): HeldBatch[] {
    return this.#spool?.held() ?? [];
  }

  /** Sends a held batch under a new key, or drops it: its events end in `onError`. */
  release(id: string, choice: "send" | "drop"): void {
    if (choice !== "send" && choice !== "drop") throw badOption("choice", 'must be "send" or "drop"');
    if (!this.#spool) throw new SpoolError("this client has no spool; set spoolDir", { code: "client/spool" });
    const error = new Closed("the application dropped this held event", { code: "client/dropped" });
    this.#spool.release(id, choice, (text) => this.report(error, text));
    this.work();
  }

  override async close(timeoutMs?: number): Promise<number> {
    unwatch(this);
    return super.close(timeoutMs);
  }
}

/** One receipt a line. */
class FileReceipts implements Receipts {
  constructor(private readonly path: string) {
    try {
      const fd = openSync(path, "a+", 0o600);
      const { size } = fstatSync(fd);
      const last = Buffer.alloc(1, "\n");
      if (size > 0) readSync(fd, last, 0, 1, size - 1);
      closeSync(fd);
      if (last.toString() !== "\n") appendFileSync(path, "\n"); // a crash has cut the last line
    } catch (cause) {
      throw badOption("receipts", `cannot be written: ${(cause as Error).message}; name another file`);
    }
  }

  add(receipts: readonly Receipt[]): void {
    const line = ({ log_id, chain_seq, hash, request_id }: Receipt): string =>
      `${JSON.stringify({ log_id, chain_seq: chain_seq ?? null, hash: hash ?? null, request_id })}\n`;
    appendFileSync(this.path, receipts.map(line).join(""));
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Receipt, void> {
    for await (const line of createInterface({ input: createReadStream(this.path) })) {
      let kept: { log_id?: string; chain_seq?: number | null; hash?: string | null; request_id?: string };
      try {
        kept = JSON.parse(line) as typeof kept;
      } catch {
        continue; // the line that a crash has cut: the service has the event, and its receipt is lost
      }
      const { log_id = "", chain_seq, hash, request_id = "" } = kept;
      yield { log_id, chain_seq: chain_seq ?? undefined, hash: hash ?? undefined, request_id, replayed: false };
    }
  }
}

// ---- The end of the process ----

/** Clients that are not closed. */
const watched = new Map<Sealog, { timeoutMs: number; isDurable: boolean }>();
const SIGNALS = ["SIGTERM", "SIGINT"] as const;

function watch(client: Sealog, timeoutMs: number, isDurable: boolean): void {
  if (watched.size === 0) {
    for (const signal of SIGNALS) process.on(signal, onSignal);
    process.on("beforeExit", onBeforeExit);
    process.on("exit", onExit);
  }
  watched.set(client, { timeoutMs, isDurable });
  isFlushed = false;
}

function unwatch(client: Sealog): void {
  if (!watched.delete(client) || watched.size > 0) return;
  for (const signal of SIGNALS) process.off(signal, onSignal);
  process.off("beforeExit", onBeforeExit);
  process.off("exit", onExit);
}

async function flushAll(): Promise<void> {
  const waiting = [...watched].filter(([client]) => client.pending > 0);
  await Promise.all(waiting.map(([client, { timeoutMs }]) => client.flush(timeoutMs)));
}

/** Node emits this each time the event loop is empty; a second flush would keep the process for ever. */
let isFlushed = false;
function onBeforeExit(): void {
  if (!isFlushed) void flushAll();
  isFlushed = true;
}

/**
 * Flushes and does not close: the application's own handlers may still log. If there are none, the signal
 * gets its usual effect afterwards; a second one ends the process at once.
 */
async function onSignal(signal: NodeJS.Signals): Promise<void> {
  const isAlone = process.listenerCount(signal) === 1;
  if (isAlone) process.off(signal, onSignal);
  await flushAll();
  if (isAlone) process.kill(process.pid, signal);
}

function onExit(): void {
  for (const [client, { isDurable }] of watched) {
    if (client.pending === 0 || isDurable) continue;
    console.error(`sealog: the process ends with ${client.pending} queued events that were not sent; `
      + "await close() first, or set spoolDir");
  }
}
