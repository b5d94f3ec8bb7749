// A custom action, usable at once.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { journey, launch, submitPassword } from "./browser.mjs";
import { without as missing } from "./pages.mjs";
import { serve } from "./server.mjs";

let server, browser;
before(async () => { [server, browser] = await Promise.all([serve(), launch()]); }, { timeout: 300_000 });
after(async () => { await browser?.close(); await server?.stop(); });

const skip = missing("/app/o/{organisation}/actions/create");
for (const scripts of [true, false]) {
  journey(`register, use and retire a custom action${scripts ? "" : ", without JavaScript"}`, () => browser, { scripts, skip }, async (page) => {
    const { people, live } = await server.organisation();
    await submitPassword(page, server, people.owner);
    await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Actions" }).click();
    await page.getByRole("link", { name: /^New/ }).first().click();
    await page.getByLabel("Name", { exact: true }).fill("user.login");
    await page.getByRole("button", { name: "Register" }).click();
    await page.locator("#action-hint.bad").waitFor();
    await page.getByLabel("Name", { exact: true }).fill("invoice.approved");
    await page.getByLabel("Required metadata fields").fill("invoice_id");
    await page.getByRole("button", { name: "Register" }).click();
    await page.getByRole("heading", { name: "invoice.approved" }).waitFor();

    const refused = await server.api(live, "/v1/events", { action: "invoice.approved" });
    assert.deepEqual([refused.status, refused.body.error.code], [422, "action/missing_required_fields"]);
    await server.send(live, { action: "invoice.approved", metadata: { invoice_id: "INV-1" } });

    await page.getByRole("button", { name: "Retire" }).click();
    await page.getByRole("status").filter({ hasText: "retired" }).waitFor();
    const gone = await server.api(live, "/v1/events", { action: "invoice.approved", metadata: { invoice_id: "INV-1" } });
    assert.deepEqual([gone.status, gone.body.error.code], [422, "action/invalid"]);
  });
}
