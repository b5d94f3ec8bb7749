// The documentation at /docs: nobody signs in; accessible in both themes, on a narrow screen, without JavaScript, within its policy, and small.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { hasNoBarriers } from "./barriers.mjs";
import { journey, launch } from "./browser.mjs";
import { serve } from "./server.mjs";

const FIRST_VIEW_BYTES_MAX = 100 * 1024;

// One of each kind: written, made from a table, searched, found, and not found.
const PAGES = [
  "/docs/",
  "/docs/quickstart",
  "/docs/concepts",
  "/docs/shippers",
  "/docs/settings",
  "/docs/verify-it-yourself",
  "/docs/api",
  "/docs/api/events",
  "/docs/api/bodies",
  "/docs/commands",
  "/docs/commands/serve",
  "/docs/all-settings",
  "/docs/mappings",
  "/docs/frameworks",
  "/docs/frameworks/soc2",
  "/docs/actions",
  "/docs/errors",
  "/docs/errors/auth/key_not_found",
  "/docs/search?q=idempotency",
  "/docs/search?q=nothingthatexists",
];

let server, browser;
before(async () => { [server, browser] = await Promise.all([serve(), launch()]); }, { timeout: 120_000 });
after(async () => { await browser?.close(); await server?.stop(); });

for (const dark of [false, true]) {
  journey(`the documentation has no barriers in the ${dark ? "dark" : "light"} theme, and small first views`, () => browser, { dark }, async (page, one) => {
    for (const path of PAGES) {
      const answers = [];
      const note = (response) => answers.push(response);
      one.context.on("response", note);
      const response = await page.goto(server.url + path);
      assert.equal(response.status(), 200, path);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await page.waitForLoadState("load");
      one.context.off("response", note);
      const sizes = await Promise.all(answers.map(async (answer) => (await answer.request().sizes()).responseBodySize));
      const bytes = sizes.reduce((sum, size) => sum + Math.max(size, 0), 0);
      assert.ok(bytes > 1000 && bytes < FIRST_VIEW_BYTES_MAX, `${path}: ${bytes} bytes`);
      await hasNoBarriers(page).catch((error) => { throw new Error(`${path}: ${error.message}`); });
    }
  });
}

journey("the documentation reads without JavaScript and fits a narrow screen", () => browser, { scripts: false, narrow: true }, async (page) => {
  for (const path of PAGES) {
    await page.goto(server.url + path);
    await page.getByRole("heading", { level: 1 }).waitFor();
    const width = await page.evaluate(() => document.scrollingElement.scrollWidth);
    assert.ok(width <= 320, `${path} is ${width} wide and must be scrolled sideways`);
  }
});

journey("a reader searches, without JavaScript, and gets to the section", () => browser, { scripts: false }, async (page) => {
  await page.goto(`${server.url}/docs/`);
  await page.getByRole("main").getByLabel("Search the documentation").fill("idempotency");
  await page.getByRole("main").getByRole("button", { name: "Search" }).click();
  await page.getByRole("heading", { name: "Search", level: 1 }).waitFor();
  await page.getByRole("link", { name: "Concepts: Idempotency" }).click();
  assert.equal(new URL(page.url()).pathname + new URL(page.url()).hash, "/docs/concepts#idempotency");
  await page.getByRole("heading", { name: "Idempotency" }).waitFor();
});

journey("the sign-in page leads to the documentation, and back", () => browser, {}, async (page) => {
  await page.goto(`${server.url}/app/sign-in`);
  await page.getByRole("link", { name: "Docs" }).click();
  await page.getByRole("heading", { name: "Sealog documentation" }).waitFor();
  await page.getByRole("link", { name: "Open the dashboard" }).click();
  await page.getByRole("button", { name: "Sign in" }).waitFor();
});
