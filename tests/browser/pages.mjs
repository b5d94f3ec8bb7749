// Every page that a browser shows: one line each. `pages.test.mjs` opens them all, and fails if the table of routes
// has a page that is not here.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "./server.mjs";

// `route` as it stands in crates/sealog-dashboard/src/routes.rs. `as` is a role; "nobody" has not signed in, and
// "half" has shown a password and no code yet. `events` says that the page shows what events hold, `leads` that it leads
// to another page, which is looked at, and `action` that its query names the place's custom action.
// A line whose route the table does not have is left out.
const LINES = [
  { route: "/app/sign-in", as: "nobody" },
  { route: "/app/signed-in", as: "nobody" },
  { route: "/app/sign-in/code", as: "half" },
  { route: "/app/claim", as: "nobody" },
  { route: "/app/forgot", as: "nobody" },
  { route: "/app/reset", as: "nobody" },
  { route: "/app/invitation", as: "nobody" },
  { route: "/app/unsubscribe", as: "nobody" },
  { route: "/ops", as: "nobody", status: 404, name: "the console is off" },
  { route: "/app", as: "owner", query: "?choose=1" },
  { route: "/app/account", as: "owner" },
  { route: "/app/p/{project}/{mode}/events", as: "owner", events: true },
  { route: "/app/p/{project}/{mode}/events", as: "owner", mode: "test", events: true, name: "test mode" },
  { route: "/app/p/{project}/{mode}/events", as: "auditor", query: "?q=action:user.login", name: "filtered", events: true },
  { route: "/app/p/{project}/{mode}/events", as: "owner", query: "?q=from:nonsense", name: "bad filter", status: 400 },
  { route: "/app/p/{project}/{mode}/events", as: "owner", query: "?q=action%3Auser.*+-actor%3Anobody", name: "searched", events: true },
  { route: "/app/p/{project}/{mode}/events/{log_id}", as: "owner", events: true },
  { route: "/app/p/{project}/{mode}", as: "owner", events: true },
  { route: "/app/p/{project}/{mode}", as: "developer", query: "?reads=with", events: true, name: "with reads" },
  { route: "/app/p/{project}/{mode}", as: "auditor", mode: "test", events: true, name: "auditor, test mode" },
  { route: "/app/p/{project}/{mode}/verify", as: "owner" },
  { route: "/app/p/{project}/{mode}/verify/all", as: "owner", query: "?started=2" },
  { route: "/app/p/{project}/{mode}/verify/{run}", as: "owner" },
  { route: "/app/p/{project}/{mode}/exports", as: "owner", events: true },
  { route: "/app/p/{project}/{mode}/exports", as: "auditor", mode: "test", name: "auditor, test mode" },
  { route: "/app/p/{project}/{mode}/frameworks", as: "owner" },
  { route: "/app/p/{project}/{mode}/frameworks/{framework}", as: "auditor" },
  { route: "/app/p/{project}/{mode}/frameworks/{framework}/change", as: "owner" },
  { route: "/app/o/{organisation}/usage", as: "owner" },
  { route: "/app/o/{organisation}/system-log", as: "owner", events: true },
  { route: "/app/e/{log_id}", as: "owner", leads: true },
  { route: "/app/p/{project}/{mode}/views", as: "owner", query: "?query=q%3Dactor%253Ausr_1" },
  { route: "/app/p/{project}/{mode}/views", as: "auditor", name: "of others" },
  { route: "/app/o/{organisation}/actions", as: "owner", events: true },
  { route: "/app/o/{organisation}/actions/entry", as: "auditor", query: "?action=user.login" },
  { route: "/app/o/{organisation}/actions/entry", as: "owner", action: true, name: "custom", events: true },
  { route: "/app/o/{organisation}/actions/new", as: "developer" },
  { route: "/app/o/{organisation}/cases", as: "privacy_officer" },
  { route: "/app/o/{organisation}/cases", as: "auditor", name: "auditor" },
  { route: "/app/o/{organisation}/cases/new", as: "privacy_officer" },
  { route: "/app/o/{organisation}/cases/add", as: "privacy_officer", query: "?project={project}&seq=1..2&seq=1" },
  { route: "/app/o/{organisation}/cases/register", as: "admin" },
  { route: "/app/o/{organisation}/cases/holidays", as: "owner" },
  { route: "/app/o/{organisation}/cases/{case}", as: "privacy_officer" },
  { route: "/app/o/{organisation}/cases/{case}", as: "admin", name: "admin" },
  { route: "/app/o/{organisation}/cases/{case}/identity", as: "privacy_officer" },
  { route: "/app/o/{organisation}/cases/{case}/identifiers", as: "privacy_officer" },
  { route: "/app/o/{organisation}/cases/{case}/search", as: "privacy_officer" },
  { route: "/app/o/{organisation}/cases/{case}/search", as: "admin", name: "admin" },
  { route: "/app/o/{organisation}/cases/{case}/review", as: "privacy_officer", found: true, events: true },
  { route: "/app/o/{organisation}/cases/{case}/package", as: "privacy_officer" },
  { route: "/app/o/{organisation}/cases/{case}/response", as: "privacy_officer" },
  { route: "/app/o/{organisation}/cases/{case}/response/{letter}", as: "admin" },
  { route: "/app/o/{organisation}/cases/{case}/history", as: "owner" },
  { route: "/app/o/{organisation}/keys", as: "owner" },
  { route: "/app/o/{organisation}/keys", as: "owner", query: "?new=1", name: "a new one" },
  { route: "/app/o/{organisation}/keys", as: "auditor", name: "auditor" },
  { route: "/app/o/{organisation}/monitor-tokens", as: "owner" },
  { route: "/app/o/{organisation}/monitor-tokens", as: "owner", query: "?new=1", name: "a new one" },
  { route: "/app/o/{organisation}/projects", as: "owner" },
  { route: "/app/o/{organisation}/members", as: "owner" },
  { route: "/app/o/{organisation}/members/{person}", as: "owner" },
  { route: "/app/o/{organisation}/settings", as: "owner" },
  { route: "/app/{*rest}", as: "nobody", path: "/app/no-such-page", name: "not found", status: 404 },
];

