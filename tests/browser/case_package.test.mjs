// A GDPR access case from intake to the package, its check by a program that shares no code, and its end.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before } from "node:test";
import { journey, launch, submitPassword } from "./browser.mjs";
import { takeStep, without as missing } from "./pages.mjs";
import { OUT, ROOT, serve } from "./server.mjs";

let server, browser;
before(async () => { [server, browser] = await Promise.all([serve({ keep: true }), launch()]); }, { timeout: 300_000 });
after(async () => { await browser?.close(); await server?.stop(); });

const skip = missing("/app/o/{organisation}/cases/{case}/package/build");

/// Takes a step, from the page of the case.
async function step(page, here, label, fill = async () => {}) {
  await page.goto(here);
  await takeStep(page, label, fill);
  await page.getByText(/^Case moved to /).waitFor();
}

/// Reloads until something is there: without JavaScript nothing comes by itself.
async function reloadUntil(page, locator) {
  for (let turn = 0; turn < 200; turn += 1) {
    if (await locator().count()) return;
    await page.waitForTimeout(50);
    await page.reload();
  }
  assert.fail("it never came");
}

function check(path, ...without) {
  const args = [join(ROOT, "tools/check_package.py"), path, ...without.flatMap((text) => ["--without", text])];
  return spawnSync("python3", args, { encoding: "utf8" });
}

