// SHA-256 and HMAC (FIPS 180-4, RFC 2104). WebCrypto has both, but only as promises, and Node 18 has no
// global one; `beforeSend` and `verifyEvents` need an answer at once, in every runtime. The tests compare it
// with node:crypto.

/** The first 32 bits of the fractional part of the square or cube root of the n-th prime. */
function rootBits(primes: readonly number[], power: number): number[] {
  return primes.map((prime) => {
    const root = prime ** power;
    return ((root - Math.floor(root)) * 2 ** 32) | 0;
  });
}

const PRIMES: number[] = [];
for (let n = 2; PRIMES.length < 64; n++) if (PRIMES.every((prime) => n % prime !== 0)) PRIMES.push(n);
const K = Int32Array.from(rootBits(PRIMES, 1 / 3));
const START = Int32Array.from(rootBits(PRIMES.slice(0, 8), 1 / 2));
const W = new Int32Array(64);
const UTF8 = new TextEncoder();

/** The digest of these bytes as 32 bytes. */
export function sha256(message: Uint8Array): Uint8Array {
  const padded = new Uint8Array(((message.length + 8) >> 6 << 6) + 64);
  padded.set(message);
  padded[message.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(message.length / 2 ** 29));
  view.setUint32(padded.length - 4, (message.length << 3) >>> 0);
  const state = START.slice();
  for (let block = 0; block < padded.length; block += 64) compress(state, view, block);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => digest.setInt32(i * 4, word));
  return new Uint8Array(digest.buffer);
}

function compress(state: Int32Array, view: DataView, block: number): void {
  for (let i = 0; i < 16; i++) W[i] = view.getInt32(block + i * 4);
  for (let i = 16; i < 64; i++) {
    const x = W[i - 15]!;
    const y = W[i - 2]!;
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    W[i] = W[i - 16]! + s0 + W[i - 7]! + s1;
  }
  let a = state[0]!, b = state[1]!, c = state[2]!, d = state[3]!;
  let e = state[4]!, f = state[5]!, g = state[6]!, h = state[7]!;
  for (let i = 0; i < 64; i++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i]! + W[i]!) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g; g = f; f = e; e = (d + t1) | 0;
    d = c; c = b; b = a; a = (t1 + t2) | 0;
  }
  state[0]! += a; state[1]! += b; state[2]! += c; state[3]! += d;
  state[4]! += e; state[5]! += f; state[6]! += g; state[7]! += h;
}

const hex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** The digest of a text in UTF-8, as 64 lower-case hex digits. */
export const sha256Hex = (text: string): string => hex(sha256(UTF8.encode(text)));

/** HMAC-SHA-256 of a text under a key, as 64 lower-case hex digits. */
export function hmacSha256Hex(key: Uint8Array, text: string): string {
  const block = new Uint8Array(64);
  block.set(key.length > 64 ? sha256(key) : key);
  const joined = (pad: number, rest: Uint8Array): Uint8Array => {
    const bytes = new Uint8Array(64 + rest.length);
    block.forEach((byte, i) => { bytes[i] = byte ^ pad; });
    bytes.set(rest, 64);
    return bytes;
  };
  return hex(sha256(joined(0x5c, sha256(joined(0x36, UTF8.encode(text))))));
}
