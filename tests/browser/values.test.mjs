// Values of a list: filtered by, left out, copied, verified and exported, with keys, with the mouse, and without either.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { eventually, journey, launch, signedIn } from "./browser.mjs";
import { serve } from "./server.mjs";

let server, browser, place, cookies;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  place = await server.organisation();
  for (let number = 1; number <= 45; number += 1) {
    await server.send(place.live, { action: number % 3 ? "user.login" : "document.shared", actor_id: `usr ${number % 5}`, resource: `doc/"${number}"` });
  }
  cookies = await signedIn(browser, server, place.people.owner);
}, { timeout: 300_000 });
after(async () => { await browser?.close(); await server?.stop(); });

const here = () => `${server.url}/app/p/${place.project}/live`;
const rows = (page) => page.getByRole("rowheader").count();
const focused = (page) => page.evaluate(() => document.activeElement.textContent.trim());

journey("a value is filtered by and left out by single keys and with the mouse", () => browser, { scripts: true }, async (page, { context }) => {
  await context.addCookies(cookies);
  await page.goto(`${here()}/events`);
  await page.keyboard.press("j");
  await page.keyboard.press("f");
  assert.equal(await focused(page), "document.shared", "the first value of the row");
  for (let steps = 0; steps < 4 && await focused(page) !== "usr 0"; steps += 1) await page.keyboard.press("Tab");
  await page.keyboard.press("f");
  await page.waitForURL((url) => url.searchParams.get("q") === 'actor:"usr 0"');
  assert.equal(await rows(page), 9);
  await page.keyboard.press("j");
  await page.keyboard.press("f");
  await page.keyboard.press("Shift+F");
  await page.waitForURL((url) => url.searchParams.get("q") === 'actor:"usr 0" -action:document.shared');
  assert.equal(await rows(page), 6);
  // With the mouse; what has to be quoted is.
  await page.goto(`${here()}/events?q=-action%3Adocument.shared`);
  await page.getByRole("link", { name: "usr 4", exact: true }).first().click({ modifiers: ["Alt"] });
  await page.waitForURL((url) => url.searchParams.get("q") === '-action:document.shared -actor:"usr 4"');
  assert.equal(await rows(page), 24);
  await page.getByRole("link", { name: 'doc/"43"' }).click({ modifiers: ["Alt"] });
  await eventually("one row less", async () => await rows(page) === 23);
});

journey("an event is copied, verified around and exported by single keys", () => browser, { scripts: true }, async (page, { context }) => {
  await context.addCookies(cookies);
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: server.url });
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await page.goto(`${here()}/events?q=action:user.login`);
  await page.keyboard.press("j");
  await page.keyboard.press("c");
  await page.getByText("Copied the log_id.").waitFor();
  const id = await copied();
  assert.match(id, /^[0-9A-Z]{26}$/);
  await page.keyboard.press("y");
  await page.getByText("Copied a link to the event.").waitFor();
  const link = await copied();
  assert.equal(link, `${server.url}/app/e/${id}?p=${place.project}`);
  await page.keyboard.press("v");
  await page.waitForURL((url) => url.pathname.endsWith("/verify"));
  assert.deepEqual([await page.getByLabel("From #", { exact: true }).inputValue(), await page.getByLabel("To #", { exact: true }).inputValue()], ["1", "45"]);
  await page.goto(link);
  await page.getByRole("heading", { name: "user.login by usr 4" }).waitFor();
  await page.keyboard.press("c");
  await page.getByText("Copied the log_id.").waitFor();
  assert.equal(await copied(), id);
  await page.keyboard.press("v");
  await page.waitForURL((url) => url.searchParams.get("around") === "44");
  await page.goto(`${here()}/events?q=action:user.login`);
  await page.keyboard.press("y");
  await page.getByText("Copied a link to this page.").waitFor();
  assert.equal(await copied(), page.url());
  await page.keyboard.press("t");
  await page.getByRole("button", { name: "Show UTC" }).waitFor();
  await page.keyboard.press("t");
  await page.getByRole("button", { name: "Show local times" }).waitFor();
  await page.keyboard.press("e");
  await page.getByRole("heading", { name: "Exports", exact: true, level: 1 }).waitFor();
  assert.equal(await page.getByLabel("Search").inputValue(), "action:user.login");
});

