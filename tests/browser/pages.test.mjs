// Every page: accessible in both themes, on a narrow screen, without JavaScript, within its policy, and small.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually, journey, launch, setUpAuthenticator, signedIn, submitPassword, visitor } from "./browser.mjs";
import { NOT_PAGES, PAGES, ROUTES, address, furnish, title } from "./pages.mjs";
import { printed } from "./paper.mjs";
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
  await registerOnTwoSheets(page);
  place.hash = (await server.api(place.live, `/v1/events/${place.log_id}`)).body.hash;
  await context.close();
}, { timeout: 300_000 });

after(async () => {
  await browser?.close();
  await server?.stop();
});

/// More cases than a sheet of the register has room for.
async function registerOnTwoSheets(page) {
  const headers = { Origin: server.url, "Sec-Fetch-Site": "same-origin" };
  await page.goto(`${server.url}/app/o/${place.organisation}/cases/new`);
  const form = await page.locator("main form").evaluate((form) => Object.fromEntries(new FormData(form)));
  for (let number = 0; number < 25; number += 1) {
    const made = await page.request.post(`${server.url}/app/o/${place.organisation}/cases/create`, { headers, form: { ...form, requester: `Subject ${number}` }, maxRedirects: 0 });
    assert.equal(made.status(), 303, await made.text());
  }
}

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

for (const route of ["/app/p/{project}/{mode}/events", "/app/p/{project}/{mode}/verify/all", "/app/o/{organisation}/system-log", "/app/o/{organisation}/cases/register", "/app/o/{organisation}/keys", "/app/o/{organisation}/cases", "/app/o/{organisation}/actions"]) {
  journey(`${route}: its table fits its card at 1280 pixels`, () => browser, { scripts: false }, async (page, { context }) => {
    await context.addCookies(cookies.owner);
    await page.goto(server.url + address({ route }, place));
    const widths = await page.locator("main .scroll").evaluateAll((all) => all.map((one) => [one.scrollWidth - one.clientWidth, one.querySelectorAll("tbody tr").length]));
    assert.ok(widths.length > 0 && widths.some(([, rows]) => rows > 0), "there is a table");
    for (const [over] of widths) assert.ok(over <= 1, `${over} pixels are behind its edge`);
  });
}

/// On paper: whose it is, what it shows and when it was retrieved, on every sheet; heads of tables again on each;
/// values whole, beginning on the first sheet; and nothing to press.
const SHEETS = [
  { what: "a list of events", route: "/app/p/{project}/{mode}/events", head: ["production, live", "Filter: none"], least: 2,
    table: ["Seq", "Time (UTC)", "Severity", "Hash"], first: `usr_${LAST}`, words: [/ case\/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12} /, ...Array.from({ length: 39 }, (_, number) => `session/${number + 20}`)] },
  { what: "a filtered list", route: "/app/p/{project}/{mode}/events", query: "?q=action%3Auser.login+-actor%3Ausr_3", head: ["Filter: action:user.login -actor:usr_3"], least: 2,
    table: ["Seq", "Severity"], first: `usr_${LAST}`, words: [] },
  { what: "a list of test events", route: "/app/p/{project}/{mode}/events", mode: "test", head: ["production, test"], least: 1, table: ["Seq"], first: "usr_test", words: ["Test data"] },
  { what: "an event", route: "/app/p/{project}/{mode}/events/{log_id}", head: ["production, live", () => `, ${place.log_id}`], least: 2,
    first: "Covered by the hash", words: [() => place.log_id, () => place.organisation, () => place.hash, "Hash recomputed by the server"] },
  { what: "a verification", route: "/app/p/{project}/{mode}/verify/{run}", head: ["production, live", `Verification of #1 to #${EVENTS}`], least: 1,
    first: `${EVENTS} of ${EVENTS} events are valid`, words: [() => place.hash] },
  { what: "a report", route: "/app/p/{project}/{mode}/frameworks/{framework}", head: ["production, live", "SOC 2, live events of the last"], least: 2,
    table: ["Clause", "Required", "Last seen"], first: "backup.completed", words: [/CC\d\.\d/, "user.login"] },
  { what: "a register", route: "/app/o/{organisation}/cases/register", head: ["All projects", "Received in 20"], least: 2,
    table: ["Case", "Due", "Days used"], first: "Figures", words: [/DSAR-\d{4}-001 \d{4}-\d\d-\d\d/, /DSAR-\d{4}-025/] },
  { what: "a case", route: "/app/o/{organisation}/cases/{case}", head: [/DSAR-\d{4}-\d{3}: production, live/], least: 2, first: "Answer due", words: ["Ada"] },
  { what: "the system log", route: "/app/o/{organisation}/system-log", head: ["All projects", "Filter: none"], least: 1, table: ["What happened"], first: "System log",
    words: [() => place.people.owner] },
];
for (const { what, route, mode, query, head, least, table = [], first, words } of SHEETS) {
  journey(`${what} is printed as evidence: its head on every sheet, its values whole`, () => browser, { scripts: false, kept: true }, async (page, { context }) => {
    await context.addCookies(cookies.owner);
    await page.goto(server.url + address({ route, mode, query }, place));
    const sheets = await printed(page);
    const says = (text, word) => { const one = typeof word === "function" ? word() : word; assert.ok(one instanceof RegExp ? one.test(text) : text.includes(one), `${one} in ${text}`); };
    assert.ok(sheets.length >= least, `${sheets.length} sheets`);
    const when = sheets[0].match(/Retrieved \d+ \w+ \d{4} \d\d:\d\d:\d\d\.\d{3} UTC by/)?.[0];
    assert.ok(when, sheets[0]);
    sheets.forEach((sheet, at) => {
      for (const word of ["Organisation", ...head, when, place.people.owner, ...table, `Page ${at + 1} of ${sheets.length}`]) says(sheet, word);
    });
    says(sheets[0], first);
    for (const word of words) says(sheets.join(" "), word);
    for (const word of ["Sign out", "API keys", "Skip to content", "Filter by this", "Permalink"]) assert.ok(!sheets.join(" ").includes(word), word);
  });
}

journey("a filter that is too long for the head of a sheet is cut there, and whole above the list", () => browser, { scripts: false, kept: true }, async (page, { context }) => {
  await context.addCookies(cookies.owner);
  const long = "W".repeat(1500);
  await page.goto(`${server.url}/app/p/${place.project}/live/events?q=-%22${long}%22`);
  const sheets = await printed(page);
  assert.ok(sheets.length >= 2);
  for (const sheet of sheets) assert.ok(sheet.includes("Filter: -") && sheet.includes(place.people.owner) && sheet.includes("Severity"), sheet);
  const count = (text) => text.match(/W/g).length;
  assert.ok(count(sheets[0]) > 1500 && count(sheets[1]) < 1000, `${count(sheets[0])}, ${count(sheets[1])}`);
});

journey("paper has UTC, also for those who look at local times", () => browser, {}, async (page, { context }) => {
  await context.addCookies(cookies.owner);
  await page.goto(`${server.url}/app/p/${place.project}/live/events`);
  const time = page.locator("main tbody time").first();
  const utc = (await time.textContent()).replaceAll(/\s+/g, " ");
  await page.getByRole("button", { name: "Show local times" }).click();
  const local = await time.textContent();
  assert.notEqual(local, utc);
  const [sheet] = await printed(page);
  assert.ok(sheet.includes(utc) && !sheet.includes(local), sheet);
  assert.equal(await time.textContent(), local, "the screen keeps what was chosen");
});

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
