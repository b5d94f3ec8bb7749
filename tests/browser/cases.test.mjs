// Requests of data subjects: intake to register, an extension, a refusal, and two people on one case.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { eventually, journey, launch, signedIn } from "./browser.mjs";
import { furnishCase, takeStep } from "./pages.mjs";
import { serve } from "./server.mjs";

let server, browser, place, cookies;

before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  place = await server.organisation();
  cookies = {
    officer: await signedIn(browser, server, place.people.privacy_officer),
    admin: await signedIn(browser, server, place.people.admin),
    owner: await signedIn(browser, server, place.people.owner),
  };
}, { timeout: 300_000 });

after(async () => {
  await browser?.close();
  await server?.stop();
});

const cases = () => `${server.url}/app/o/${place.organisation}/cases`;
const day = (back) => new Date(Date.now() - back * 86_400_000).toISOString().slice(0, 10);

/// Enters a request that came so many days ago; the address of its case.
async function enter(page, { requester = "Ada Subject", back = 2, regime = "GDPR" } = {}) {
  await page.goto(`${cases()}/new`);
  await page.getByLabel("Regime").selectOption({ label: regime });
  await page.getByLabel("Received").fill(day(back));
  await page.getByLabel("Requester").fill(requester);
  await page.getByLabel("Request text").fill("Give me everything that you have about me.");
  await page.getByLabel("production").check();
  await page.getByRole("button", { name: "Open case" }).click();
  await page.getByText("Case opened. The clock is running.").waitFor();
  return page.url().split("?")[0];
}

async function step(page, label, fill) {
  await takeStep(page, label, fill);
  await page.getByText(/^Case moved to /).waitFor();
}

for (const scripts of [true, false]) {
  const without = scripts ? "" : ", without JavaScript";

  journey(`a GDPR request goes from intake to the register${without}`, () => browser, { scripts }, async (page, { context }) => {
    await context.addCookies(cookies.officer);
    const address = await enter(page);
    const name = await page.locator(".crumbs li").last().textContent();
    await page.getByRole("heading", { name: "Answer due in" }).waitFor();
    await page.getByText("Why this date").click();
    await page.getByText("one month from receipt").first().waitFor();
    await step(page, "Check identity");
    await page.getByText("Approved: locked", { exact: false }).or(page.getByText("In progress: locked", { exact: false })).first().waitFor();
    await page.getByRole("navigation", { name: "Case" }).getByRole("link", { name: "Identity", exact: true }).click();
    await page.getByLabel("Method").selectOption({ label: "E-mail challenge" });
    await page.getByLabel("Outcome").selectOption({ label: "Confirmed" });
    await page.locator("#identity-note").fill("The code came back.");
    await page.getByRole("button", { name: "Save check" }).click();
    await page.getByText("Saved.").waitFor();
    await page.getByRole("link", { name: /^Identifiers/ }).click();
    await page.getByLabel("Field").selectOption({ label: "actor_id" });
    await page.getByLabel("Value").fill("usr_42");
    await page.getByLabel("Source").fill("CRM");
    await page.getByRole("button", { name: "Add identifier" }).click();
    await page.getByRole("rowheader", { name: "usr_42" }).waitFor();
    await page.goto(address);
    for (const label of ["Start work", "Send to review", "Approve"]) await step(page, label);
    await step(page, "Mark as delivered", (form) => form.getByLabel("Sent by").selectOption({ label: "Letter" }));
    await step(page, "Close case");
    assert.equal(await page.getByText(/What to do next|Other steps/).count(), 0, "a closed case stays as it is");
    await page.goto(`${cases()}/register`);
    await page.getByRole("row").filter({ hasText: name }).getByText("Answered").waitFor();
    assert.equal(await page.getByText("Ada Subject").count(), 0);
    // The project has heard of each step, and never of the person.
    await eventually("the events of the case", async () => {
      const { body } = await server.api(place.live, `/v1/events?resource=case/${address.split("/").at(-1)}`);
      assert.ok(!JSON.stringify(body).includes("Ada"), "no name");
      return body.events.some((event) => event.action === "gdpr.request_fulfilled");
    });
    await page.goto(`${address}/history`);
    await page.getByText("gdpr.request_fulfilled").waitFor();
  });
}

