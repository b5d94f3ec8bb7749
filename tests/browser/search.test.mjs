// The query bar of the events page.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { EVERYTHING, hasNoBarriers } from "./barriers.mjs";
import { journey, launch, signedIn } from "./browser.mjs";
import { serve } from "./server.mjs";

let server, browser, place, cookies, last;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  place = await server.organisation();
  for (let number = 1; number <= 9; number += 1) {
    last = await server.send(place.live, { action: number % 3 ? "user.login" : "document.shared", actor_id: `usr_${number}`, metadata: { method: number % 2 ? "sso" : "password" } });
  }
  cookies = await signedIn(browser, server, place.people.developer);
}, { timeout: 300_000 });
after(async () => { await browser?.close(); await server?.stop(); });

const events = () => `${server.url}/app/p/${place.project}/live/events`;
const bar = (page) => page.getByRole("searchbox", { name: "Search" }).or(page.getByRole("combobox", { name: "Search" }));
const rows = (page) => page.getByRole("rowheader").count();

for (const scripts of [true, false]) {
  const how = scripts ? "" : ", without JavaScript";
  journey(`search, narrow, and correct a search${how}`, () => browser, { scripts }, async (page, { context }) => {
    await context.addCookies(cookies);
    const shows = async (query, actors, terms) => {
      await page.goto(events());
      await bar(page).fill(query);
      await bar(page).press("Enter");
      // Rows of the list before may be those of this one.
      await page.waitForURL((url) => url.search !== "" && url.searchParams.get("q") === query && [...url.searchParams].length === 1);
      for (const actor of actors) await page.getByRole("link", { name: actor, exact: true }).waitFor();
      assert.equal(await rows(page), actors.length, query);
      assert.equal(await page.getByRole("link", { name: /^Remove / }).count(), terms, "each term is a chip");
      assert.equal(await bar(page).inputValue(), "");
    };
    await shows("actor:usr_3", ["usr_3"], 1);
    await shows("shared", ["usr_3", "usr_6", "usr_9"], 1);
    await shows("action:document.* -actor:usr_3", ["usr_6", "usr_9"], 2);
    await shows("meta.method:password action:user.login", ["usr_2", "usr_4", "usr_8"], 2);

    // What is typed next joins the query; what is wrong leaves the list, and its nearest meaning is a link.
    await bar(page).fill("actr:usr_2");
    await bar(page).press("Enter");
    await page.getByRole("alert").getByText("Not applied:").waitFor();
    assert.equal(await rows(page), 3);
    assert.equal(await bar(page).inputValue(), "actr:usr_2", "to be corrected");
    await page.getByRole("link", { name: "actor:usr_2", exact: true }).click();
    await page.waitForURL((url) => url.searchParams.get("q")?.endsWith(" actor:usr_2"));
    assert.equal(await rows(page), 1);
    await page.getByRole("link", { name: "Remove meta.method:password" }).click();
    await page.waitForURL((url) => url.searchParams.get("q") === "action:user.login actor:usr_2");
  });

  journey(`what names an event leads to it${how}`, () => browser, { scripts }, async (page, { context }) => {
    await context.addCookies(cookies);
    for (const typed of [last, last.toLowerCase(), "#9"]) {
      await page.goto(events());
      await bar(page).fill(typed);
      await bar(page).press("Enter");
      await page.waitForURL((url) => url.pathname.endsWith(`/events/${last}`));
    }
  });

  journey(`a field under More filters is a term of the query${how}`, () => browser, { scripts }, async (page, { context }) => {
    await context.addCookies(cookies);
    await page.goto(`${events()}?q=login`);
    const actor = page.getByRole("textbox", { name: "Actor" });
    assert.equal(await actor.isVisible(), false);
    await page.getByText("More filters").click();
    await actor.fill("usr_2");
    await page.getByRole("button", { name: "Apply" }).last().click();
    await page.waitForURL((url) => url.search === "?q=login+actor:usr_2");
    assert.equal(await rows(page), 1);
  });
}

journey("the first row begins within 200 pixels of the title", () => browser, {}, async (page, { context }) => {
  await context.addCookies(cookies);
  for (const width of [1280, 1920]) {
    await page.setViewportSize({ width, height: 900 });
    await page.goto(`${events()}?q=login`);
    const top = async (what) => (await page.locator(what).first().boundingBox()).y;
    const distance = await top("tbody tr") - await top("h1");
    assert.ok(distance < 200, `${distance} px at ${width}`);
    const over = await page.evaluate(() => [...document.querySelectorAll(".card, .scroll")].filter((card) => card.scrollWidth > card.clientWidth + 1).length);
    assert.equal(over, 0, "nothing overflows its card");
  }
});

