// The life of an API key.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { journey, launch, submitPassword } from "./browser.mjs";
import { without as missing } from "./pages.mjs";
import { serve } from "./server.mjs";
import { isForEverybody } from "./walk.mjs";

let server, browser;
before(async () => { [server, browser] = await Promise.all([serve(), launch()]); }, { timeout: 300_000 });
after(async () => { await browser?.close(); await server?.stop(); });

for (const scripts of [true, false]) {
  journey(`create, use and revoke a key${scripts ? "" : ", without JavaScript"}`, () => browser, { scripts }, async (page) => {
    const { people } = await server.organisation();
    await submitPassword(page, server, people.owner);
    await page.getByRole("link", { name: "API keys" }).click();
    await page.getByRole("link", { name: "Create key" }).click();
    const create = page.getByRole("dialog", { name: "Create a key" });
    assert.ok(await create.getByLabel("Name", { exact: true }).evaluate((input) => input === document.activeElement) || !scripts);
    await page.getByLabel("Name", { exact: true }).fill("checkout");
    await page.getByLabel("Mode", { exact: true }).selectOption("live");
    await page.getByRole("button", { name: "Create key" }).click();
    const key = (await page.getByRole("region", { name: "API key", exact: true }).textContent()).trim();
    assert.match(key, /^at_live_[0-9A-Za-z]{32,}$/);
    await isForEverybody(page, { scripts });

    await server.send(key, { action: "user.login", actor_id: "usr_1" });
    await page.getByRole("link", { name: "API keys" }).click();
    const row = page.getByRole("row").filter({ hasText: "checkout" });
    assert.ok(!(await page.content()).includes(key), "it is shown once");
    await row.getByText(key.slice(0, 12)).waitFor();

    await row.getByRole("link", { name: /^Revoke/ }).click();
    const sheet = page.getByRole("dialog", { name: "Revoke “checkout”" });
    await sheet.getByText("Revoking cannot be undone").waitFor();
    assert.ok(await sheet.getByLabel("Type the key name to confirm").evaluate((input) => input === document.activeElement) || !scripts);
    await isForEverybody(page, { scripts });
    await sheet.getByLabel("Type the key name to confirm").fill("check");
    await sheet.getByRole("button", { name: "Revoke key" }).click();
    await sheet.getByRole("alert").waitFor();
    await isForEverybody(page, { scripts });
    await sheet.getByLabel("Type the key name to confirm").fill("checkout");
    await sheet.getByRole("button", { name: "Revoke key" }).click();
    await row.getByText("Revoked").first().waitFor();
    const refused = await server.api(key, "/v1/events", { action: "user.login" });
    assert.deepEqual([refused.status, refused.body.error.code], [401, "auth/key_revoked"]);
  });

  const skip = missing("/app/o/{organisation}/keys/roll");
  journey(`roll a key${scripts ? "" : ", without JavaScript"}`, () => browser, { scripts, skip }, async (page) => {
    const { people, live: old } = await server.organisation();
    await submitPassword(page, server, people.owner);
    await page.getByRole("link", { name: "API keys" }).click();
    const row = page.getByRole("row").filter({ hasText: "live key" });
    await row.getByRole("link", { name: /^Roll/ }).click();
    await page.getByRole("dialog", { name: "Roll “live key”" }).waitFor();
    await isForEverybody(page, { scripts });
    await page.getByRole("dialog").getByRole("button", { name: "Create new key" }).click();
    const key = (await page.getByRole("region", { name: "API key", exact: true }).textContent()).trim();
    assert.notEqual(key, old);
    // Both work while the old one runs out.
    await server.send(key, { action: "user.login", actor_id: "usr_new" });
    await page.getByRole("row").filter({ hasText: "live key (old, until " }).waitFor();
    // Loaded again, the page makes no second key.
    const rows = await page.getByRole("row").count();
    await page.reload();
    await page.getByText("This form has already created its key").waitFor();
    assert.equal(await page.getByRole("row").count(), rows);
  });
}
