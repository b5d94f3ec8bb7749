// The operator's console: an account from the host, a loss accepted, and every page of it.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { code, inside, journey, launch, signedIn, visitor } from "./browser.mjs";
import { PASSWORD, ROOT, serve } from "./server.mjs";
import { walk } from "./walk.mjs";

const settings = { SEALOG_OPS_ENABLED: "true" };
const LOST = 3;
/// Chains that have lost their last events: one for each journey, and one that stays as it is.
const PROJECTS = ["to be looked at", "with scripts", "without scripts"];

let server, browser, place;
const cookies = { nobody: [] };

before(async () => {
  // A first server, whose log is cut when it has stopped.
  const first = await serve({ settings, keep: true });
  const chains = await Promise.all(PROJECTS.map(async (name) => {
    const { tenant_id: organisation } = await first.operator("/tenants", { name: `Organisation ${name}` });
    const { project_id: project } = await first.operator(`/tenants/${organisation}/projects`, { name });
    const { key } = await first.operator(`/projects/${project}/keys`, { name: "key", mode: "live" });
    return { name, organisation, project, key };
  }));
  await first.drained();
  for (let number = 0; number < 5; number += 1) {
    for (const { key } of chains) await first.send(key, { action: "user.login", actor_id: "usr_1" });
  }
  await first.stop();
  cutLog(first.data, LOST * chains.length);
  [server, browser] = await Promise.all([serve({ settings, dir: first.dir }), launch()]);
  place = { ...chains[0], chains };
  const organisation = await server.organisation("Another organisation");
  cookies.owner = await signedIn(browser, server, organisation.people.owner);
  cookies.operator = await enrolled("operator@example.org");
  cookies.half = await enrolled("code@example.org", { half: true });
  cookies.new = await enrolled("new@example.org", { until: "authenticator" });
}, { timeout: 300_000 });

after(async () => { await browser?.close(); await server?.stop(); });

/// Takes the last requests out of the live log, as a failing disk might.
function cutLog(data, requests) {
  const path = join(data, "live/00000001.log");
  const bytes = readFileSync(path);
  const frames = [];
  for (let at = 128; at + 8 <= bytes.length && bytes.toString("latin1", at, at + 4) === "SLFR"; at += bytes.readUInt32LE(at + 4)) frames.push(at);
  assert.ok(frames.length > requests, "the log has as many requests");
  writeFileSync(path, bytes.subarray(0, frames.at(-requests)));
}

function link(email) {
  return server.command("ops-user", "add", "--email", email).trim();
}

/// Follows a link from the host to the end.
async function enrol(page, email) {
  await page.goto(link(email));
  const token = page.getByLabel("Link, or the part after #");
  if (await token.isVisible() && await token.inputValue() === "") await token.fill(page.url());
  await page.getByLabel("New password").fill(PASSWORD);
  await page.getByRole("button", { name: "Set password" }).click();
  await page.getByRole("heading", { name: "Set up your authenticator" }).waitFor();
}

async function confirm(page) {
  const secret = await page.getByRole("region", { name: "Key for the authenticator" }).textContent();
  await page.getByLabel("Code from your authenticator").fill(code(secret));
  await page.getByRole("button", { name: "Turn on and continue" }).click();
  await page.getByRole("heading", { name: "Tenants" }).waitFor();
  return secret;
}

async function submitPassword(page, email) {
  await page.goto(`${server.url}/ops/sign-in`);
  await page.getByLabel("E-mail").fill(email);
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Sign in" }).click();
}

async function enrolled(email, { half = false, until } = {}) {
  const { context, page } = await visitor(browser, { scripts: false });
  await enrol(page, email);
  if (until !== "authenticator") await confirm(page);
  if (half) {
    await page.getByRole("button", { name: "Sign out" }).click();
    await submitPassword(page, email);
    await page.getByLabel("Code", { exact: true }).waitFor();
  }
  const kept = await context.cookies();
  await context.close();
  return kept;
}

const PAGES = [
  { route: "/ops/sign-in", as: "nobody" },
  { route: "/ops/sign-in/code", as: "half" },
  { route: "/ops/enrol", as: "nobody" },
  { route: "/ops/enrol/authenticator", as: "new" },
  { route: "/ops", as: "operator", leads: true },
  { route: "/ops/tenants", as: "operator" },
  { route: "/ops/tenants", as: "operator", query: "?search=nothing", name: "nothing found" },
  { route: "/ops/tenants/{tenant}", as: "operator" },
  { route: "/ops/losses", as: "operator" },
  { route: "/ops/losses/{tenant}/{project}/{mode}", as: "operator" },
  { route: "/ops/jobs", as: "operator" },
  { route: "/ops/jobs", as: "operator", query: "?all=1", name: "all" },
  { route: "/ops/outbox", as: "operator" },
  { route: "/ops/outbox", as: "operator", query: "?state=given_up", name: "given up" },
  { route: "/ops/storage", as: "operator" },
  { route: "/ops/system", as: "operator" },
  { route: "/ops/no-such-page", as: "operator", name: "not found", status: 404 },
];
const NOT_PAGES = ["/ops/static/{hash}/{file}"];