for (const scripts of [false, true]) {
  journey(`a request is answered with a package${scripts ? "" : ", without JavaScript"}`, () => browser, { scripts, skip }, async (page) => {
    const { people, live, organisation } = await server.organisation();
    await server.send(live, { action: "user.login", actor_id: "p-20931" });
    await server.send(live, { action: "data.exported", actor_id: "usr_4821", actor_type: "nurse", resource: "patient/p-20931", metadata: { note: "asked by usr_4821 <script>alert(1)</script>" } });
    const excluded = await server.send(live, { action: "user.login", actor_id: "usr_9000", metadata: { note: "=p-20931" } });
    await submitPassword(page, server, people.privacy_officer);

    await page.goto(`${server.url}/app/o/${organisation}/cases/new`);
    await page.getByLabel("Requester").fill("Jane Subject");
    await page.getByLabel("production").check();
    await page.getByRole("button", { name: "Open case" }).click();
    await page.getByRole("heading", { name: /^Access request DSAR-/ }).waitFor();
    const here = page.url().split("?")[0];

    // Disclosure is locked.
    await page.getByRole("navigation", { name: "Case" }).getByRole("link", { name: "Package", exact: true }).click();
    await page.getByText("Disclosure is locked until the identity").waitFor();
    await page.goto(`${here}/identity`);
    await page.getByLabel("Method").selectOption({ label: "E-mail challenge" });
    await page.getByLabel("Outcome").selectOption({ label: "Confirmed" });
    await page.locator("#identity-note").fill("The code came back.");
    await page.getByRole("button", { name: "Save check" }).click();
    await page.getByText("Saved.").waitFor();
    await step(page, here, "Start work");

    await page.goto(`${here}/identifiers`);
    await page.getByLabel("Field").selectOption({ label: "actor_id" });
    await page.getByLabel("Value").fill("p-20931");
    await page.getByLabel("Source").fill("CRM");
    await page.getByRole("button", { name: "Add identifier" }).click();
    await page.getByRole("rowheader", { name: "p-20931" }).waitFor();

    await page.getByRole("navigation", { name: "Case" }).getByRole("link", { name: "Search", exact: true }).click();
    await page.getByRole("button", { name: "Start search" }).click();
    await reloadUntil(page, () => page.getByRole("cell", { name: "Done" }));

    await page.getByRole("navigation", { name: "Case" }).getByRole("link", { name: "Review", exact: true }).click();
    await page.getByText("0 included, 0 excluded, 3 to decide").waitFor();
    if (scripts) {
      const isInside = await page.locator(".found tbody th a").first().evaluate((link) => {
        const said = link.textContent;
        link.textContent = "#1,234,567";
        const fits = link.getBoundingClientRect().right <= link.closest("th").nextElementSibling.getBoundingClientRect().left;
        link.textContent = said;
        return fits;
      });
      assert.ok(isInside, "a number of seven digits stays in its column");
    }
    await page.getByRole("link", { name: "#2", exact: true }).click();
    await page.getByText("A staff member (nurse)").waitFor();
    await page.getByText("asked by [staff member] <script>alert(1)</script>").waitFor();
    const list = page.locator("section[aria-labelledby=rv]");
    await list.getByLabel("Select #3").check();
    await list.getByRole("button", { name: "Exclude", exact: true }).click();
    await page.getByText("Enter why these events are excluded.").waitFor();
    await list.getByLabel("Select #3").check();
    await list.getByLabel(/^Reason/).fill("Of somebody else.");
    await list.getByRole("button", { name: "Exclude", exact: true }).click();
    await page.getByText("0 included, 1 excluded, 2 to decide").waitFor();
    // What has a text to read is left out, and opened next.
    await list.getByRole("button", { name: "Include 1 with nothing to read" }).click();
    await page.getByText("1 included, 1 excluded, 1 to decide").waitFor();
    await list.getByRole("link", { name: "Next undecided" }).click();
    await page.getByRole("heading", { name: "#2", exact: true }).waitFor();
    await page.getByRole("button", { name: "Include and next" }).click();
    await page.getByText("2 included, 1 excluded, 0 to decide").waitFor();

    await step(page, here, "Send to review");
    await step(page, here, "Approve");
    await page.getByRole("navigation", { name: "Case" }).getByRole("link", { name: "Package", exact: true }).click();
    await page.getByRole("button", { name: "Build package" }).click();
    await reloadUntil(page, () => page.getByText("Ready", { exact: true }));
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download" }).click()]);
    mkdirSync(OUT, { recursive: true });
    const saved = join(OUT, `package-${scripts}.zip`);
    await file.saveAs(saved);
    const checked = check(saved, "usr_4821", "usr_9000", excluded);
    assert.equal(checked.status, 0, checked.stdout + checked.stderr);
    assert.equal(check(saved, "p-20931").status, 1, "the check finds what is there");

    await page.getByLabel("Password (optional)").fill("a long password");
    const [locked] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download" }).click()]);
    const lockedPath = join(OUT, `package-${scripts}-locked.zip`);
    await locked.saveAs(lockedPath);
    assert.equal(check(lockedPath).status, 2, "it has a password");

    await step(page, here, "Mark as delivered", (form) => form.getByLabel("Sent by").selectOption({ label: "E-mail" }));
    await page.getByRole("navigation", { name: "Case" }).getByRole("link", { name: "Response", exact: true }).click();
    await page.getByText(/^Answered on/).waitFor();
    await page.goto(`${server.url}/app/o/${organisation}/cases/register`);
    await page.getByRole("row").filter({ hasText: "DSAR-" }).getByText("Answered").first().waitFor();

    if (!scripts) return;
    // As if 30 days had gone by.
    await server.stop();
    const sql = "import sqlite3,sys; db=sqlite3.connect(sys.argv[1]); db.execute('UPDATE case_packages SET expires_at_ms = 1'); db.commit(); db.close()";
    const done = spawnSync("python3", ["-c", sql, join(server.data, "control.db")], { encoding: "utf8" });
    assert.equal(done.status, 0, done.stderr);
    server = await serve({ dir: server.dir });
    await page.context().clearCookies();
    await submitPassword(page, server, people.privacy_officer);
    await page.goto(`${server.url}${new URL(here).pathname}/package`);
    await page.getByText("Expired and deleted").waitFor();
    assert.equal(await page.getByRole("button", { name: "Download" }).count(), 0);
    const manifest = await page.getByRole("link", { name: "Manifest" }).getAttribute("href");
    assert.match(await (await page.request.get(`${server.url}${manifest}`)).text(), /sealog\.disclosure\.v1/);
  });
}
