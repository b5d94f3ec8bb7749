// What an auditor does, and may not.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { after, before } from "node:test";
import { journey, launch, signedIn } from "./browser.mjs";
import { without as missing } from "./pages.mjs";
import { serve } from "./server.mjs";

let server, browser, place, cookies;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  place = await server.organisation();
  for (let number = 0; number < 25; number += 1) await server.send(place.live, { action: "user.login", actor_id: `usr_${number}`, metadata: { cell: "=1+1" } });
  cookies = await signedIn(browser, server, place.people.auditor);
}, { timeout: 300_000 });
after(async () => { await browser?.close(); await server?.stop(); });

for (const scripts of [true, false]) {
  const without = scripts ? "" : ", without JavaScript";

  journey(`an auditor verifies${without}`, () => browser, { scripts, skip: missing("/app/p/{project}/{mode}/verify/{run}") }, async (page, { context }) => {
    await context.addCookies(cookies);
    await page.goto(`${server.url}/app/p/${place.project}/live/verify`);
    await page.getByRole("button", { name: "Verify", exact: true }).click();
    const valid = page.getByRole("status").filter({ hasText: "25 of 25 events are valid." });
    for (let tries = 0; !scripts && tries < 50 && await valid.count() === 0; tries += 1) {
      await page.getByRole("link", { name: "Refresh" }).click();
    }
    await valid.waitFor();
    const report = page.waitForEvent("download");
    await page.getByRole("link", { name: "Report (JSON)" }).click().catch(() => {});
    assert.ok(JSON.parse(readFileSync(await (await report).path(), "utf8")));
  });

  journey(`an auditor exports${without}`, () => browser, { scripts, skip: missing("/app/p/{project}/{mode}/exports") }, async (page, { context }) => {
    await context.addCookies(cookies);
    await page.goto(`${server.url}/app/p/${place.project}/live/exports`);
    await page.getByLabel("Format").selectOption("ndjson");
    await page.getByRole("button", { name: "Create export" }).click();
    const file = async () => {
      const download = page.waitForEvent("download");
      await page.getByRole("link", { name: /^Download/ }).first().click();
      return readFileSync(await (await download).path());
    };
    const first = await file();
    assert.equal(first.toString().trim().split("\n").length, 25);
    assert.deepEqual(await file(), first, "the same bytes each time");
    await page.reload();
    await page.getByText(createHash("sha256").update(first).digest("hex")).first().waitFor();
    await page.getByLabel("Actor").fill("usr_1");
    await page.getByRole("button", { name: "Create export" }).click();
    const { height } = await page.locator("td .chip").first().boundingBox();
    assert.ok(height < 80, `a filter takes a line or two, not ${height} pixels`);
  });

  journey(`an auditor is refused what is not theirs${without}`, () => browser, { scripts }, async (page, { context }) => {
    await context.addCookies(cookies);
    for (const path of ["members", "projects"]) {
      const response = await page.goto(`${server.url}/app/o/${place.organisation}/${path}`);
      assert.equal(response.status(), 403, path);
      await page.getByText("auth/not_allowed").waitFor();
    }
    await page.goto(`${server.url}/app/o/${place.organisation}/keys`);
    assert.equal(await page.getByRole("button", { name: /Create|Revoke/ }).count(), 0);
    const other = await server.organisation("Another organisation");
    const foreign = await page.goto(`${server.url}/app/p/${other.project}/live/events`);
    assert.equal(foreign.status(), 404);
  });
}