test("every page of the console is in the list of pages", () => {
  const table = readFileSync(join(ROOT, "crates/sealog-dashboard/src/ops/routes.rs"), "utf8");
  const routes = [...table.matchAll(/^ {4}GET "([^"]+)"/gm)].map(([, path]) => path);
  assert.ok(routes.length > 10, "the table is found");
  const known = [...PAGES.map((page) => page.route), ...NOT_PAGES];
  assert.deepEqual(routes.filter((path) => !known.includes(path)), []);
});

walk(PAGES, {
  browser: () => browser,
  title: (entry) => `${entry.route}${entry.name ? ` (${entry.name})` : ""}`,
  open: async (entry, { context, page }) => {
    await context.addCookies(cookies[entry.as]);
    const path = entry.route.replace("{tenant}", place.organisation).replace("{project}", place.project).replace("{mode}", "live");
    const response = await page.goto(server.url + path + (entry.query ?? ""));
    assert.equal(response.status(), entry.status ?? 200);
    assert.equal(new URL(page.url()).pathname !== path, entry.leads ?? false, page.url());
    assert.equal(response.headers()["cache-control"], "no-store");
    await page.getByRole("heading", { level: 1 }).waitFor();
  },
});

journey("a session of an organisation opens nothing of the console", () => browser, {}, async (page, { context }) => {
  await context.addCookies(cookies.owner);
  await page.goto(`${server.url}/app`);
  await inside(page).waitFor();
  await page.goto(`${server.url}/ops/tenants`);
  await page.getByRole("heading", { name: "Operator's console" }).waitFor();
});

for (const scripts of [true, false]) {
  const without = scripts ? "" : ", without JavaScript";

  journey(`an operator comes in by a link from the host, and comes back with a code${without}`, () => browser, { scripts }, async (page) => {
    const email = `comes-in-${scripts}@example.org`;
    await enrol(page, email);
    await page.goto(`${server.url}/ops/storage`);
    await page.getByRole("heading", { name: "Set up your authenticator" }).waitFor();
    await page.getByLabel("Code from your authenticator").fill("000000");
    await page.getByRole("button", { name: "Turn on and continue" }).click();
    await page.getByRole("alert").filter({ hasText: "Wrong code" }).waitFor();
    const secret = await confirm(page);
    await page.getByRole("button", { name: "Sign out" }).click();
    await submitPassword(page, email);
    await page.getByLabel("Code", { exact: true }).fill(code(secret, 1));
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByRole("heading", { name: "Tenants" }).waitFor();
  });

  journey(`the operator accepts a loss and the chain goes on${without}`, () => browser, { scripts }, async (page, { context }) => {
    const chain = place.chains[scripts ? 1 : 2];
    const login = { action: "user.login", actor_id: "usr_1" };
    assert.equal((await server.api(chain.key, "/v1/events", login)).status, 500);
    await context.addCookies(cookies.operator);
    await page.goto(`${server.url}/ops/storage`);
    await page.getByText(`${chain.project}/live ends at event 2, but it had reached 5`).waitFor();
    await page.getByRole("link", { name: "Losses" }).first().click();
    await page.getByRole("row").filter({ hasText: chain.project }).getByRole("link", { name: "Review" }).click();
    await page.getByText("events 3 to 5 (3 events)").waitFor();
    await page.getByLabel("Reason").fill("The disk was replaced; no backup has the events.");
    await page.getByLabel(/^Type “/).fill("something else");
    await page.getByRole("button", { name: "Accept loss" }).click();
    await page.locator("#name-error").waitFor();
    assert.equal(await page.getByLabel("Reason").inputValue(), "The disk was replaced; no backup has the events.");
    await page.getByLabel(/^Type “/).fill(chain.name);
    await page.getByRole("button", { name: "Accept loss" }).click();
    await page.getByRole("status").filter({ hasText: "accepted as event 3 of the chain" }).waitFor();
    assert.equal(await page.getByRole("row").filter({ hasText: chain.project }).count(), 0);

    await server.send(chain.key, login);
    const { body: verdict } = await server.api(chain.key, "/v1/events/verify");
    assert.deepEqual([verdict.valid, verdict.checked], [true, 4]);
    const { body: { events } } = await server.api(chain.key, "/v1/events?action=sealog.loss_accepted");
    assert.deepEqual([events[0].chain_seq, events[0].metadata.lost_from, events[0].metadata.lost_to], [3, 3, 5]);
    assert.equal(events[0].metadata.reason, "The disk was replaced; no backup has the events.");
  });

  journey(`a plan and a rate are changed${without}`, () => browser, { scripts }, async (page, { context }) => {
    await context.addCookies(cookies.operator);
    await page.goto(`${server.url}/ops/tenants?search=looked+at`);
    await page.getByRole("link", { name: "Organisation to be looked at" }).click();
    await page.getByLabel("Plan", { exact: true }).selectOption("entry");
    await page.getByRole("button", { name: "Save plan and trial" }).click();
    await page.getByRole("status").filter({ hasText: "Saved, and recorded" }).waitFor();
    await page.getByText("of 250,000").first().waitFor();
    await page.getByLabel("Requests per second, instead of the plan's").fill(scripts ? "12" : "13");
    await page.getByRole("button", { name: "Save rate", exact: true }).click();
    await page.getByText(`${scripts ? 12 : 13} requests per second`).waitFor();
  });
}
