// Kills the application and the service with SIGKILL again and again, then compares what was promised with
// what is stored. `node test/ledger.mjs 30 20` is the full run: 30 kills of the application, 20 of the
// service.
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Sealog, verifyEvents } from "../dist/esm/node.js";
import { startService } from "./server.mjs";

const APP = fileURLToPath(new URL("./ledger_app.mjs", import.meta.url));

export async function runLedger(appKills, serviceKills) {
  const service = await startService();
  const ledger = join(service.dir, "ledger");
  const spool = join(service.dir, "spool");
  const lines = () => (existsSync(ledger) ? readFileSync(ledger, "utf8").split("\n").slice(0, -1) : []);
  const run = (mode, first) => spawn(
    process.execPath, [APP, mode, service.url, service.liveKey, spool, ledger, String(first)], { stdio: "inherit" });
  try {
    const killsOfService = (async () => {
      for (let kill = 0; kill < serviceKills; kill++) {
        await sleep(Math.random() * 800);
        await service.restart();
      }
    })();
    // An event whose line a kill has prevented may be stored or not, so its number is not used again.
    let first = 1;
    for (let kill = 0; kill < appKills; kill++) {
      const app = run("queue", first);
      const ended = new Promise((resolve) => app.once("exit", resolve));
      const before = lines().length;
      while (lines().length <= before && app.exitCode === null) await sleep(10);
      await sleep(Math.random() * 800);
      app.kill("SIGKILL");
      await ended;
      const queued = lines().filter((line) => line.startsWith("queued")).map((line) => Number(line.split(" ")[1]));
      first = Math.max(0, ...queued) + 2;
    }
    await killsOfService;
    const drain = run("drain", 0);
    await new Promise((resolve) => drain.once("exit", resolve));
    return await compare(lines().map((line) => line.split(" ")), service);
  } finally {
    await service.stop();
  }
}

async function compare(lines, { url, liveKey }) {
  const client = new Sealog({ url, apiKey: liveKey });
  const stored = [];
  for await (const event of client.events()) stored.push(event);
  stored.reverse();
  const of = (kind) => lines.filter(([first]) => first === kind);
  const times = new Map();
  for (const { resource } of stored) times.set(resource, (times.get(resource) ?? 0) + 1);
  const byId = new Map(stored.map((event) => [event.log_id, event]));
  const isStored = ([, resource, log_id, seq]) =>
    byId.get(log_id)?.resource === resource && byId.get(log_id).chain_seq === Number(seq);
  const numbers = stored.map(({ resource }) => Number(resource));
  await client.close();
  return {
    queued: of("queued").length,
    receipts: of("receipt").length,
    stored: stored.length,
    queued_lost: of("queued").filter(([, resource]) => !times.has(resource)).length,
    acknowledged_lost: of("receipt").filter((line) => !isStored(line)).length,
    stored_twice: [...times.values()].filter((count) => count > 1).length,
    out_of_order: numbers.filter((number, i) => i > 0 && number < numbers[i - 1]).length,
    errors: of("error").length,
    left_in_spool: Number(of("left")[0]?.[1]),
    warnings: Object.fromEntries([...new Set(of("warning").map(([, code]) => code))].map((code) =>
      [code, of("warning").filter(([, other]) => other === code).length])),
    is_chain_valid: verifyEvents(stored).valid,
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [appKills = 30, serviceKills = 20] = process.argv.slice(2).map(Number);
  const started = Date.now();
  const result = await runLedger(appKills, serviceKills);
  console.log({ appKills, serviceKills, ...result, seconds: (Date.now() - started) / 1000 });
}
