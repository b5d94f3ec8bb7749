import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const RUNNER = fileURLToPath(new URL("../../suite/run.py", import.meta.url));
const DRIVER = fileURLToPath(new URL("./driver.mjs", import.meta.url));
const skip = existsSync(RUNNER) ? false : "sdk/suite is not here";

test("this library passes every scenario that all client libraries share", { skip }, async () => {
  const runner = spawn("python3", [RUNNER, "--", process.execPath, DRIVER], { stdio: ["ignore", "pipe", "pipe"] });
  let out = "";
  for (const stream of [runner.stdout, runner.stderr]) stream.on("data", (chunk) => { out += chunk; });
  const code = await new Promise((resolve) => runner.on("exit", resolve));
  assert.equal(code, 0, out);
  assert.match(out, /(\d+) of \1 scenarios passed/);
});
