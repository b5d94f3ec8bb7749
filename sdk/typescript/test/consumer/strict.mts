import { RateLimited, type Event, type Logger, type Receipt, type StoredEvent } from "sealog";
import { expressContext, fastifyContext, Sealog, withContext, type HeldBatch } from "sealog/node";
import { Recorder } from "sealog/testing";

interface Request { headers: Record<string, string | string[] | undefined>; user?: { id: string } }
const event: Event = { action: "user.login", actor_id: null, metadata: { nested: [{ a: 1 }, null], absent: undefined } };
const logger: Logger = new Recorder();
const receipt: Receipt = await logger.log(event, { idempotencyKey: "k" });
const seq: number | undefined = receipt.chain_seq;
expressContext<Request>({ actor: (request) => request.user?.id })({ headers: {} }, {}, () => undefined);
fastifyContext<Request>({ session: (request) => request.user?.id });
const answer: number = withContext({ actor_id: "u-1" }, () => 7);
export async function read(sealog: Sealog): Promise<StoredEvent | undefined> {
  const held: HeldBatch[] = sealog.held();
  for await (const stored of sealog.events({ action: "user.login" })) return stored;
  throw new RateLimited(`${held.length}`, { retry_after_s: 1 });
}
if (seq !== 1 || answer !== 7) throw new Error(`${seq} ${answer}`);
