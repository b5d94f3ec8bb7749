import { ActionError, NotFound, SealogError } from "./errors.js";
import type { Event, JsonValue } from "./event.js";
import { badAnswer, badOption, objectOf } from "./http.js";
import type { Proofs } from "./proof.js";
import type { Receipt, Receipts } from "./receipts.js";
import { eventsIn, hashOf, type Verification } from "./verify.js";
import type { ErrorAnswer } from "./errors.js";

/**
 * An event as the service returns it. `raw` is its text, which `verifyEvents` needs; it is not enumerable.
 */
export interface StoredEvent {
  log_id: string;
  tenant_id: string;
  project_id: string;
  schema_version: number;
  action: string;
  category?: string;
  severity?: string;
  actor_id?: string;
  actor_type?: string;
  resource?: string;
  resource_type?: string;
  session_id?: string;
  ts_client?: string;
  ip_address?: string;
  country?: string;
  city?: string;
  metadata?: { [key: string]: JsonValue };
  timestamp: string;
  chain_seq: number;
  prev_hash: string;
  hash: string;
  readonly raw: string;
}

export interface Filters {
  action?: string | undefined;
  actor_id?: string | undefined;
  resource?: string | undefined;
  /** `YYYY-MM-DD`, from 00:00 UTC of that day on. */
  date_from?: string | undefined;
  /** `YYYY-MM-DD`, that day included. */
  date_to?: string | undefined;
}

/** An entry of the catalog of actions. */
export interface Action {
  action: string;
  category?: string;
  description?: string;
  frameworks: { framework: string; label: string; is_required: boolean }[];
  required_fields: string[];
  optional_fields: string[];
  subscribed?: boolean;
}

export interface AuditReport {
  checked: number;
  /**
   * `log_id`s of acknowledged events that the service no longer has, has changed, or has at another position.
   */
  missing: string[];
  changed: string[];
  moved: string[];
  /** `log_id`s of events that are there, and whose proof does not hold. A warning has the reason. */
  disproved: string[];
  /** Events that are proven to be in a tree which the log's key, `vkey`, has signed. */
  proven: number;
  /** Events whose proof holds, where the client has no `vkey` to check the signature with. */
  unsigned: number;
  /** Events that no published tree has yet. Audit again after a minute. */
  not_yet: number;
  /** Events of which this server has no proof: it publishes none, the proof was pruned, or the key is a test key. */
  no_proof: number;
  /** Receipts that could not be kept, so that these events were not checked. */
  dropped: number;
  all_there: boolean;
}

/** Reads a path of the service, with retries. */
export type Get = (path: string) => Promise<ErrorAnswer>;

const PAGE = 100;
const WINDOW = 1000; // events that the service verifies in one request

function queryOf(parameters: object): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value !== undefined) query.set(name, String(value));
  return query.size === 0 ? "" : `?${query}`;
}

function storedEvent(raw: string): StoredEvent {
  return Object.defineProperty(JSON.parse(raw) as StoredEvent, "raw", { value: raw });
}

const FILTERS: readonly string[] = ["action", "actor_id", "resource", "date_from", "date_to"];

/** All events that match, newest first, page by page. */
export async function* readEvents(get: Get, filters: Filters, pageSize = PAGE): AsyncGenerator<StoredEvent, void> {
  for (const name of Object.keys(filters)) {
    if (!FILTERS.includes(name)) throw badOption(name, `is not a filter; there are ${FILTERS.join(", ")}`);
  }
  for (let cursor: unknown; ;) {
    const answer = await get(`/v1/events${queryOf({ ...filters, limit: pageSize, cursor })}`);
    const page = objectOf(answer);
    if (!Array.isArray(page["events"])) throw badAnswer(answer);
    for (const raw of eventsIn(answer.text)) yield storedEvent(raw);
    cursor = page["next_cursor"];
    if (page["has_more"] !== true || typeof cursor !== "string") return;
  }
}

export async function readEvent(get: Get, log_id: string): Promise<StoredEvent> {
  const answer = await get(`/v1/events/${encodeURIComponent(log_id)}`);
  if (typeof objectOf(answer)["log_id"] !== "string") throw badAnswer(answer);
  return storedEvent(eventsIn(answer.text)[0] as string);
}

export async function readActions(get: Get): Promise<Action[]> {
  const answer = await get("/v1/actions");
  const { actions } = objectOf(answer);
  if (!Array.isArray(actions)) throw badAnswer(answer);
  return actions as Action[];
}

/** The service's own verdict over a range, window by window, up to the first break. */
export async function verifyRange(get: Get, from_seq = 1, to_seq?: number): Promise<Verification> {
  let total: Verification | undefined;
  for (let from = from_seq; ;) {
    const answer = await get(`/v1/events/verify${queryOf({ from_seq: from, to_seq })}`);
    const window = objectOf(answer) as unknown as Verification & { first_seq: number; last_seq: number };
    if (typeof window.valid !== "boolean" || typeof window.last_seq !== "number") throw badAnswer(answer);
    total = total === undefined
      ? window
      : { ...window, first_seq: total.first_seq, checked: total.checked + window.checked };
    const isShort = window.last_seq - window.first_seq + 1 < WINDOW; // it has reached the head of the chain
    if (!window.valid || isShort || window.last_seq >= (to_seq ?? Infinity)) return total;
    from = window.last_seq + 1;
  }
}

/**
 * Reads every acknowledged event back and compares it with its receipt; the first rule that applies decides. Then
 * asks for its proof and checks it, unless there are no `proofs`.
 */
