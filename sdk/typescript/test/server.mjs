// The real service for tests: SEALOG_BIN, or the debug build of this repository.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
export const BINARY = process.env.SEALOG_BIN ?? join(process.env.CARGO_TARGET_DIR ?? join(ROOT, "target"), "debug/sealog");
const PATIENCE_MS = 60_000;

/** For the option `skip` of a test: why there is no service, or false. */
export const isMissing = existsSync(BINARY)
  ? false
  : `no program at ${BINARY}: cargo build -p sealog, or set SEALOG_BIN`;

async function freePort() {
  const probe = createServer();
  await new Promise((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

/**
 * Starts a service on an empty directory. `restart` kills it with SIGKILL and starts it again at the same
 * address.
 */
export async function startService() {
  const dir = mkdtempSync(join(tmpdir(), "sealog-service-"));
  const address = `127.0.0.1:${await freePort()}`;
  const url = `http://${address}`;
  const data = join(dir, "data");
  const settings = Object.entries(process.env).filter(([name]) => !name.startsWith("SEALOG_"));
  const env = { ...Object.fromEntries(settings), SEALOG_LIMITS_PER_IP_RPS: "0", SEALOG_LIMITS_LIVE_RPS: "0" };
  let child;

  async function start() {
    child = spawn(BINARY, ["serve", "--listen", address, "--data-dir", data], { cwd: dir, env, stdio: "ignore" });
    for (const end = Date.now() + PATIENCE_MS; ;) {
      const isReady = await fetch(`${url}/readyz`).then(({ ok }) => ok, () => false);
      if (isReady) return;
      if (child.exitCode !== null || Date.now() > end) throw new Error(`${BINARY} does not serve (${child.exitCode})`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
  async function kill() {
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
  }
  await start();
  const keys = readFileSync(join(data, "first-run.txt"), "utf8");
  return {
    url,
    dir,
    liveKey: /^ *live key *(\S+)/m.exec(keys)[1],
    testKey: /^ *test key *(\S+)/m.exec(keys)[1],
    restart: async () => { await kill(); await start(); },
    stop: async () => { await kill(); rmSync(dir, { recursive: true, force: true }); },
  };
}