journey("an extension is announced within the first month and gives two more", () => browser, {}, async (page, { context }) => {
  await context.addCookies(cookies.officer);
  await enter(page);
  const due = () => page.locator("section[aria-labelledby=due] p:not(.big)").first().textContent();
  const first = await due();
  const form = page.locator("details.move").filter({ has: page.getByText("Extend deadline", { exact: true }) });
  await form.locator("summary").click();
  await form.getByLabel("Requester informed on").fill(day(10));
  await form.getByLabel("Note").fill("There is much of it.");
  await form.getByRole("button", { name: "Extend deadline" }).click();
  await page.getByText("from receipt to today", { exact: false }).waitFor();
  assert.equal(await page.locator("#extended-note").inputValue(), "There is much of it.", "what was typed stays");
  await page.locator("#extended-announced").fill(day(0));
  await page.getByRole("button", { name: "Extend deadline" }).click();
  await page.getByText("Case moved to Extended.").waitFor();
  assert.notEqual(await due(), first);
  await page.getByText("Why this date").click();
  await page.getByText("Extended to 3 months from receipt", { exact: false }).waitFor();
});

journey("a refusal has a ground and stops the clock", () => browser, {}, async (page, { context }) => {
  await context.addCookies(cookies.officer);
  const address = await enter(page, { regime: "CCPA" });
  await page.getByText("Confirm receipt by", { exact: false }).waitFor();
  await page.getByRole("button", { name: "Mark receipt as confirmed" }).click();
  await page.getByText("Receipt confirmed", { exact: false }).first().waitFor();
  await step(page, "Refuse request", async (form) => {
    await form.getByLabel("Ground").selectOption({ label: "Excessive, in particular repetitive" });
    await form.getByLabel("Sent by").selectOption({ label: "E-mail" });
  });
  await page.locator(".stepper [aria-current]").getByText("Refused").waitFor();
  await step(page, "Close case");
  await page.goto(`${cases()}/register`);
  await page.getByRole("cell", { name: "Excessive, in particular repetitive" }).waitFor();
  await page.goto(address);
});

journey("a privacy officer and an administrator look at the same case, and an owner's change is not overwritten", () => browser, {}, async (page, { context }) => {
  await context.addCookies(cookies.officer);
  const address = await enter(page);
  const [admin, owner] = await Promise.all([cookies.admin, cookies.owner].map(async (cookies) => {
    const other = await browser.newContext();
    await other.addCookies(cookies);
    return { context: other, page: await other.newPage() };
  }));
  try {
    await admin.page.goto(address);
    await admin.page.getByText("Give me everything").waitFor();
    assert.equal(await admin.page.getByRole("button", { name: "Save" }).count(), 0, "an administrator looks");
    await owner.page.goto(address);
    await owner.page.getByLabel("Contact").fill("new@example.org");
    await owner.page.locator("#intake-note").fill("She has moved.");
    await owner.page.getByRole("button", { name: "Save", exact: true }).click();
    await owner.page.getByText("Saved.").waitFor();
    // The officer's page is older.
    await page.locator("#requester").fill("Ada B. Subject");
    await page.locator("#intake-note").fill("Her whole name.");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("Someone else changed this case.", { exact: false }).waitFor();
    await page.getByText("She has moved.").waitFor();
    assert.equal(await page.locator("#requester").inputValue(), "Ada B. Subject");
    await admin.page.reload();
    await admin.page.getByText("new@example.org").waitFor();
  } finally {
    await admin.context.close();
    await owner.context.close();
  }
});

/// To the review of the case, with its search done: how many events it has.
async function reviewed(page, address) {
  await eventually("the search is done", async () => {
    await page.goto(`${address}/search`);
    return await page.getByRole("cell", { name: "Done" }).count() > 0 && await page.getByText("Searching:").count() === 0;
  });
  await page.goto(`${address}/review`);
  return page.locator("tbody th a").count();
}

for (const scripts of [true, false]) {
  journey(`selected events are added to a case that is worked on${scripts ? "" : ", without JavaScript"}`, () => browser, { scripts }, async (page, { context }) => {
    const other = await server.organisation("Adds events");
    for (const actor of ["found", "chosen", "left"]) await server.send(other.live, { action: "user.login", actor_id: actor });
    await context.addCookies(await signedIn(browser, server, other.people.privacy_officer));
    const added = `${server.url}/app/o/${other.organisation}/cases/add?project=${other.project}&seq=2`;
    await page.goto(added);
    await page.getByText("No case takes events of this project.", { exact: false }).waitFor();

    await page.goto(`${server.url}/app/o/${other.organisation}/cases/new`);
    await page.getByLabel("Requester").fill("Ada Subject");
    await page.getByLabel("production").check();
    await page.getByRole("button", { name: "Open case" }).click();
    await page.getByText("Case opened. The clock is running.").waitFor();
    const address = page.url().split("?")[0];
    await furnishCase(page, address, { actor: "found" });
    assert.equal(await reviewed(page, address), 1);

    if (scripts) {
      await page.goto(`${server.url}/app/p/${other.project}/live/events`);
      await page.getByRole("checkbox", { name: "Select #2" }).check();
      await page.getByRole("button", { name: "Add to case" }).click();
    } else {
      await page.goto(added);
    }
    await page.getByText("1 event of production.").waitFor();
    await page.getByRole("combobox", { name: "Case" }).selectOption({ index: 0 });
    await page.getByRole("button", { name: "Add to case" }).click();
    assert.equal(await reviewed(page, address), 2);
    await page.getByRole("link", { name: "#2", exact: true }).first().waitFor();

    // A project of another organisation is not there.
    const foreign = await page.goto(added.replace(other.project, place.project));
    assert.equal(foreign.status(), 404);
  });
}

