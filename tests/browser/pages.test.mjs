// Every page: accessible in both themes, on a narrow screen, without JavaScript, within its policy, and small.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { hasNoBarriers } from "./barriers.mjs";
import { eventually, journey, launch, setUpAuthenticator, signedIn, submitPassword, visitor } from "./browser.mjs";
import { NOT_PAGES, PAGES, ROUTES, address, furnish, title } from "./pages.mjs";
import { ROLES, serve } from "./server.mjs";

const FIRST_VIEW_BYTES_MAX = 100 * 1024;

let server, browser, place;
const cookies = { nobody: [] };

before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  place = { ...await server.organisation(), action: "invoice.sent" };
  await server.operator(`/tenants/${place.organisation}/actions`, { action: place.action, description: "An invoice left.", required_fields: ["invoice_id"] });
  for (let number = 0; number < 3; number += 1) {
    place.log_id = await server.send(place.live, { action: "user.login", actor_id: `usr_${number}`, resource: "session/1", metadata: { method: "sso", nested: { list: [1, 2] } } });
    await server.send(place.test, { action: "user.login", actor_id: "usr_test" });
  }
  for (const role of ROLES) cookies[role] = await signedIn(browser, server, place.people[role]);
  cookies.half = await halfSignedIn();
  const { context, page } = await visitor(browser, { scripts: false, cookies: cookies.owner });
  await furnish(page, server.url, place);
  await context.close();
}, { timeout: 120_000 });

after(async () => {
  await browser?.close();
  await server?.stop();
});

/// Somebody with an authenticator who has shown the password alone.
async function halfSignedIn() {
  const { people } = await server.organisation("Another organisation");
  const { context, page } = await visitor(browser, { scripts: false, cookies: await signedIn(browser, server, people.owner) });
  await page.goto(`${server.url}/app/account`);
  await setUpAuthenticator(page);
  await page.getByRole("button", { name: "Sign out" }).click();
  await submitPassword(page, server, people.owner);
  await page.getByLabel("Code", { exact: true }).waitFor();
  const kept = await context.cookies();
  await context.close();
  return kept;
}

test("every page of the table of routes is in the list of pages", () => {
  assert.ok(ROUTES.length > 10, "the table is found");
  const known = [...PAGES.map((page) => page.route), ...NOT_PAGES];
  assert.deepEqual(ROUTES.filter((path) => !known.includes(path)), [], "put them into pages.mjs");
});

for (const entry of PAGES) {
  const status = entry.status ?? 200;
  const open = async (one) => {
    await one.context.addCookies(cookies[entry.as]);
    const response = await one.page.goto(server.url + address(entry, place));
    assert.equal(response.status(), status);
    const [led, asked] = [one.page.url(), server.url + address(entry, place)].map((url) => new URL(url).pathname);
    assert.equal(led !== asked, entry.leads ?? false, `it leads to ${led}`);
    assert.equal(response.headers()["cache-control"], "no-store");
    return response;
  };
  const heading = (page) => page.getByRole("heading", { level: 1 }).waitFor();

  for (const dark of [false, true]) {
    journey(`${title(entry)}: no barriers in the ${dark ? "dark" : "light"} theme, and a small first view`, () => browser, { dark }, async (page, one) => {
      const answers = [];
      one.context.on("response", (response) => answers.push(response));
      await open(one);
      await heading(page);
      await page.waitForLoadState("load");
      // As it comes over the wire. What events arrive later is not part of it, and has no end.
      const ended = answers.filter((answer) => !answer.headers()["content-type"]?.startsWith("text/event-stream"));
      const sizes = await Promise.all(ended.map(async (answer) => (await answer.request().sizes()).responseBodySize));
      const bytes = sizes.reduce((sum, size) => sum + size, 0);
      assert.ok(bytes > 1000 && bytes < FIRST_VIEW_BYTES_MAX, `${bytes} bytes`);
      await hasNoBarriers(page);
    });
  }

  journey(`${title(entry)}: reads without JavaScript and fits a narrow screen`, () => browser, { scripts: false, narrow: true }, async (page, one) => {
    await open(one);
    await heading(page);
    const width = await page.evaluate(() => document.scrollingElement.scrollWidth);
    assert.ok(width <= 320, `it is ${width} wide and must be scrolled sideways`);
  });
}

// A rule that cannot fail is no rule.
test("what a policy blocks, a script throws or nobody can load is noticed", { timeout: 60_000 }, async () => {
  const { context, page, complaints } = await visitor(browser);
  await page.goto(`${server.url}/app/sign-in`);
  await page.evaluate(() => {
    document.head.append(Object.assign(document.createElement("style"), { textContent: "body { color: red }" }));
    document.body.append(Object.assign(document.createElement("img"), { src: "/app/static/0/none.svg" }));
    setTimeout(() => { throw new Error("thrown on purpose"); });
  });
  const noticed = ["policy: style-src", "404", "thrown on purpose"];
  await eventually("all three are noticed", () => noticed.every((what) => complaints.some((complaint) => complaint.includes(what))));
  await context.close();
});
