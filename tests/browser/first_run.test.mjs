// From an empty directory to the first event in the page.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { eventually, journey, launch } from "./browser.mjs";
import { has } from "./pages.mjs";
import { serve } from "./server.mjs";

let browser;
before(async () => { browser = await launch(); }, { timeout: 300_000 });
after(() => browser?.close());

for (const scripts of [true, false]) {
  journey(`first run to first event seen${scripts ? "" : ", without JavaScript"}`, () => browser, { scripts }, async (page) => {
    const server = await serve();
    try {
      const text = server.firstRun();
      const link = text.match(/http:\S+\/claim#\S+/)[0];
      const key = text.match(/at_live_\w+/)[0];

      await page.goto(link);
      if (scripts) {
        // The secret goes from the address into the form.
        await page.getByLabel("Link, or the part after #").waitFor({ state: "hidden" });
        assert.ok(!page.url().includes("#"), page.url());
      } else {
        await page.getByLabel("Link, or the part after #").fill(link.split("#")[1]);
      }
      await page.getByLabel("Organisation").fill("Northwind");
      await page.getByLabel("First project").fill("production");
      await page.getByLabel("Your e-mail").fill("me@example.org");
      await page.getByLabel("New password").fill("a few long words");
      await page.getByRole("button", { name: "Create owner account" }).click();
      // Signed in right after it.
      await page.getByText("Northwind").first().waitFor();
      await eventually("the file has lost the link", () => !server.firstRun().includes("/claim#"));

      await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Events" }).click();
      await page.getByRole("heading", { name: "No events yet" }).waitFor();
      assert.match(await page.getByRole("region", { name: "Command that sends an event" }).textContent(), /\/v1\/events/);

      await server.send(key, { action: "user.login", actor_id: "me" });
      // Where the page follows by itself, nobody has to load it again.
      if (!scripts || !has("/app/p/{project}/{mode}/tail")) await page.reload();
      const row = page.getByRole("row").filter({ hasText: "user.login" });
      await row.getByRole("link", { name: "#1" }).click();
      await page.getByRole("heading", { name: "user.login" }).waitFor();
      await page.getByText("Hash recomputed by the server").waitFor();
      if (scripts) {
        await page.getByRole("button", { name: "Recompute in this browser" }).click();
        await page.getByText("✓ Matches").waitFor();
      }

      // The link works once.
      await page.context().clearCookies();
      await page.goto(link);
      await page.getByLabel("Link, or the part after #").evaluate((input, secret) => { input.value = secret; }, link.split("#")[1]);
      await page.getByLabel("Organisation").fill("Another");
      await page.getByLabel("First project").fill("another");
      await page.getByLabel("Your e-mail").fill("somebody@example.org");
      await page.getByLabel("New password").fill("some other words");
      await page.getByRole("button", { name: "Create owner account" }).click();
      await page.locator("#token-error").waitFor();
      assert.equal(await page.getByLabel("Your e-mail").inputValue(), "somebody@example.org", "what was typed is kept");
    } finally {
      await server.stop();
    }
  });
}