/// What the table of routes shows.
const TABLE = readFileSync(join(ROOT, "crates/sealog-dashboard/src/routes.rs"), "utf8");
const paths = (method) => [...TABLE.matchAll(/^ {4}([A-Z]+) "([^"]+)"/gm)].filter(([, of]) => of === method).map(([, , path]) => path);
export const ROUTES = paths("GET");
const FORMS = paths("POST");

export const PAGES = LINES.filter((page) => (page.path || ROUTES.includes(page.route)));

// What a browser is sent to or downloads, and does not show.
export const NOT_PAGES = [
  // The same page as /ops.
  "/ops/{*rest}",
  "/",
  "/app/static/{hash}/{file}",
  "/app/p/{project}/{mode}/events/{log_id}/hashed.txt",
  "/app/p/{project}/{mode}/events/{log_id}/proof.txt",
  "/app/p/{project}/{mode}/tail",
  "/app/p/{project}/{mode}/verify/{run}/report.json",
  "/app/p/{project}/{mode}/verify/{run}/report.txt",
  "/app/p/{project}/{mode}/exports/{export}/download",
  "/app/p/{project}/{mode}/exports/{export}/manifest.json",
  "/app/o/{organisation}/cases/register.csv",
  "/app/o/{organisation}/cases/{case}/package/{package}/manifest.json",
  "/app/o/{organisation}/cases/{case}/response/{letter}/text",
];

/// Where a page is, for an organisation with a project and an event.
export function address(page, place) {
  const path = page.path ?? page.route
    .replace("{project}", place.project)
    .replace("{organisation}", place.organisation)
    .replace("{mode}", page.mode ?? "live")
    .replace("{log_id}", place.log_id)
    .replace("{person}", place.person)
    .replace("{run}", place.run)
    .replace("{case}", place.case)
    .replace("{letter}", "refusal")
    .replace("{framework}", "soc2");
  return path + (page.found ? place.found ?? "" : page.action ? `?action=${encodeURIComponent(place.action)}` : (page.query ?? "").replace("{project}", place.project));
}

