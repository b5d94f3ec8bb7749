// What a newcomer finds in the demo: an event that somebody has changed.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { eventually, inside, journey, launch, visitor } from "./browser.mjs";
import { without as missing } from "./pages.mjs";
import { demo } from "./server.mjs";

let server, browser, cookies;
before(async () => {
  [server, browser] = await Promise.all([demo({ events: 2000 }), launch()]);
  const { context, page } = await visitor(browser);
  const owner = server.people.find((person) => person.role === "owner");
  // The link knows who follows it.
  await page.goto(owner.link);
  assert.equal(await page.getByLabel("E-mail").inputValue(), owner.address);
  await page.getByLabel("Password").fill(owner.password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await inside(page).waitFor();
  cookies = await context.cookies();
  await context.close();
}, { timeout: 300_000 });
after(async () => { await browser?.close(); await server?.stop(); });

/// To the live events of the project with the changed one.
async function toBilling(page, context) {
  await context.addCookies(cookies);
  await page.goto(`${server.url}/app`);
  await page.locator("details.menu summary").click();
  await page.getByRole("link", { name: "Billing", exact: true }).click();
}

/// On the page of the changed event.
async function seesTheChange(page, scripts) {
  await page.getByText("Hash differs").waitFor();
  if (scripts) {
    await page.getByRole("button", { name: "Recompute in this browser" }).click();
    await page.getByText("✗ Does not match").waitFor();
  }
}

for (const scripts of [true, false]) {
  const without = scripts ? "" : ", without JavaScript";

  journey(`the API finds the changed event, and its page says what is wrong${without}`, () => browser, { scripts }, async (page, { context }) => {
    await toBilling(page, context);
    await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "API keys" }).click();
    await page.getByRole("link", { name: "Create key" }).click();
    await page.getByLabel("Name", { exact: true }).fill(`auditor's script${without}`);
    await page.getByLabel("Project", { exact: true }).selectOption({ label: "Billing" });
    await page.getByLabel("Mode", { exact: true }).selectOption("live");
    await page.getByRole("button", { name: "Create key" }).click();
    const key = (await page.getByRole("region", { name: "API key", exact: true }).textContent()).trim();
    let verdict = { valid: true, last_seq: 0 };
    while (verdict.valid) ({ body: verdict } = await server.api(key, `/v1/events/verify?from_seq=${verdict.last_seq + 1}`));

    await toBilling(page, context);
    const { pathname } = new URL(page.url());
    const here = pathname.split("/").slice(0, 5).join("/");
    await page.goto(`${server.url}${here}/events?q=seq%3A${verdict.broken_at}..${verdict.broken_at}`);
    const changed = page.getByRole("link", { name: new RegExp(`^#${verdict.broken_at}|^#${verdict.broken_at.toLocaleString("en-US")}$`) }).first();
    await changed.click();
    await seesTheChange(page, scripts);
  });

  const skip = missing("/app/p/{project}/{mode}/verify/{run}");
  journey(`verification finds the changed event and explains it${without}`, () => browser, { scripts, skip }, async (page, { context }) => {
    await toBilling(page, context);
    await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Verification" }).click();
    await page.getByRole("button", { name: "Verify", exact: true }).click();
    const broken = page.getByRole("alert").filter({ hasText: "The live chain of Billing is broken at #" });
    // With JavaScript the page follows by itself.
    for (let tries = 0; !scripts && tries < 50 && await broken.count() === 0; tries += 1) {
      await page.getByRole("link", { name: "Refresh" }).click();
    }
    await broken.waitFor();
    const failing = page.getByRole("region", { name: "Failing event" });
    const before = page.getByRole("region", { name: "Previous event" });
    const number = async (side) => Number((await side.getByRole("link").first().textContent()).replaceAll(/[#,]/g, ""));
    assert.equal(await number(failing), await number(before) + 1);
    await failing.getByRole("link").first().click();
    await seesTheChange(page, scripts);
  });

  journey(`all chains are verified at once, and the broken one is named${without}`, () => browser, { scripts, skip: missing("/app/p/{project}/{mode}/verify/all") }, async (page, { context }) => {
    await toBilling(page, context);
    await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Verification" }).click();
    await page.getByRole("button", { name: "Verify all chains" }).click();
    await page.getByRole("status").filter({ hasText: /^Verification of \d+ chains started\./ }).waitFor();
    const rows = page.getByRole("table").locator("tbody tr");
    const wait = (text) => rows.filter({ hasText: text }).count();
    await eventually("every chain is verified", async () => {
      await page.getByRole("link", { name: "Refresh" }).click();
      return await rows.count() > 1 && await wait("Not verified yet") === 0 && await wait("Valid") + await wait("Broken") === await rows.count();
    });
    assert.equal(await wait("Broken"), 1);
    await page.getByRole("alert").filter({ hasText: "The live chain of Billing is broken at #" }).waitFor();
    await rows.filter({ hasText: "Broken" }).getByRole("link").nth(1).click();
    await page.getByRole("region", { name: "Failing event" }).waitFor();
  });
}
