// Pictures of the main pages from `sealog demo`: node screenshots.mjs FOLDER [MOCK]. EVENTS is how many events the demo
// has. With MOCK, a folder of pictures NAME-1440-light.png, a sheet for each page that it has: the mock beside the page at
// 1280, 1920 and 375 px.
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { launch, signedIn, visitor } from "./browser.mjs";
import { demo } from "./server.mjs";

/// Of what a page shows; the name is that of the file, `mock` that of the mock's. `open` comes from the page that
/// somebody sees first; a stranger is not signed in.
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
  { name: "case", mock: "dsar-case", open: async (page) => {
    await openCase(page, /^Review/);
    await page.getByRole("link", { name: "Next undecided" }).click();
    await page.getByRole("heading", { name: "As disclosed" }).or(page.getByText("As disclosed")).first().waitFor();
  } },
  { name: "usage", open: (page) => go(page, "Usage") },
  { name: "keys", open: (page) => go(page, "API keys") },
  { name: "sign-in", mock: "signin", isStranger: true, open: (page) => page.getByLabel("Password").waitFor() },
];

const WIDTHS = [1280, 1920, 375];

const folder = resolve(process.argv[2] ?? "docs/images");
const mocks = process.argv[3] && resolve(process.argv[3]);
mkdirSync(folder, { recursive: true });
const [server, browser] = await Promise.all([demo({ events: Number(process.env.EVENTS ?? 50_000) }), launch()]);
try {
  const owner = server.people.find((person) => person.role === "owner");
  const cookies = await signedIn(browser, server, owner.address, owner.password);
  await prepare(cookies);
  for (const shot of mocks ? SHOTS : []) await sheet(shot, cookies);
  for (const { name, isStranger, open } of mocks ? [] : SHOTS) {
    for (const dark of [false, true]) {
      const { context, page } = await visitor(browser, { dark, cookies: isStranger ? [] : cookies });
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

/// The picture of the mock, and the page at each width, all of one height.
async function sheet({ name, mock = name, isStranger, open }, cookies) {
  const file = join(mocks, `${mock}-1440-light.png`);
  if (!existsSync(file)) return;
  const pictures = [["mock, 1440 px", readFileSync(file)]];
  for (const width of WIDTHS) {
    const { context, page } = await visitor(browser, { cookies: isStranger ? [] : cookies });
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.goto(`${server.url}/app`);
    await open(page); // the navigation of a phone is closed
    await page.setViewportSize({ width, height: width < 500 ? 812 : 1000 });
    await page.waitForLoadState("load");
    pictures.push([`${width} px`, await page.screenshot({ animations: "disabled" })]);
    await context.close();
  }
  const figures = pictures.map(([label, bytes]) =>
    `<figure><img src="data:image/png;base64,${bytes.toString("base64")}"><figcaption>${label}</figcaption></figure>`);
  const context = await browser.newContext({ viewport: { width: 2200, height: 520 } });
  const page = await context.newPage();
  await page.setContent(`<style>body { display: inline-flex; gap: 12px; margin: 12px; font: 13px sans-serif }
    figure { margin: 0 } img { display: block; height: 460px; border: 1px solid #999 }</style>${figures.join("")}`);
  const path = join(folder, `${name}-beside-mock.jpg`);
  await page.locator("body").screenshot({ path, type: "jpeg", quality: 80 });
  await context.close();
}

/// The tab of the case that somebody works on.
async function openCase(page, tab) {
  await go(page, "Cases");
  await page.getByRole("row").filter({ hasText: "In progress" }).getByRole("link").first().click();
  await page.getByRole("navigation", { name: "Case" }).getByRole("link", { name: tab }).click();
}

/// A verification, an export, and a case that was searched and decided in part, so that there is something to see of them.
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
  await openCase(page, "Search");
  await page.getByRole("button", { name: "Start search" }).click();
  await page.getByRole("cell", { name: "Done" }).first().waitFor({ timeout: 120_000 });
  await openCase(page, /^Review/);
  const list = page.locator("section[aria-labelledby=rv]");
  await list.getByRole("checkbox", { name: /^Select #/ }).last().check();
  await list.getByLabel(/^Reason/).fill("Of somebody else.");
  await list.getByRole("button", { name: "Exclude", exact: true }).click();
  await page.getByText(/ 1 excluded/).waitFor();
  await context.close();
}

/// By the navigation. False if there is no such page.
async function go(page, label) {
  const link = page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: label, exact: true });
  if (await link.count() === 0) return false;
  await link.click();
  await page.getByRole("heading", { level: 1 }).waitFor();
}
