// Events hold what their senders like. No page runs it, breaks under it, or lets it look like something else.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { journey, launch, signedIn, visitor } from "./browser.mjs";
import { PAGES, address, furnish, title } from "./pages.mjs";
import { ROLES, serve } from "./server.mjs";

const SCRIPT = `"><script>window.pwned=1;alert(1)</script><img src=x onerror="window.pwned=1"><b data-pwned>`;
const BACKWARDS = "usr_\u202enimda\u2066\u200b";
const FORMULA = `=HYPERLINK("http://192.0.2.1/","click")`;

const WIDE = { width: 1280, height: 900 };
const NARROW = { width: 320, height: 640 };

let server, browser;
const places = [];
const cookies = {};

before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  const place = { ...await server.organisation(SCRIPT), action: `${SCRIPT}.done` };
  await server.operator(`/tenants/${place.organisation}/actions`, { action: place.action, category: SCRIPT, severity: SCRIPT, description: SCRIPT });
  const send = async (event) => {
    await server.send(place.test, event);
    places.push({ ...place, log_id: await server.send(place.live, event) });
  };
  await send({ action: place.action, actor_id: SCRIPT, resource: `${SCRIPT.slice(0, 100)}/1`, metadata: { [SCRIPT]: SCRIPT, __proto__x: { constructor: 1 } }, session_id: SCRIPT.slice(0, 100), actor_type: SCRIPT.slice(0, 100) });
  await send({ action: "user.login", actor_id: BACKWARDS, resource: `${BACKWARDS}/1`, metadata: { text: BACKWARDS } });
  await send({ action: "user.login", actor_id: FORMULA, resource: `+${FORMULA}`, metadata: { cell: FORMULA, "-1": "@SUM(1)" } });
  await send({ action: "user.login", actor_id: "m".repeat(255), resource: "W".repeat(255), metadata: { [`${"k".repeat(500)}`]: "v".repeat(500) } });
  // What JSON.stringify does not write: half a surrogate pair, a NUL, a key twice, numbers that no double holds.
  await send(String.raw`{"action":"user.login","actor_id":"","metadata":{"half":"\ud800","nul":"\u0000","a":1,"a":1e999,"deep":${"[".repeat(500)}${"]".repeat(500)}}}`);
  await send({ action: "user.login", actor_id: "large", metadata: { large: `<i>${"x\n".repeat(60_000)}` } });
  for (const role of ROLES) cookies[role] = await signedIn(browser, server, place.people[role]);
  const owner = await visitor(browser, { scripts: false, cookies: cookies.owner });
  const furnished = { ...place, actor: SCRIPT };
  await furnish(owner.page, server.url, furnished);
  for (const known of places) Object.assign(known, { case: furnished.case, found: furnished.found });
  await owner.context.close();
}, { timeout: 300_000 });

after(async () => { await browser?.close(); await server?.stop(); });

for (const entry of PAGES.filter((page) => page.events)) {
  journey(`${title(entry)} shows hostile events as text, also on a narrow screen`, () => browser, { kept: true }, async (page, { context }) => {
    await context.addCookies(cookies[entry.as]);
    const shown = entry.route.includes("{log_id}") ? places : places.slice(0, 1);
    for (const place of shown) {
      await page.setViewportSize(WIDE);
      const response = await page.goto(server.url + address(entry, place));
      assert.equal(response.status(), entry.status ?? 200);
      await page.getByRole("heading", { level: 1 }).waitFor();
      for (const size of [WIDE, NARROW]) {
        await page.setViewportSize(size);
        const seen = await page.evaluate(() => {
          // The exact text that was hashed, and the command with it, stand there as they are, each in a box of its own.
          for (const exact of document.querySelectorAll("pre[aria-labelledby=l-text], pre[aria-labelledby=l-line]")) exact.remove();
          return {
            ran: "pwned" in window,
            injected: document.querySelectorAll("[data-pwned], main img, main script, main iframe").length,
            hidden: /[\u202a-\u202e\u2066-\u2069\u200b]/.test(document.body.innerText),
            width: document.scrollingElement.scrollWidth - innerWidth,
          };
        });
        assert.deepEqual(seen, { ran: false, injected: 0, hidden: false, width: 0 });
      }
    }
  });
}

// Letters of a right-to-left script are no marks: they stay, and the text that was hashed is read in the order of its bytes.
const LETTERS = "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627";

for (const scripts of [true, false]) {
  journey(`letters from right to left do not turn the text that was hashed${scripts ? "" : ", without JavaScript"}`, () => browser, { scripts }, async (page, { context }) => {
    await context.addCookies(cookies.owner);
    const { project, live } = places[0];
    const log_id = await server.send(live, { action: "user.login", actor_id: LETTERS, resource: `${LETTERS}/1`, metadata: { [LETTERS]: LETTERS, amount: 12 } });
    for (const size of [WIDE, NARROW]) {
      await page.setViewportSize(size);
      await page.goto(`${server.url}/app/p/${project}/live/events/${log_id}`);
      const read = await page.evaluate(() => {
        for (const details of document.querySelectorAll("details")) details.open = true;
        const box = document.querySelector("pre[aria-labelledby=l-text]");
        const texts = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
        const [turned, seen] = [[], []];
        let last = null;
        while (texts.nextNode()) {
          const node = texts.currentNode;
          for (let at = 0; at < node.length; at += 1) {
            const range = document.createRange();
            range.setStart(node, at);
            range.setEnd(node, at + 1);
            const { left, top, width } = range.getBoundingClientRect();
            if (width === 0) continue;
            seen.push(node.data[at]);
            // A new line begins at the left again.
            if (last && Math.abs(top - last.top) < 4 && left < last.left) turned.push(`${node.data.slice(Math.max(0, at - 5), at + 1)} at ${at}`);
            last = { left, top };
          }
        }
        return { turned, text: seen.join("") };
      });
      assert.deepEqual(read.turned, [], "each letter stands behind the one before it");
      assert.ok(read.text.includes(LETTERS), "the letters are looked at");
    }
  });
}
