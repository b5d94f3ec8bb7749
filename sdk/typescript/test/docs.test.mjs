// Every example of the README and of docs/sdk-typescript.md is compiled with tsc --strict and run against a
// service.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { BINARY, isMissing, startService } from "./server.mjs";

const run = promisify(execFile);
const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
const PAGES = { readme: join(PACKAGE, "README.md"), guide: join(PACKAGE, "../../docs/sdk-typescript.md") };

/** Parts of the output that the page promises, by the heading above the example. */
const PRINTED = {
  "Log an event": /^[0-9A-Z]{26} \d+ [0-9a-f]{64}$/m,
  "Log without waiting": /stored document\/42 \S+\nstored document\/42 \S+/,
  "Errors and retries": /^action\/invalid did you mean user\.login$/m,
  "the README": /^\d+$/m,
  "Receipts that audit the server": /^proven 0 too new \d+ without a proof \d+$/m,
  "Read and verify": /^[1-9]\d* [a-z.]+\ntrue\ntrue$/m,
};

function examples() {
  const found = [];
  for (const [page, path] of Object.entries(PAGES)) {
    let heading = page;
    for (const [, title, code] of readFileSync(path, "utf8").matchAll(/^## (.*)$|^```ts\n([^]*?)^```$/gm)) {
      if (title !== undefined) heading = title;
      else found.push({ heading, code, name: `${page}${found.length}` });
    }
  }
  const readme = readFileSync(join(PACKAGE, "../../README.md"), "utf8");
  const [, line] = readme.match(/^\| \[TypeScript\].*\| `(.*)` \|$/m);
  found.push({ heading: "the README", code: `import { Sealog } from "sealog/node";\nconsole.log((${line}).chain_seq);\n`, name: "line" });
  return found;
}

test("every example of the documents compiles strictly and runs", { skip: isMissing }, async (t) => {
  const all = examples();
  assert.ok(all.length >= 9, `${all.length} examples`);
  const dir = mkdtempSync(join(tmpdir(), "sealog-docs-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  mkdirSync(join(dir, "node_modules/@types"), { recursive: true });
  symlinkSync(PACKAGE, join(dir, "node_modules/sealog"));
  symlinkSync(join(PACKAGE, "node_modules/@types/node"), join(dir, "node_modules/@types/node"));
  writeFileSync(join(dir, "package.json"), '{"type":"module"}');
  for (const { name, code } of all) writeFileSync(join(dir, `${name}.ts`), code);
  const service = await startService();
  t.after(service.stop);
  const env = { ...process.env, SEALOG_URL: service.url, SEALOG_API_KEY: service.liveKey };
  await run(BINARY, ["actions", "--emit", "ts", "--output", "actions.ts"], { cwd: dir, env });
  const options = "--strict --noUncheckedIndexedAccess --module nodenext --target es2022 --types node".split(" ");
  const tsc = join(PACKAGE, "node_modules/typescript/bin/tsc");
  await run(process.execPath, [tsc, ...options, ...all.map(({ name }) => `${name}.ts`)], { cwd: dir })
    .catch(({ stdout }) => assert.fail(stdout));

  for (const { name, heading } of all) {
    const { stdout, stderr } = await run(process.execPath, [`${name}.js`], { cwd: dir, env, timeout: 60_000 })
      .catch(({ message }) => assert.fail(`${heading}: ${message}`));
    assert.equal(stderr, "", heading);
    if (PRINTED[heading]) assert.match(stdout, PRINTED[heading], heading);
  }
  for (const heading of Object.keys(PRINTED)) assert.ok(all.some((example) => example.heading === heading), heading);
});
