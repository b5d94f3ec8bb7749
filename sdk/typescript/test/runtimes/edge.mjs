// Runs a bundle where only the interfaces of edge runtimes exist: no process, no Buffer, no require.
//
//     node edge.mjs BUNDLE
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { EdgeVM } from "@edge-runtime/vm";

const runtime = new EdgeVM();
for (const name of ["process", "Buffer", "require", "global", "setImmediate"]) {
  assert.equal(runtime.evaluate(`typeof ${name}`), "undefined", `${name} exists; this is no edge runtime`);
}
await runtime.evaluate(`(async () => {${readFileSync(process.argv[2], "utf8")}\n})()`);
