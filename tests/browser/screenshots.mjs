// Pictures of the main pages from `sealog demo`: node screenshots.mjs FOLDER. EVENTS is how many events the demo has.
import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { launch, signedIn, visitor } from "./browser.mjs";
import { demo } from "./server.mjs";

/// Of what a page shows; the name is that of the file. `open` comes from the page that somebody sees first.
const SHOTS = [
  { name: "events", open: (page) => go(page, "Events") },
  { name: "event", open: async (page) => {
    await go(page, "Events");
    await page.getByRole("rowheader").first().getByRole("link").click();
  } },
  { name: "overview", open: (page) => go(page, "Overview") },
  { name: "verification", open: (page) => go(page, "Verification") },
  { name: "exports", open: (page) => go(page, "Exports") },
  { name: "frameworks", open: (page) => go(page, "Frameworks") },
  { name: "case", open: async (page) => {
    await go(page, "Cases");
    await page.getByRole("row").filter({ hasText: "In progress" }).getByRole("link").first().click();
    await page.getByRole("heading", { level: 1 }).waitFor();
  } },
  { name: "usage", open: (page) => go(page, "Usage") },
  { name: "keys", open: (page) => go(page, "API keys") },
];

const folder = resolve(process.argv[2] ?? "docs/images");
mkdirSync(folder, { recursive: true });
const [server, browser] = await Promise.all([demo({ events: Number(process.env.EVENTS ?? 50_000) }), launch()]);
try {
  const owner = server.people.find((person) => person.role === "owner");
  const cookies = await signedIn(browser, server, owner.address, owner.password);
  await prepare(cookies);
  for (const { name, open } of SHOTS) {
    for (const dark of [false, true]) {
      const { context, page } = await visitor(browser, { dark, cookies });
      await page.setViewportSize({ width: 1280, height: 800 });
      await page.goto(`${server.url}/app`);
      if (await open(page, server.url) === false) {
        console.error(`no page ${name}`);
      } else {
        await page.waitForLoadState("load");
        await page.screenshot({ path: join(folder, `${name}-${dark ? "dark" : "light"}.png`), animations: "disabled" });
      }
      await context.close();
    }
  }
} finally {
  await browser.close();
  await server.stop();
}

/// A verification and an export, so that there is something to see of them.
async function prepare(cookies) {
  const { context, page } = await visitor(browser, { cookies });
  await page.goto(`${server.url}/app`);
  await go(page, "Verification");
  await page.getByRole("button", { name: "Verify", exact: true }).click();
  await page.getByText("events are valid").waitFor({ timeout: 60_000 });
  await go(page, "Exports");
  await page.getByLabel("Action").fill("hipaa.phi_disclosed");
  await page.getByRole("button", { name: "Create export" }).click();
  const link = page.getByRole("link", { name: "Download" }).first();
  // The first complete download counts its rows.
  const [file] = await Promise.all([page.waitForEvent("download"), link.click()]);
  await file.path();
  await context.close();
}

/// By the navigation. False if there is no such page.
async function go(page, label) {
  const link = page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: label, exact: true });
  if (await link.count() === 0) return false;
  await link.click();
  await page.getByRole("heading", { level: 1 }).waitFor();
}
