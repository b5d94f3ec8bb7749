// Enabling and disabling a framework, as the API feels it.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { journey, launch, submitPassword } from "./browser.mjs";
import { without as missing } from "./pages.mjs";
import { serve } from "./server.mjs";

let server, browser;
before(async () => { [server, browser] = await Promise.all([serve(), launch()]); }, { timeout: 300_000 });
after(async () => { await browser?.close(); await server?.stop(); });

const skip = missing("/app/p/{project}/{mode}/frameworks/{framework}/change");
for (const scripts of [true, false]) {
  journey(`disable and enable a framework${scripts ? "" : ", without JavaScript"}`, () => browser, { scripts, skip }, async (page) => {
    const { people, live, project } = await server.organisation();
    const consent = { action: "gdpr.consent_withdrawn", metadata: { data_subject_id: "s1", purpose: "newsletter" } };
    await server.send(live, consent);
    await submitPassword(page, server, people.owner);
    await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Frameworks" }).click();
    const change = async (name) => {
      await page.getByRole("region", { name: "GDPR", exact: true }).getByRole("link", { name: new RegExp(`^${name}`) }).click();
      await page.getByLabel("I have read the changes").check();
      await page.getByRole("button", { name: `${name} GDPR` }).click();
      await page.goto(`${server.url}/app/p/${project}/live/frameworks`);
    };
    await change("Disable");
    const refused = await server.api(live, "/v1/events", consent);
    assert.deepEqual([refused.status, refused.body.error.code], [403, "framework/disabled"]);
    await change("Enable");
    await server.send(live, consent);
  });
}
