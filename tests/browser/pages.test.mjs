// Every page: accessible in both themes, on a narrow screen, without JavaScript, within its policy, and small.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually, journey, launch, setUpAuthenticator, signedIn, submitPassword, visitor } from "./browser.mjs";
import { NOT_PAGES, PAGES, ROUTES, address, furnish, title } from "./pages.mjs";
import { ROLES, serve } from "./server.mjs";
import { walk } from "./walk.mjs";

/// More than a page of them: the first view is as large as it gets.
const EVENTS = 60;
/// The number of the last one, a sign-in.
const LAST = 61;

let server, browser, place;
const cookies = { nobody: [] };

before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  place = { ...await server.organisation(), action: "invoice.sent" };
  await server.operator(`/tenants/${place.organisation}/actions`, { action: place.action, description: "An invoice left.", required_fields: ["invoice_id"] });
  const event = (number) => ({
    action: number % 3 ? "user.login" : "document.shared",
    actor_id: `usr_${number}`,
    resource: `session/${number}`,
    severity: number % 5 ? "warning" : "critical",
    metadata: { method: "sso", nested: { list: [1, 2] } },
  });
  await server.sendAll(place.live, Array.from({ length: EVENTS - 1 }, (_, number) => event(number)));
  place.log_id = await server.send(place.live, event(LAST));
  for (let number = 0; number < 3; number += 1) await server.send(place.test, { action: "user.login", actor_id: "usr_test" });
  for (const role of ROLES) cookies[role] = await signedIn(browser, server, place.people[role]);
  cookies.half = await halfSignedIn();
  const { context, page } = await visitor(browser, { scripts: false, cookies: cookies.owner });
  await furnish(page, server.url, place);
  await context.close();
}, { timeout: 300_000 });

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

walk(PAGES, {
  browser: () => browser,
  title,
  open: async (entry, { context, page }) => {
    await context.addCookies(cookies[entry.as]);
    const asked = server.url + address(entry, place);
    const response = await page.goto(asked);
    assert.equal(response.status(), entry.status ?? 200);
    const led = new URL(page.url()).pathname;
    assert.equal(led !== new URL(asked).pathname, entry.leads ?? false, `it leads to ${led}`);
    assert.equal(response.headers()["cache-control"], "no-store");
    await page.getByRole("heading", { level: 1 }).waitFor();
  },
});

/// On paper: what there is to read, with the words that make it worth keeping.
for (const [what, entry, words] of [
  ["a list of events", "/app/p/{project}/{mode}/events", () => ["user.login", `usr_${LAST}`, `session/${LAST}`]],
  ["an event", "/app/p/{project}/{mode}/events/{log_id}", () => ["user.login", place.log_id, "Hash recomputed by the server"]],
  ["a verification", "/app/p/{project}/{mode}/verify/{run}", () => ["Verification of", `${EVENTS} of ${EVENTS} events are valid`]],
  ["a case", "/app/o/{organisation}/cases/{case}", () => ["DSAR-", "Answer due", "Ada"]],
]) {
  journey(`${what} is printed with its content and without navigation`, () => browser, { scripts: false, kept: true }, async (page, { context }) => {
    await context.addCookies(cookies.owner);
    await page.goto(server.url + address({ route: entry }, place));
    await page.emulateMedia({ media: "print" });
    const text = await page.locator("body").innerText();
    for (const word of words()) assert.ok(text.includes(word), `${word} in ${text}`);
    for (const word of ["Sign out", "API keys", "System log", "Skip to content"]) assert.ok(!text.includes(word), `${word} in ${text}`);
  });
}

// A rule that cannot fail is no rule.
test("what a policy blocks, a script throws or nobody can load is noticed", { timeout: 300_000 }, async () => {
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
