// Settings of an organisation: the journey of an authenticator that everybody needs, and what a form does with a mistake.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { code, inside, journey, launch, submitPassword } from "./browser.mjs";
import { without as missing } from "./pages.mjs";
import { PASSWORD, serve } from "./server.mjs";

let server, browser;
before(async () => { [server, browser] = await Promise.all([serve(), launch()]); }, { timeout: 300_000 });
after(async () => { await browser?.close(); await server?.stop(); });

/// Sets one up on the account page, which is shown.
async function enrol(page) {
  const card = page.getByRole("region", { name: "Authenticator", exact: true });
  await card.getByLabel("Password").fill(PASSWORD);
  await card.getByRole("button", { name: "Set up" }).click();
  const secret = await page.getByRole("region", { name: "Key for the authenticator" }).textContent();
  await card.getByLabel("Code from your authenticator").fill(code(secret));
  await card.getByRole("button", { name: "Turn on" }).click();
  await page.getByRole("heading", { name: "Recovery codes" }).waitFor();
}

const skip = missing("/app/o/{organisation}/settings");
for (const scripts of [true, false]) {
  const without = scripts ? "" : ", without JavaScript";

  journey(`authenticators are required of everybody, also of whoever requires them${without}`, () => browser, { scripts, skip }, async (page) => {
    const { people } = await server.organisation("Strict <b>");
    await submitPassword(page, server, people.owner);
    await page.getByRole("link", { name: "Settings" }).click();
    const form = page.getByRole("form", { name: "Authenticators" });
    await form.getByLabel("Require an authenticator for every member").check();
    await form.getByRole("button", { name: "Save authenticators" }).click();
    await form.getByText("needs an authenticator on your own account first").waitFor();
    await page.getByRole("link", { name: people.owner }).click();
    await enrol(page);
    await page.goto(server.url);
    await page.getByRole("link", { name: "Settings" }).click();
    await form.getByLabel("Require an authenticator for every member").check();
    await form.getByRole("button", { name: "Save authenticators" }).click();
    await page.getByRole("status").filter({ hasText: "Saved." }).waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();

    // Somebody without one gets no further than the account.
    await submitPassword(page, server, people.developer);
    await page.getByRole("alert").filter({ hasText: "Strict <b> requires an authenticator." }).waitFor();
    await page.goto(`${server.url}/app`);
    await page.getByRole("alert").filter({ hasText: "requires an authenticator" }).waitFor();
    assert.equal(new URL(page.url()).pathname, "/app/account");
    await enrol(page);
    await page.goto(`${server.url}/app`);
    await inside(page).waitFor();
    assert.notEqual(new URL(page.url()).pathname, "/app/account");
  });

  journey(`a mistake stands beside its field, and what was typed stays${without}`, () => browser, { scripts, skip }, async (page) => {
    const { people } = await server.organisation();
    await submitPassword(page, server, people.admin);
    await page.getByRole("link", { name: "Settings" }).click();
    const sessions = page.getByRole("form", { name: "Sessions" });
    await sessions.getByLabel("Sign out after inactivity (minutes)").fill("3");
    await sessions.getByRole("button", { name: "Save sessions" }).click();
    await sessions.getByText("It must be a whole number from 5 to 720.").waitFor();
    assert.equal(await sessions.getByLabel("Sign out after inactivity (minutes)").inputValue(), "3");
    await sessions.getByLabel("Sign out after inactivity (minutes)").fill("30");
    await sessions.getByRole("button", { name: "Save sessions" }).click();
    await page.getByRole("status").waitFor();
    assert.equal(await sessions.getByLabel("Sign out after inactivity (minutes)").inputValue(), "30");
    await page.getByRole("combobox", { name: "Time zone" }).selectOption("Europe/Paris");
    await page.getByRole("button", { name: "Save time zone" }).click();
    await page.getByText("(Europe/Paris)").first().waitFor();
  });

  journey(`notices are chosen in the account${without}`, () => browser, { scripts, skip }, async (page) => {
    const { people } = await server.organisation("Chosen");
    await submitPassword(page, server, people.owner);
    await page.getByRole("link", { name: people.owner }).click();
    const form = page.getByRole("form", { name: "Chosen" });
    await form.getByLabel("A key has expired").uncheck();
    await form.getByRole("button", { name: "Save" }).click();
    await page.getByRole("status").filter({ hasText: "Notifications saved." }).waitFor();
    assert.equal(await form.getByLabel("A key has expired").isChecked(), false);
    assert.equal(await form.getByLabel("The trial has ended").isChecked(), true);
  });
}
