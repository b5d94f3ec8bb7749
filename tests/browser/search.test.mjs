// The query bar of the events page.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { journey, launch, signedIn } from "./browser.mjs";
import { HAS_SEARCH } from "./pages.mjs";
import { serve } from "./server.mjs";

let server, browser, place, cookies;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  place = await server.organisation();
  for (let number = 1; number <= 9; number += 1) {
    await server.send(place.live, { action: number % 3 ? "user.login" : "document.shared", actor_id: `usr_${number}`, metadata: { method: number % 2 ? "sso" : "password" } });
  }
  cookies = await signedIn(browser, server, place.people.developer);
}, { timeout: 300_000 });
after(async () => { await browser?.close(); await server?.stop(); });

const skip = HAS_SEARCH ? false : "there is no query bar yet";
for (const scripts of [true, false]) {
  journey(`search, narrow, and correct a search${scripts ? "" : ", without JavaScript"}`, () => browser, { scripts, skip }, async (page, { context }) => {
    await context.addCookies(cookies);
    await page.goto(`${server.url}/app/p/${place.project}/live/events`);
    const bar = page.getByRole("searchbox", { name: "Search" }).or(page.getByRole("combobox", { name: "Search" }));
    const shows = async (query, actors) => {
      await bar.fill(query);
      await bar.press("Enter");
      // Rows of the list before may be those of this one.
      await page.waitForURL((url) => url.searchParams.get("q") === query);
      for (const actor of actors) await page.getByRole("link", { name: actor, exact: true }).waitFor();
      assert.equal(await page.getByRole("rowheader").count(), actors.length, query);
      assert.equal(await bar.inputValue(), query, "what was typed stays");
    };
    await shows("actor:usr_3", ["usr_3"]);
    await shows("action:document.* -actor:usr_3", ["usr_6", "usr_9"]);
    await shows("meta.method:password action:user.login", ["usr_2", "usr_4", "usr_8"]);

    await bar.fill("severity:>=nonsense");
    await bar.press("Enter");
    await page.locator("#e-q").waitFor();
    assert.equal(await bar.inputValue(), "severity:>=nonsense");
  });
}
