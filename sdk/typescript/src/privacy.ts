import { badOption } from "./http.js";
import { hmacSha256Hex } from "./sha256.js";

/**
 * A stable pseudonym of a value, for example of an e-mail address: the same key and value give the same
 * pseudonym in every client library. Keep the key secret and apart from the events; without it a pseudonym
 * cannot be traced back.
 */
export function pseudonymize(key: string, value: string): string {
  if (typeof key !== "string" || key === "") throw badOption("key", "is missing; pass a secret text");
  if (typeof value !== "string") throw badOption("value", "is not a text; pass the text to replace");
  return `ps_${hmacSha256Hex(new TextEncoder().encode(key), value).slice(0, 32)}`;
}