/// A request that is worked on in an organisation of its own, whose chain has so many events of the person; the address of the case.
async function worked(page, context, name, events) {
  const other = await server.organisation(name);
  for (let at = 0; at < events.length; at += 100) await server.sendAll(other.live, events.slice(at, at + 100));
  await context.addCookies(await signedIn(browser, server, other.people.privacy_officer));
  await page.goto(`${server.url}/app/o/${other.organisation}/cases/new`);
  await page.getByLabel("Requester").fill("Ada Subject");
  await page.getByLabel("production").check();
  await page.getByRole("button", { name: "Open case" }).click();
  await page.getByText("Case opened. The clock is running.").waitFor();
  const address = page.url().split("?")[0];
  await furnishCase(page, address, { actor: "found" });
  await reviewed(page, address);
  return { ...other, address };
}

const logins = (count, more = () => ({})) => Array.from({ length: count }, (_, number) => ({ action: "user.login", actor_id: "found", ...more(number) }));

journey("the comparison stands beside its row, under a head that stays", () => browser, {}, async (page, { context }) => {
  const { address } = await worked(page, context, "Compares", logins(80, (number) => ({ resource: `session/${"s".repeat(number % 2 ? 120 : 4)}` })));
  const box = (locator) => locator.boundingBox();
  for (const width of [1280, 1920]) {
    await page.setViewportSize({ width, height: 900 });
    await page.goto(`${address}/review`);
    const heights = await page.locator("table.found tbody tr").evaluateAll((rows) => rows.map((row) => row.getBoundingClientRect().height));
    assert.ok(heights.length === 80 && Math.max(...heights) <= 36, `rows of ${Math.max(...heights)} px at ${width} px`);
    // Far down the list: the head is still there to be pressed, and the event opens on the same screen.
    await page.getByRole("link", { name: "#20", exact: true }).click();
    await page.getByRole("heading", { name: "#20", exact: true }).waitFor();
    const row = page.locator("tr[aria-current]");
    await row.evaluate((element) => element.scrollIntoView({ block: "center" }));
    const [current, compare, list] = await Promise.all([box(row), box(page.locator("#compare")), box(page.locator("section[aria-labelledby=rv]"))]);
    assert.ok(list.y < -900, `the list is scrolled: ${list.y}`);
    assert.ok(current.y > 0 && current.y < 900, "the row is on the screen");
    assert.ok(compare.x >= current.x + current.width && compare.x + compare.width <= width, `${JSON.stringify({ compare, current })} at ${width} px`);
    assert.ok(compare.y >= 0 && compare.y < 100, `the comparison begins at the top of the screen: ${compare.y} at ${width} px`);
    const decides = [page.getByRole("button", { name: "Include", exact: true }), page.getByRole("button", { name: "Include and next" })];
    for (const button of decides) {
      const at = await box(button);
      assert.ok(at.y >= 0 && at.y + at.height <= 300, `${JSON.stringify(at)} at ${width} px`);
      assert.ok(await button.evaluate((element) => {
        const { x, y, width, height } = element.getBoundingClientRect();
        return element.contains(document.elementFromPoint(x + width / 2, y + height / 2));
      }), "nothing covers it");
    }
    assert.equal(await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth), 0);
  }
});

