// A browser whose every complaint fails the test: what a policy blocks, what a script throws, what cannot be loaded.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { chromium } from "playwright-core";
import { OUT, PASSWORD } from "./server.mjs";

/// For one step of a page, and for one test: they end a hang, and leave a busy machine all the time it needs.
const STEP_MS = 60_000;
const TEST_MS = 300_000;
/// The first has the engine without a window around it: the same pages for a third of the processor time.
const PLACES = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"].map((name) => join("/usr/bin", name));

export async function launch() {
  const executablePath = process.env.SEALOG_BROWSER ?? PLACES.find(existsSync);
  assert.ok(executablePath, `no browser at any of ${PLACES.join(", ")}; SEALOG_BROWSER names another one`);
  // As root, as in a container, there is no sandbox to be had; it opens nothing but our own server.
  const args = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
  if (process.getuid() === 0) args.push("--no-sandbox");
  return chromium.launch({ executablePath, args, timeout: 300_000 });
}

/// A new visitor. `scripts: false` is a browser without JavaScript.
export async function visitor(browser, { scripts = true, dark = false, narrow = false, cookies = [] } = {}) {
  const context = await browser.newContext({
    javaScriptEnabled: scripts,
    colorScheme: dark ? "dark" : "light",
    viewport: narrow ? { width: 320, height: 640 } : { width: 1280, height: 900 },
    reducedMotion: "reduce",
  });
  context.setDefaultTimeout(STEP_MS);
  await context.addCookies(cookies);
  const complaints = [];
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`policy: ${event.violatedDirective} blocks ${event.blockedURI} ${event.sample}`);
    });
  });
  context.on("console", (message) => {
    // That a page was answered with 4xx is for the test to say; what it loads is looked at below.
    const isStatus = message.text().startsWith("Failed to load resource: the server responded");
    if (message.type() === "error" && !isStatus) complaints.push(message.text());
  });
  context.on("weberror", (error) => complaints.push(String(error.error())));
  context.on("dialog", (dialog) => { complaints.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  context.on("response", (response) => {
    if (response.status() >= 400 && !response.request().isNavigationRequest()) {
      complaints.push(`${response.status()} ${response.url()}`);
    }
  });
  const page = await context.newPage();
  return { context, page, complaints };
}

/// Visitors who come again, by what they are like. They have no cookies when they come.
const KEPT = new Map();

async function comesAgain(browser, options) {
  const one = KEPT.get(JSON.stringify(options)) ?? await visitor(browser, options);
  KEPT.delete(JSON.stringify(options));
  one.complaints.length = 0;
  await one.context.clearCookies();
  await one.page.emulateMedia({ media: null });
  return one;
}

/// A test with a visitor of its own, or (`kept`) with one who has seen other pages before: that is faster, and its browser has files in its cache.
/// What the browser complains about fails it, and a failure leaves a screenshot. `skip` says why it cannot be made.
export function journey(name, browser, { skip = false, kept = false, ...options }, act) {
  test(name, { timeout: TEST_MS, skip }, async () => {
    const one = kept ? await comesAgain(browser(), options) : await visitor(browser(), options);
    try {
      await act(one.page, one);
      assert.deepEqual(one.complaints, []);
      if (kept) KEPT.set(JSON.stringify(options), one);
    } catch (error) {
      await screenshot(one.page, name);
      error.message += `\nat ${one.page.url()}; the browser: ${one.complaints.join("; ") || "no complaint"}`;
      throw error;
    } finally {
      if (![...KEPT.values()].includes(one)) await one.context.close();
    }
  });
}

async function screenshot(page, name) {
  mkdirSync(join(OUT, "failed"), { recursive: true });
  const path = join(OUT, "failed", `${name.replaceAll(/[^a-z0-9]+/gi, "-")}.png`);
  await page.screenshot({ path, fullPage: true, timeout: STEP_MS }).catch(() => {});
}

/// Fills in the sign-in page, wherever that leads.
export async function submitPassword(page, server, email, password = PASSWORD) {
  await page.goto(`${server.url}/app/sign-in`);
  await page.getByLabel("E-mail").fill(email);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
}

/// What every page has for somebody who has signed in, and no other page.
export function inside(page) {
  return page.getByRole("button", { name: "Sign out" });
}

/// The cookies of somebody who has signed in: one attempt serves for many pages.
export async function signedIn(browser, server, email, password = PASSWORD) {
  const { context, page } = await visitor(browser, { scripts: false });
  await submitPassword(page, server, email, password);
  await inside(page).waitFor();
  // Auditors see nothing without one.
  if (page.url().includes("?needed=authenticator")) await setUpAuthenticator(page, password);
  const cookies = await context.cookies();
  await context.close();
  return cookies;
}

/// On the account's page. The secret and the recovery codes.
export async function setUpAuthenticator(page, password = PASSWORD) {
  const card = page.getByRole("region", { name: "Authenticator", exact: true });
  await card.getByLabel("Password").fill(password);
  await card.getByRole("button", { name: "Set up" }).click();
  const secret = await page.getByRole("region", { name: "Key for the authenticator" }).textContent();
  await card.getByLabel("Code from your authenticator").fill(code(secret));
  await card.getByRole("button", { name: "Turn on" }).click();
  const codes = await page.getByRole("region", { name: "Recovery codes" }).locator("pre").textContent();
  return { secret, codes: codes.trim().split(/\s+/) };
}

/// The code of an authenticator (RFC 6238), so many steps from now.
export function code(secret, steps = 0) {
  const bits = [...secret.replaceAll(/\s/g, "")].map((c) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".indexOf(c).toString(2).padStart(5, "0")).join("");
  const key = Buffer.from(bits.match(/.{8}/g).map((byte) => Number.parseInt(byte, 2)));
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30_000) + steps));
  const mac = createHmac("sha1", key).update(counter).digest();
  const at = mac[19] & 15;
  return String((mac.readUInt32BE(at) & 0x7fffffff) % 1_000_000).padStart(6, "0");
}

/// Waits until something that is not in the page holds.
export async function eventually(what, holds) {
  for (const until = Date.now() + STEP_MS; Date.now() < until; await new Promise((next) => setTimeout(next, 20))) {
    if (await holds()) return;
  }
  assert.fail(`not in time: ${what}`);
}
