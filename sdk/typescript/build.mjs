// Compiles the sources twice, to ES modules and to CommonJS, and once more without Node's types: the main
// entry and `sealog/testing` have to work in any runtime that has fetch, so nothing of Node may slip into
// them.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";

process.chdir(new URL(".", import.meta.url).pathname);
rmSync("dist", { recursive: true, force: true });
mkdirSync("dist/cjs", { recursive: true });
writeFileSync("dist/cjs/package.json", '{"type":"commonjs"}\n');
for (const project of ["tsconfig.portable.json", "tsconfig.json", "tsconfig.cjs.json"]) {
  execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", "-p", project], { stdio: "inherit" });
}
copyFileSync("../../LICENSE", "LICENSE");