for (const scripts of [true, false]) {
  const without = scripts ? "" : ", without JavaScript";

  journey(`events are decided about by their action, and those with a text one after the other${without}`, () => browser, { scripts }, async (page, { context }) => {
    await worked(page, context, `Groups ${scripts}`, [
      ...logins(3),
      ...logins(2, () => ({ action: "user.logout" })),
      ...logins(2, (number) => ({ action: "data.exported", metadata: { note: `asked ${number}` } })),
    ]);
    await page.getByText("0 included, 0 excluded, 7 to decide").waitFor();
    await page.getByText("By action").click();
    const group = (action) => page.locator(".groups li").filter({ has: page.getByRole("link", { name: action, exact: true }) });
    await group("data.exported").getByText("2, 2 to decide").waitFor();
    await group("data.exported").getByText("2 to read").waitFor();
    await group("user.logout").getByText("2, 2 to decide").waitFor();
    await page.getByRole("link", { name: "user.logout", exact: true }).click();
    await page.getByRole("button", { name: "Include 2 with nothing to read" }).waitFor();
    assert.equal(await page.locator("table.found tbody tr").count(), 2, "of this action alone");
    await page.getByRole("button", { name: "Include 2 with nothing to read" }).click();
    await page.getByText("2 events included.").waitFor();
    await page.getByText("2 included, 0 excluded, 5 to decide").waitFor();
    // The group stays chosen; all actions are one link away.
    await page.getByRole("link", { name: "All actions" }).click();
    await page.getByRole("button", { name: "Include 3 with nothing to read" }).click();
    await page.getByText("5 included, 0 excluded, 2 to decide").waitFor();
    await page.getByRole("link", { name: "Next undecided" }).first().click();
    for (const left of [1, 0]) {
      await page.getByRole("button", { name: "Include and next" }).click();
      await page.getByText(`${7 - left} included, 0 excluded, ${left} to decide`).waitFor();
    }
  });

  journey(`where two people are needed, who reviewed does not approve${without}`, () => browser, { scripts }, async (page, { context }) => {
    const { address, organisation, people } = await worked(page, context, `Two people ${scripts}`, logins(2));
    const officer = await context.cookies();
    const as = async (cookies) => { await context.clearCookies(); await context.addCookies(cookies); };
    const owner = await signedIn(browser, server, people.owner);
    await as(owner);
    await page.goto(`${server.url}/app/o/${organisation}/settings`);
    await page.getByLabel("Require two people").check();
    await page.getByRole("button", { name: "Save cases" }).click();
    await page.getByRole("status").filter({ hasText: "Saved." }).waitFor();
    assert.ok(await page.getByLabel("Require two people").isChecked());
    await as(officer);
    await page.goto(`${address}/review`);
    await page.getByRole("button", { name: "Include 2 with nothing to read" }).click();
    await page.getByText("2 included, 0 excluded, 0 to decide").waitFor();
    await page.goto(address);
    await step(page, "Send to review");
    await page.getByText("another person must approve", { exact: false }).first().waitFor();
    await takeStep(page, "Approve");
    await page.getByText("you decided about 2 of the events", { exact: false }).waitFor();
    await as(owner);
    await page.goto(address);
    await page.getByText("Approve what will be disclosed.").waitFor();
    await takeStep(page, "Approve");
    await page.getByText("Case moved to Approved.").waitFor();
  });

  journey(`the system log names people and is filtered by one of them${without}`, () => browser, { scripts }, async (page, { context }) => {
    const other = await server.organisation(`Log ${scripts}`);
    const { owner, developer } = other.people;
    for (const email of [developer, owner]) await context.addCookies(await signedIn(browser, server, email));
    await server.drained();
    await page.goto(`${server.url}/app/o/${other.organisation}/system-log`);
    const rows = page.locator("table.system-log tbody tr");
    const people = async () => [...new Set((await rows.locator("td[data-label=Person]").allTextContents()).map((name) => name.trim()))].sort();
    const choice = page.getByRole("combobox", { name: "Person" });
    const everybody = await people();
    assert.ok(everybody.includes(owner) && everybody.includes(developer), everybody.join());
    // A sentence for each, and no id in the place of a person.
    for (const sentence of await rows.locator("th").allTextContents()) assert.match(sentence, /^[A-Z].*\./);
    await choice.selectOption({ label: developer });
    await page.getByRole("button", { name: "Filter", exact: true }).click();
    await page.waitForURL((url) => url.searchParams.get("person"));
    assert.deepEqual(await people(), [developer]);
    assert.equal(await choice.locator("option:checked").textContent(), developer);
    // The same by the address in a row.
    await choice.selectOption({ label: "Everyone" });
    await page.getByRole("button", { name: "Filter", exact: true }).click();
    await rows.locator("td[data-label=Person]").getByRole("link", { name: owner }).first().click();
    await page.waitForURL((url) => url.searchParams.get("person"));
    assert.deepEqual(await people(), [owner]);
    // A person of another organisation is not there.
    const foreign = await page.goto(`${server.url}/app/o/${other.organisation}/system-log?person=${place.person}`);
    assert.equal(foreign.status(), 404);
  });
}
