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