journey("events that arrive below the top wait for a key, and a space pauses", () => browser, { scripts: true }, async (page, { context }) => {
  await context.addCookies(cookies);
  await page.goto(`${here()}/events`);
  await page.getByRole("button", { name: "Live tail" }).click();
  await page.getByText("Waiting for events.").waitFor();
  await page.evaluate(() => { document.activeElement.blur(); scrollTo(0, document.body.scrollHeight); });
  const before = await rows(page);
  await server.send(place.live, { action: "user.logout", actor_id: "late" });
  await page.getByRole("button", { name: "Show 1 new" }).waitFor();
  assert.equal(await rows(page), before, "the list does not move");
  await page.keyboard.press("r");
  await page.getByRole("link", { name: "late", exact: true }).waitFor();
  await page.keyboard.press(" ");
  await page.getByText("Paused.").waitFor();
});

for (const scripts of [true, false]) {
  const how = scripts ? "" : ", without JavaScript";
  journey(`the page of an event leads to all but its values${how}`, () => browser, { scripts }, async (page, { context }) => {
    await context.addCookies(cookies);
    await page.goto(`${here()}/events?q=action:document.shared`);
    await page.getByRole("rowheader").first().getByRole("link").click();
    await page.getByRole("link", { name: "Exclude document.shared" }).click();
    await page.waitForURL((url) => url.searchParams.get("q") === "-action:document.shared");
    assert.equal(await page.getByRole("link", { name: "document.shared", exact: true }).count(), 0);
  });

  journey(`a view is saved for all, pinned, and removed by its owner${how}`, () => browser, { scripts }, async (page, { context }) => {
    await context.addCookies(cookies);
    const name = `shared ${scripts}`;
    await page.goto(`${here()}/events?q=action:document.shared`);
    await page.getByRole("link", { name: "Save view" }).click();
    await page.getByLabel("Name").fill(name);
    await page.getByLabel("Everyone who can see production").check();
    await page.getByLabel("Pin to Overview").check();
    await page.getByRole("button", { name: "Save view" }).click();
    await page.waitForURL((url) => url.pathname.endsWith("/events"));
    await context.clearCookies();
    await context.addCookies(await signedIn(browser, server, place.people.developer));
    await page.goto(here());
    await page.getByRole("region", { name: "Pinned views" }).getByRole("link", { name }).click();
    await page.waitForURL((url) => url.searchParams.get("q") === "action:document.shared");
    await page.goto(`${here()}/views`);
    await page.getByRole("region", { name: "Shared by others in production" }).getByRole("link", { name }).waitFor();
    assert.equal(await page.getByRole("button", { name: `Remove ${name}` }).count(), 0);
    await context.clearCookies();
    await context.addCookies(cookies);
    await page.goto(`${here()}/views`);
    await page.getByRole("button", { name: new RegExp(`^Stop sharing.*${name}$`) }).click();
    await page.getByText("View no longer shared.").waitFor();
    await page.getByRole("button", { name: `Remove ${name}` }).click();
    await page.getByText("View removed.").waitFor();
  });

  journey(`reads are counted when that is asked for${how}`, () => browser, { scripts }, async (page, { context }) => {
    await context.addCookies(cookies);
    await server.send(place.live, { action: "record.viewed", actor_id: "reader" });
    await page.goto(here());
    await page.getByText(/read events? hidden\./).waitFor();
    assert.equal(await page.getByRole("link", { name: "record.viewed" }).count(), 0);
    await page.getByRole("link", { name: "Show reads" }).click();
    await page.getByRole("link", { name: "record.viewed" }).waitFor();
    await page.getByRole("link", { name: "7 days" }).click();
    await page.waitForURL((url) => url.searchParams.get("reads") === "with" && url.searchParams.get("days") === "7");
    await page.getByRole("link", { name: "Hide reads" }).click();
    await page.waitForURL((url) => url.searchParams.get("reads") === null && url.searchParams.get("days") === "7");
  });
}