journey("suggestions follow the cursor, and the last chip becomes text again", () => browser, {}, async (page, { context }) => {
  await context.addCookies(cookies);
  await page.goto(`${events()}?q=action:user.login`);
  await bar(page).click();
  await page.getByRole("option", { name: /^actor:/ }).first().waitFor();
  await bar(page).pressSequentially("act");
  await page.getByRole("option", { name: /^actor:/ }).first().waitFor();
  await bar(page).pressSequentially("or:usr_8");
  await page.getByRole("option").waitFor({ state: "hidden" });
  await bar(page).press("Backspace");
  await page.getByRole("option", { name: "actor:usr_8" }).waitFor();
  await bar(page).press("ArrowDown");
  await bar(page).press("Enter");
  assert.match(await bar(page).inputValue(), /^actor:usr_\d $/);
  // In the middle of what was typed.
  await bar(page).fill("sever:x login");
  await page.evaluate(() => document.getElementById("f-q").setSelectionRange(5, 5));
  await bar(page).press("ArrowDown");
  await page.getByRole("option", { name: /^severity:/ }).first().waitFor();
  await bar(page).press("ArrowDown");
  await bar(page).press("Enter");
  assert.equal(await bar(page).inputValue(), "severity: login");
  await hasNoBarriers(page, EVERYTHING);
  await bar(page).fill("");
  await bar(page).press("Backspace");
  assert.equal(await bar(page).inputValue(), "action:user.login");
  assert.equal(await page.getByRole("link", { name: /^Remove / }).count(), 0);
  await bar(page).press("Enter");
  await page.waitForURL((url) => url.search === "?q=action:user.login");
});

journey("searches of this tab are offered again, and no others", () => browser, {}, async (page, { context }) => {
  await context.addCookies(cookies);
  const offered = async (of = page) => {
    await bar(of).click();
    await of.getByRole("option", { name: /^actor:/ }).first().waitFor();
    return (await of.getByRole("option").filter({ hasText: "Recent" }).locator("code").allTextContents());
  };
  await page.goto(`${events()}?q=action:user.login`);
  assert.deepEqual(await offered(), [], "a tab begins with none");
  await page.goto(`${events()}?q=actor:usr_3`);
  assert.deepEqual(await offered(), ["action:user.login"]);
  await page.goto(`${events()}?q=action:user.login`);
  assert.deepEqual(await offered(), ["actor:usr_3", "action:user.login"], "the newest first, each once");
  // One that is chosen is the whole query.
  await bar(page).press("ArrowDown");
  await bar(page).press("Enter");
  await page.waitForURL((url) => url.search === "?q=actor:usr_3");
  assert.equal(await rows(page), 1);
  await bar(page).click();
  await bar(page).pressSequentially("sev");
  await page.getByRole("option", { name: /^severity:/ }).first().waitFor();
  assert.equal(await page.getByRole("option").filter({ hasText: "Recent" }).count(), 0, "a search in its place would take what is typed away");
  const other = await context.newPage();
  await other.goto(`${events()}?q=actor:usr_3`);
  assert.deepEqual(await offered(other), []);
});

// The server cuts a search after a second of work; here the end of each answer is replaced by such a cut.
journey("a search that was cut goes on by itself once", () => browser, {}, async (page, { context }) => {
  await context.addCookies(cookies);
  const asked = [];
  await page.route(/\/events\?q=(login|shared)/, async (route) => {
    asked.push(new URL(route.request().url()).searchParams.get("q"));
    const answer = await route.fetch();
    const cut = `<span>Searched back to #${9 - asked.length}.</span><a class="btn sm end" rel="next" data-on href="${events()}?q=shared&columns=actor">Continue</a>`;
    await route.fulfill({ response: answer, body: (await answer.text()).replace(/<span class="end">End of results\.<\/span>/, cut) });
  });
  await page.goto(`${events()}?q=login`);
  await page.getByText("Searched back to #7.").waitFor();
  await page.waitForLoadState("networkidle");
  assert.deepEqual(asked, ["login", "shared"], "by itself once, and no further");
  assert.equal(await rows(page), 9, "what it finds joins the list");
  assert.equal(await page.getByText("Searched back to #8.").count(), 0);
  assert.equal(await page.getByRole("link", { name: "Continue" }).count(), 1, "the rest is for the person to ask for");
});
