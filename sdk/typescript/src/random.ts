interface Crypto {
  getRandomValues(bytes: Uint8Array): Uint8Array;
  readonly subtle: {
    importKey(format: "raw", key: Uint8Array, algorithm: object, extractable: boolean, usages: string[]): Promise<unknown>;
    verify(algorithm: object, key: unknown, signature: Uint8Array, message: Uint8Array): Promise<boolean>;
  };
}

let source = (globalThis as { crypto?: Crypto }).crypto;

/** The runtime's WebCrypto. Node 18 has no global `crypto` and has to load the module first. */
export async function webCrypto(): Promise<Crypto> {
  const name = "node:crypto"; // in a variable, so that bundlers for other runtimes do not search it
  source ??= ((await import(name)) as { webcrypto: Crypto }).webcrypto;
  return source;
}

/** Resolves once `newKey` can be called. */
export async function randomReady(): Promise<void> {
  await webCrypto();
}

/** An idempotency key: 160 random bits. */
export function newKey(): string {
  if (!source) throw new Error("newKey() before randomReady()");
  const bytes = source.getRandomValues(new Uint8Array(20));
  return `ts-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
