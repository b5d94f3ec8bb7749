import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { BINARY, isMissing } from "./server.mjs";

const RUNNER = fileURLToPath(new URL("../../suite/run.py", import.meta.url));
const DRIVER = fileURLToPath(new URL("./driver.mjs", import.meta.url));
const PYTHON = fileURLToPath(new URL("../../python/tests/driver.py", import.meta.url));
const skip = existsSync(RUNNER) ? false : "sdk/suite is not here";

async function pass(options, ...driver) {
  const runner = spawn("python3", [RUNNER, ...options, "--", ...driver], { stdio: ["ignore", "pipe", "pipe"] });
  let out = "";
  for (const stream of [runner.stdout, runner.stderr]) stream.on("data", (chunk) => { out += chunk; });
  const code = await new Promise((resolve) => runner.on("exit", resolve));
  assert.equal(code, 0, out);
  assert.match(out, /(\d+) of \1 scenarios passed/);
}

test("this library passes every scenario that all client libraries share", { skip }, () =>
  pass([], process.execPath, DRIVER));

test("it passes them against a real server, too", { skip: skip || isMissing }, () =>
  pass(["--server", BINARY], process.execPath, DRIVER));

test("it sends what another library left in a spool, and the other way round", { skip }, async () => {
  await pass(["--only", "spool", "--other", `python3 -S ${PYTHON}`], process.execPath, DRIVER);
  await pass(["--only", "spool", "--other", `${process.execPath} ${DRIVER}`], "python3", "-S", PYTHON);
});
