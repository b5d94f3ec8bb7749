// The context of a request, for Node: AsyncLocalStorage carries it from the middleware to every `log` below
// it.

import { AsyncLocalStorage } from "node:async_hooks";
import { BlockList, isIP } from "node:net";
import type { Context } from "./client.js";
import { badOption } from "./http.js";

const storage = new AsyncLocalStorage<Context>();

/** Runs `work` with this context: every event that it logs gets what the event itself does not say. */
export function withContext<T>(context: Context, work: () => T): T {
  const outer = storage.getStore();
  const metadata = { ...outer?.metadata, ...context.metadata };
  return storage.run({ ...outer, ...context, metadata }, work);
}

/** The context of the running request. Assign to its fields, for example once the user is known. */
export const currentContext = (): Context | undefined => storage.getStore();

/** The part of a request that the middlewares read. Express, Fastify and `node:http` have it. */
export interface IncomingRequest {
  headers: Record<string, string | string[] | undefined>;
  socket?: { remoteAddress?: string | undefined } | undefined;
  /** Fastify's id of the request. */
  id?: unknown;
}

export interface MiddlewareOptions<Request> {
  /**
   * Addresses and CIDR ranges of your own proxies. `X-Forwarded-For` is read only if it comes from one of
   * them.
   */
  trustedProxies?: readonly string[];
  /** Called when an event is logged, so it sees what the authentication has added to the request by then. */
  actor?: (request: Request) => string | null | undefined;
  session?: (request: Request) => string | null | undefined;
}

/** Express (and Connect): `app.use(expressContext({ actor: (req) => req.user?.id }))`. */
export function expressContext<Request extends IncomingRequest = IncomingRequest>(
  options: MiddlewareOptions<Request> = {},
): (request: Request, response: unknown, next: () => void) => void {
  const contextOf = contextReader(options);
  return (request, _response, next) => storage.run(contextOf(request), next);
}

/** The part of a Fastify instance that the plugin calls. */
export interface FastifyLike<Request> {
  addHook(
    name: "onRequest", hook: (request: Request, reply: unknown, done: () => void) => void,
  ): unknown;
}

/** Fastify: `fastify.register(fastifyContext({ actor: (request) => request.user?.id }))`. */
export function fastifyContext<Request extends IncomingRequest = IncomingRequest>(
  options: MiddlewareOptions<Request> = {},
): (fastify: FastifyLike<Request>, settings: unknown, done: () => void) => void {
  const contextOf = contextReader(options);
  const plugin = (fastify: FastifyLike<Request>, _settings: unknown, done: () => void): void => {
    fastify.addHook("onRequest", (request, _reply, next) => storage.run(contextOf(request), next));
    done();
  };
  // Without this mark Fastify would keep the hook to routes that the plugin itself defines.
  return Object.assign(plugin, { [Symbol.for("skip-override")]: true });
}

const ID = /^[\x21-\x7e]{1,128}$/;

function contextReader<Request extends IncomingRequest>(
  { trustedProxies = [], actor, session }: MiddlewareOptions<Request>,
): (request: Request) => Context {
  const trusted = blockListOf(trustedProxies);
  return (request) => {
    const header = (name: string): string => [request.headers[name] ?? ""].flat().join(",");
    const id = header("x-request-id") || (typeof request.id === "string" ? request.id : "");
    const context: Context = {
      metadata: {
        ip_address: clientAddress(request.socket?.remoteAddress, header("x-forwarded-for"), trusted),
        request_id: ID.test(id) ? id : undefined,
      },
    };
    if (header("traceparent") !== "") context.traceparent = header("traceparent"); // `log` checks its form
    const late = (name: "actor_id" | "session_id", read: (request: Request) => string | null | undefined): void => {
      let assigned: string | null | undefined;
      Object.defineProperty(context, name, {
        enumerable: true,
        configurable: true,
        get: () => assigned ?? read(request) ?? undefined,
        set: (value) => { assigned = value; },
      });
    };
    if (actor) late("actor_id", actor);
    if (session) late("session_id", session);
    return context;
  };
}

/** @internal */
export function blockListOf(ranges: readonly string[]): BlockList {
  const list = new BlockList();
  for (const range of ranges) {
    const [address = "", bits, ...rest] = range.split("/");
    const family = isIP(address) === 6 ? "ipv6" : "ipv4";
    const most = family === "ipv6" ? 128 : 32;
    const prefix = bits === undefined ? most : Number(/^[0-9]+$/.test(bits) ? bits : NaN);
    if (isIP(address) === 0 || rest.length > 0 || !(prefix <= most)) {
      throw badOption("trustedProxies", `contains "${range}"; write addresses or ranges such as 10.0.0.0/8`);
    }
    list.addSubnet(address, prefix, family);
  }
  return list;
}

/**
 * The peer, or behind trusted proxies the first address from the right of `X-Forwarded-For` that is not one
 * of them. The same rule as the service's own (docs/spec.md, 8.2).
 * @internal
 */
export function clientAddress(peer: string | undefined, forwarded: string, trusted: BlockList): string | undefined {
  const plain = (address: string): string => address.replace(/^::ffff:(?=[0-9.]+$)/i, "");
  const isTrusted = (address: string): boolean =>
    trusted.check(address, isIP(address) === 6 ? "ipv6" : "ipv4");
  let client = peer === undefined || isIP(plain(peer)) === 0 ? undefined : plain(peer);
  const entries = forwarded.split(",").map((entry) => entry.trim()).filter((entry) => entry !== "");
  for (const entry of entries.slice(-32).reverse()) {
    if (client === undefined || !isTrusted(client)) return client;
    const [, inBrackets, withPort] = /^\[([^\]]+)\](?::\d+)?$|^([0-9.]+):\d+$/.exec(entry) ?? [];
    const address = plain(inBrackets ?? withPort ?? entry);
    if (entry.length > 64 || isIP(address) === 0) return client;
    client = address;
  }
  return client;
}
