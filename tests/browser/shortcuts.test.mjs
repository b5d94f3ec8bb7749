// Shortcuts of single keys.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { journey, launch, signedIn } from "./browser.mjs";
import { serve } from "./server.mjs";

let server, browser, place, cookies;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  place = await server.organisation();
  for (let number = 1; number <= 3; number += 1) await server.send(place.live, { action: "user.login", actor_id: `usr_${number}` });
  cookies = await signedIn(browser, server, place.people.owner);
}, { timeout: 300_000 });
after(async () => { await browser?.close(); await server?.stop(); });

const events = () => `${server.url}/app/p/${place.project}/live/events`;
const focused = (page) => page.evaluate(() => document.activeElement.id || document.activeElement.textContent);

journey("rows, search and pages by single keys", () => browser, { scripts: true }, async (page, { context }) => {
  await context.addCookies(cookies);
  await page.goto(events());
  await page.keyboard.press("j");
  assert.equal(await focused(page), "#3");
  await page.keyboard.press("j");
  assert.equal(await focused(page), "#2");
  await page.keyboard.press("k");
  assert.equal(await focused(page), "#3");
  await page.keyboard.press("o");
  await page.getByRole("heading", { name: "user.login by usr_3" }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("e");
  await page.getByRole("heading", { name: "Events", exact: true }).waitFor();

  await page.keyboard.press("/");
  assert.equal(await focused(page), "f-q");
  await page.keyboard.type("?gjk/o");
  assert.equal(await page.locator("#f-q").inputValue(), "?gjk/o", "in a field they are letters");
  assert.equal(await page.locator("dialog[open]").count(), 0);
  await page.locator("h1").click();
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("dialog[open]").count(), 0);
  for (const [key, title] of [["v", "Verification"], ["x", "Exports"], ["f", "Frameworks"], ["a", "Actions"], ["k", "API keys"], ["u", "Usage"]]) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await page.getByRole("heading", { name: title, exact: true, level: 1 }).waitFor();
  }
});

journey("shortcuts that are turned off do nothing", () => browser, { scripts: true }, async (page, { context }) => {
  await context.addCookies(cookies);
  await page.goto(`${server.url}/app/account`);
  await page.getByRole("button", { name: "Turn shortcuts off" }).click();
  await page.getByRole("button", { name: "Turn shortcuts on" }).waitFor();
  await page.goto(events());
  await page.keyboard.press("j");
  await page.keyboard.press("?");
  assert.equal(await page.locator("dialog").count(), 0);
  assert.equal(await page.evaluate(() => document.activeElement === document.body), true);
});