export async function auditReceipts(
  get: Get, receipts: Receipts, proofs: Proofs | undefined, warn: (warning: SealogError) => void,
): Promise<AuditReport> {
  const report: AuditReport = {
    checked: 0, missing: [], changed: [], moved: [], disproved: [], proven: 0, unsigned: 0, not_yet: 0, no_proof: 0,
    dropped: 0, all_there: true,
  };
  /** The event before, whose receipt has no hash: the next event's `prev_hash` has to confirm it. */
  let unconfirmed: StoredEvent | undefined;
  for await (const receipt of receipts) {
    report.checked++;
    const event = await readEvent(get, receipt.log_id).catch((error: SealogError) => {
      if (error instanceof NotFound) return undefined;
      throw error;
    });
    const list = event === undefined ? report.missing : listFor(event, receipt, report);
    list?.push(receipt.log_id);
    if (unconfirmed && event && receipt.chain_seq === unconfirmed.chain_seq + 1
      && event.prev_hash !== unconfirmed.hash && !report.changed.includes(unconfirmed.log_id)) {
      report.changed.push(unconfirmed.log_id);
    }
    unconfirmed = event && !list && receipt.hash === undefined ? event : undefined;
    if (!event || list) continue;
    const outcome = proofs ? await prove(get, event, proofs) : "absent";
    if (outcome === "absent") proofs = undefined;
    if (outcome instanceof SealogError) {
      report.disproved.push(receipt.log_id);
      warn(outcome);
    } else {
      report[outcome === "absent" ? "no_proof" : outcome]++;
    }
  }
  report.dropped = receipts.dropped ?? 0;
  const { missing, changed, moved, disproved } = report;
  report.all_there = missing.length + changed.length + moved.length + disproved.length === 0;
  return report;
}

/** What the proof of an event shows, or why it does not hold; "absent" if the server publishes none at all. */
async function prove(
  get: Get, event: StoredEvent, proofs: Proofs,
): Promise<"proven" | "unsigned" | "not_yet" | "no_proof" | "absent" | SealogError> {
  const disproved = (why: string): SealogError =>
    new SealogError(`the proof of event ${event.log_id} does not hold: ${why}`, { code: "client/disproved" });
  try {
    const answer = await get(`/tlog/v1/chain/proof${queryOf({ log_id: event.log_id, format: "tlog-proof" })}`);
    const { holds, reason, message } = await proofs.check(event, answer.text);
    if (!holds) return disproved(`${message} (${reason})`);
    return proofs.hasKey ? "proven" : "unsigned";
  } catch (error) {
    switch ((error as SealogError).code) {
      case "tlog/not_yet": return "not_yet";
      case "tlog/pruned": return "no_proof";
      case "request/not_found": return "absent";
      // Of an event that this server has just returned.
      case "tlog/not_found": return disproved("the server says that no signed tree has it");
      default: throw error;
    }
  }
}

function listFor(event: StoredEvent, receipt: Receipt, report: AuditReport): string[] | undefined {
  if (hashOf(event) !== event.hash || event.log_id !== receipt.log_id) return report.changed;
  if (receipt.chain_seq !== undefined && event.chain_seq !== receipt.chain_seq) return report.moved;
  return receipt.hash !== undefined && event.hash !== receipt.hash ? report.changed : undefined;
}

const CATALOG_MAX_AGE_MS = 60_000;

/** Checks actions against the catalog before anything is sent. */
export class Catalog {
  #actions: Map<string, Action> | undefined;
  #readAt = -Infinity;

  constructor(private readonly get: Get, private readonly now: () => number) {}

  async check(event: Event): Promise<void> {
    if (!this.#actions?.has(event.action) && this.now() - this.#readAt >= CATALOG_MAX_AGE_MS) await this.#read();
    if (!this.#actions) return; // it cannot be read: the service decides
    const known = this.#actions.get(event.action);
    if (!known) {
      const suggestion = nearest(event.action, [...this.#actions.keys()]);
      const message = `action "${event.action}" is not in the catalog; did you mean "${suggestion}"?`;
      throw new ActionError(message, { code: "action/invalid", suggestion, field: "action" });
    }
    const missing = known.required_fields.find((name) => (event.metadata?.[name] ?? null) === null);
    if (missing !== undefined) {
      const field = `metadata.${missing}`;
      const message = `${field} is missing; ${event.action} requires ${known.required_fields.join(", ")}`;
      throw new ActionError(message, { code: "action/missing_required_fields", field });
    }
  }

  async #read(): Promise<void> {
    this.#readAt = this.now();
    try {
      this.#actions = new Map((await readActions(this.get)).map((action) => [action.action, action]));
    } catch { /* the check is a convenience: without a catalog, the service decides */ }
  }
}

/** The name that takes the fewest edits. */
function nearest(name: string, names: readonly string[]): string | undefined {
  const distance = (a: string, b: string): number => {
    let row = Array.from({ length: b.length + 1 }, (_, i) => i);
    for (let i = 1; i <= a.length; i++) {
      const next = [i];
      for (let j = 1; j <= b.length; j++) {
        const swap = row[j - 1]! + Number(a[i - 1] !== b[j - 1]);
        next.push(Math.min(swap, row[j]! + 1, next[j - 1]! + 1));
      }
      row = next;
    }
    return row[b.length]!;
  };
  const ranked = names.map((other) => ({ other, edits: distance(name.slice(0, 64), other.slice(0, 64)) }));
  return ranked.sort((a, b) => a.edits - b.edits)[0]?.other;
}
