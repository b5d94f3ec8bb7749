// Signing in, with an authenticator, with a recovery code, and by an invitation.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { code, inside, journey, launch, submitPassword } from "./browser.mjs";
import { PASSWORD, serve } from "./server.mjs";
import { isForEverybody } from "./walk.mjs";

let server, browser;
before(async () => { [server, browser] = await Promise.all([serve(), launch()]); }, { timeout: 300_000 });
after(async () => { await browser?.close(); await server?.stop(); });

for (const scripts of [true, false]) {
  const without = scripts ? "" : ", without JavaScript";

  journey(`a wrong password says so and keeps the address${without}`, () => browser, { scripts }, async (page) => {
    const { people } = await server.organisation();
    await submitPassword(page, server, people.developer, "not the password");
    await page.getByRole("alert").filter({ hasText: "Wrong e-mail or password." }).waitFor();
    assert.equal(await page.getByLabel("E-mail").inputValue(), people.developer);
    await page.getByLabel("Password").fill(PASSWORD);
    await page.getByRole("button", { name: "Sign in" }).click();
    await inside(page).waitFor();
  });

  journey(`an authenticator is set up, asked for, and replaced by a recovery code${without}`, () => browser, { scripts }, async (page) => {
    const { people } = await server.organisation();
    await submitPassword(page, server, people.admin);
    await page.getByRole("link", { name: people.admin }).click();
    const card = page.getByRole("region", { name: "Authenticator", exact: true });
    await card.getByLabel("Password").fill(PASSWORD);
    await card.getByRole("button", { name: "Set up" }).click();
    const secret = await page.getByRole("region", { name: "Key for the authenticator" }).textContent();
    await page.getByRole("img", { name: "QR code of the key below" }).waitFor();
    await isForEverybody(page, { scripts });

    await card.getByLabel("Code from your authenticator").fill("000000");
    await card.getByRole("button", { name: "Turn on" }).click();
    await page.locator("#code-error").waitFor();
    const used = code(secret);
    await card.getByLabel("Code from your authenticator").fill(used);
    await card.getByRole("button", { name: "Turn on" }).click();
    const codes = (await page.locator("section", { hasText: "Recovery codes" }).locator("pre").first().textContent()).trim().split(/\s+/);
    assert.equal(codes.length, 10);
    await isForEverybody(page, { scripts });

    await page.getByRole("button", { name: "Sign out" }).click();
    await submitPassword(page, server, people.admin);
    await page.getByLabel("Code", { exact: true }).fill(used);
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByRole("alert").filter({ hasText: "Wrong code, or already used." }).waitFor();
    await page.getByLabel("Code", { exact: true }).fill(code(secret, 1));
    await page.getByRole("button", { name: "Continue" }).click();
    await inside(page).waitFor();

    for (const works of [true, false]) {
      await page.getByRole("button", { name: "Sign out" }).click();
      await submitPassword(page, server, people.admin);
      await page.getByLabel("Code", { exact: true }).fill(codes[0]);
      await page.getByRole("button", { name: "Continue" }).click();
      await (works ? inside(page) : page.getByRole("alert")).waitFor();
      if (!works) break;
    }
  });

  journey(`an invitation without a mail server is a link that is shown once and works once${without}`, () => browser, { scripts }, async (page) => {
    const { people, organisation } = await server.organisation("Invites <b>");
    const invited = `new-${organisation.slice(0, 8)}@example.org`;
    await submitPassword(page, server, people.owner);
    await page.getByRole("link", { name: "Members" }).click();
    await page.getByText("No mail server is configured.", { exact: false }).waitFor();
    await page.getByLabel("E-mail").fill(invited);
    await page.getByLabel("Role").selectOption({ label: "Developer" });
    await page.getByRole("button", { name: "Create invitation link" }).click();
    const shown = page.getByRole("region", { name: "Invitation link" });
    const link = (await shown.locator("pre").textContent()).trim();
    await isForEverybody(page, { scripts });
    await page.reload();
    await page.getByText(`the invitation for ${invited}`).waitFor({ state: "attached" });
    assert.equal(await shown.count(), 0, "a reload shows the link again");
    await page.getByRole("button", { name: "Sign out" }).click();

    const follow = async () => {
      await page.goto(link);
      if (!scripts) {
        await page.getByLabel("Link, or the part after #").fill(link);
        await page.getByRole("button", { name: "Open invitation" }).click();
      }
    };
    await follow();
    await page.getByRole("heading", { name: "Invites <b> invites you" }).waitFor();
    assert.equal(await page.getByLabel("E-mail").inputValue(), invited);
    await page.getByLabel("New password").fill("password123");
    await page.getByRole("button", { name: "Accept invitation" }).click();
    await page.locator("#password-hint.bad").waitFor();
    await page.getByLabel("New password").fill(PASSWORD);
    await page.getByRole("button", { name: "Accept invitation" }).click();
    // Signed in right after it.
    await inside(page).waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await follow();
    await page.locator("#token-error").waitFor();

    // Nobody has shown that the address is theirs.
    await submitPassword(page, server, people.owner);
    await page.getByRole("link", { name: "Members" }).click();
    await page.getByRole("row").filter({ hasText: invited }).getByText("Address not confirmed").waitFor();
  });
}
