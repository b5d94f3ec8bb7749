// The list of events: rows that open beside it, that are selected, and that arrive.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { COLOURS, EVERYTHING, hasNoBarriers } from "./barriers.mjs";
import { eventually, journey, launch, signedIn } from "./browser.mjs";
import { serve } from "./server.mjs";

let server, browser, place, cookies;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  place = await server.organisation();
  for (let number = 1; number <= 4; number += 1) await server.send(place.live, { action: "user.login", actor_id: `usr_${number}`, severity: "warning" });
  cookies = await signedIn(browser, server, place.people.owner);
}, { timeout: 300_000 });
after(async () => { await browser?.close(); await server?.stop(); });

const here = () => `${server.url}/app/p/${place.project}/live`;

journey("a row opens beside the list, others follow, and Escape closes it", () => browser, {}, async (page, { context }) => {
  await context.addCookies(cookies);
  await page.goto(`${here()}/events`);
  const drawer = page.getByRole("region", { name: "Event", exact: true });
  const shows = (actor) => drawer.getByRole("heading", { name: `user.login by ${actor}` }).waitFor();
  await page.getByRole("link", { name: "#3", exact: true }).click();
  await shows("usr_3");
  assert.equal(new URL(page.url()).pathname.endsWith("/events"), true, "the list stays");
  assert.equal(await page.locator("tr[aria-current]").count(), 1);
  await drawer.getByRole("button", { name: "Recompute in this browser" }).waitFor();
  for (const [colorScheme, rules] of [["light", EVERYTHING], ["dark", COLOURS]]) {
    await page.emulateMedia({ colorScheme });
    await hasNoBarriers(page, rules);
  }
  await drawer.getByRole("button", { name: "Next" }).click();
  await shows("usr_2");
  await drawer.getByRole("button", { name: "Previous" }).click();
  await shows("usr_3");
  await page.keyboard.press("Escape");
  await drawer.waitFor({ state: "hidden" });
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "#3", "the focus goes back to the row");
  await page.keyboard.press("k");
  await page.keyboard.press("o");
  await shows("usr_4");
  await drawer.getByRole("link", { name: "Open page" }).click();
  await page.getByRole("heading", { level: 1, name: "user.login by usr_4" }).waitFor();
});

/// Columns that are hidden though they are chosen, what says so, and what of the list the window leaves unused.
function columns(page) {
  return page.evaluate(() => {
    const main = document.querySelector("main").getBoundingClientRect();
    const table = document.querySelector("table.events").getBoundingClientRect();
    const cue = getComputedStyle(document.querySelector("#tools .menu summary"), "::after").content;
    return {
      hidden: [...document.querySelectorAll("table.events thead th")].filter((head) => !head.checkVisibility()).map((head) => head.textContent),
      cue: cue === "none" ? "" : cue.replaceAll('"', ""),
      unused: Math.round(main.width - table.width),
      behind: Math.round(innerWidth - main.right),
      over: document.scrollingElement.scrollWidth - innerWidth,
    };
  });
}

journey("the list has the width of the window, and what it hides has a cue", () => browser, {}, async (page, { context }) => {
  await context.addCookies(cookies);
  for (const [width, hidden] of [[1920, []], [1280, ["Hash"]]]) {
    await page.setViewportSize({ width, height: 900 });
    await page.goto(`${here()}/events`);
    const alone = await columns(page);
    assert.deepEqual([alone.hidden, alone.cue, alone.over], [hidden, hidden.length ? "Hash hidden: narrow window" : "", 0], `at ${width} px`);
    assert.ok(alone.unused < 80 && alone.behind === 0, `${alone.unused} px of the page are unused at ${width} px`);
    await page.getByRole("link", { name: "#3", exact: true }).click();
    await page.getByRole("region", { name: "Event", exact: true }).waitFor();
    const beside = await columns(page);
    assert.ok(beside.hidden.length > hidden.length && beside.unused < 80, JSON.stringify(beside));
    assert.deepEqual([beside.cue, beside.over], ["Some hidden", 0], "beside the drawer");
    await page.keyboard.press("Escape");
    assert.deepEqual(await columns(page), alone);
  }
  // A choice without those columns hides nothing, beside the drawer either.
  await page.goto(`${here()}/events?columns=action`);
  await page.getByRole("link", { name: "#3", exact: true }).click();
  await page.getByRole("region", { name: "Event", exact: true }).waitFor();
  const few = await columns(page);
  assert.deepEqual([few.hidden, few.cue], [[], ""]);
});

journey("a row opens as a page without JavaScript", () => browser, { scripts: false }, async (page, { context }) => {
  await context.addCookies(cookies);
  await page.goto(`${here()}/events`);
  await page.getByRole("link", { name: "#3", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "user.login by usr_3" }).waitFor();
});

journey("rows are selected, copied and exported by their numbers", () => browser, {}, async (page, { context }) => {
  await context.addCookies(cookies);
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: server.url });
  await page.goto(`${here()}/events`);
  for (const seq of [4, 2, 1]) await page.getByRole("checkbox", { name: `Select #${seq}` }).check();
  await page.getByText("3 selected").waitFor();
  await page.getByRole("button", { name: "Copy log_ids" }).click();
  await page.getByText("Copied the log_ids.").waitFor();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^([0-9A-Z]{26}\n){2}[0-9A-Z]{26}$/);
  await hasNoBarriers(page, EVERYTHING);
  await page.getByRole("button", { name: "Export selected" }).click();
  await page.getByRole("heading", { name: "Exports", exact: true, level: 1 }).waitFor();
  assert.equal(await page.getByLabel("Search").inputValue(), "seq:1..2 seq:4");
});

journey("the live tail marks the rows that it brings", () => browser, {}, async (page, { context }) => {
  await context.addCookies(cookies);
  await page.goto(`${here()}/events`);
  const live = page.getByRole("button", { name: "Live tail" });
  const pulse = async (reducedMotion) => {
    await page.emulateMedia({ reducedMotion });
    return live.evaluate((button) => button.getAnimations({ subtree: true })
      .filter((animation) => animation.effect.pseudoElement === "::before")
      .map(({ animationName, playState }) => `${animationName} ${playState}`));
  };
  assert.equal(await live.getAttribute("aria-pressed"), "false");
  assert.deepEqual(await pulse("no-preference"), [], "nothing moves before it is on");
  await live.click();
  assert.equal(await live.getAttribute("aria-pressed"), "true");
  assert.deepEqual(await pulse("no-preference"), ["pulse running"]);
  assert.deepEqual(await pulse("reduce"), [], "people who asked for no movement see none");
  await page.getByText("Waiting for events.").waitFor();
  await server.send(place.live, { action: "user.logout", actor_id: "late" });
  await page.getByRole("link", { name: "late", exact: true }).waitFor();
  await eventually("one row is marked", async () => await page.locator("tr.fresh").count() === 1);
  await hasNoBarriers(page, COLOURS);
});

for (const scripts of [true, false]) {
  journey(`switching the mode keeps the page${scripts ? "" : ", without JavaScript"}`, () => browser, { scripts }, async (page, { context }) => {
    await context.addCookies(cookies);
    for (const path of ["", "/verify", "/exports"]) {
      await page.goto(`${here()}${path}`);
      await page.getByRole("navigation", { name: "Mode" }).getByRole("link", { name: "Test" }).click();
      await page.waitForURL((url) => url.pathname.endsWith(`/test${path}`));
    }
  });
}