/// Whether there is a page, or a form that is sent there.
export function has(route) {
  return ROUTES.includes(route) || FORMS.includes(route);
}

/// Why a journey cannot be made: for `journey`.
export function without(route) {
  return has(route) ? false : "there is no page for it yet";
}

/// Does what some pages need to have something to show: a verification, an export, a view that is shared and pinned. `page` is an owner's.
export async function furnish(page, url, place) {
  const here = `${url}/app/p/${place.project}/live`;
  if (has("/app/p/{project}/{mode}/verify/{run}")) {
    await page.goto(`${here}/verify`);
    await page.getByRole("button", { name: "Verify", exact: true }).click();
    await page.getByRole("heading", { name: /^Verification of/ }).waitFor();
    place.run = new URL(page.url()).pathname.split("/").at(-1);
  }
  if (has("/app/p/{project}/{mode}/exports")) {
    await page.goto(`${here}/exports`);
    await page.getByLabel("Actor").fill(place.actor ?? "usr_1");
    await page.getByRole("button", { name: "Create export" }).click();
    await page.getByRole("link", { name: "Download" }).first().waitFor();
  }
  if (has("/app/o/{organisation}/cases/{case}")) {
    await page.goto(`${url}/app/o/${place.organisation}/cases/new`);
    await page.getByLabel("Requester").fill("Ada <b>Subject</b>");
    await page.getByLabel("production").check();
    await page.getByRole("button", { name: "Open case" }).click();
    await page.getByRole("heading", { name: /^Access request DSAR-/ }).waitFor();
    place.case = new URL(page.url()).pathname.split("/").at(-1);
    await furnishCase(page, page.url().split("?")[0], place);
  }
  if (has("/app/p/{project}/{mode}/views/share")) {
    await page.goto(`${here}/views?query=action%3Duser.login`);
    await page.getByLabel("Name").fill("Sign-ins");
    await page.getByLabel("Everyone who can see").check();
    await page.getByLabel("Pin to Overview").check();
    await page.getByRole("button", { name: "Save view" }).click();
    await page.getByRole("heading", { name: "Events", exact: true }).waitFor();
  }
}

/// A step of a case, from its page: the next one stands open, others are in their own boxes.
export async function takeStep(page, label, fill = async () => {}) {
  const form = page.locator("form[action$='/move']").filter({ has: page.locator("button", { hasText: new RegExp(`^${label}$`) }) });
  const box = page.locator("details.move").filter({ has: form });
  if (await box.count()) await box.locator("summary").click();
  await fill(form);
  await form.getByLabel("Note").fill(`${label}: because it is time.`);
  await form.getByRole("button", { name: label, exact: true }).click();
}

/// Searches for somebody, so that there is something to review.
export async function furnishCase(page, here, place) {
  if (!has("/app/o/{organisation}/cases/{case}/search/start")) return;
  await page.goto(`${here}/identity`);
  await page.getByLabel("Outcome").selectOption({ label: "Confirmed" });
  await page.locator("#identity-note").fill("The code came back.");
  await page.getByRole("button", { name: "Save check" }).click();
  await page.goto(here);
  await takeStep(page, "Start work");
  await page.goto(`${here}/identifiers`);
  await page.getByLabel("Field").selectOption({ label: "actor_id" });
  await page.getByLabel("Value").fill(place.actor ?? "usr_1");
  await page.getByLabel("Source").fill("CRM");
  await page.getByRole("button", { name: "Add identifier" }).click();
  await page.goto(`${here}/search`);
  await page.getByRole("button", { name: "Start search" }).click();
  for (let turn = 0; turn < 200 && await page.getByRole("cell", { name: "Done" }).count() === 0; turn += 1) {
    await page.waitForTimeout(50);
    await page.reload();
  }
  await page.goto(`${here}/review`);
  const first = page.locator("tbody th a").first();
  if (await first.count()) place.found = new URL(await first.getAttribute("href"), here).search;
}

export function title(page) {
  return `${page.route}${page.name ? ` (${page.name})` : ""}`;
}
