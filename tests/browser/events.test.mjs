// The list of events: what its filters show is what was looked for.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { eventually, journey, launch, signedIn } from "./browser.mjs";
import { serve } from "./server.mjs";

let server, browser, place, cookies;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  place = await server.organisation();
  for (let number = 1; number <= 4; number += 1) await server.send(place.live, { action: "user.login", actor_id: `usr_${number}` });
  cookies = await signedIn(browser, server, place.people.developer);
}, { timeout: 300_000 });
after(async () => { await browser?.close(); await server?.stop(); });

for (const scripts of [true, false]) {
  journey(`a filter stays in its field while it holds, and no longer${scripts ? "" : ", without JavaScript"}`, () => browser, { scripts }, async (page, { context }) => {
    await context.addCookies(cookies);
    await page.goto(`${server.url}/app/p/${place.project}/live/events`);
    const actor = page.getByRole("textbox", { name: "Actor" });
    const shows = async (rows, typed) => {
      await eventually(`${rows} rows`, async () => await page.getByRole("rowheader").count() === rows);
      assert.equal(await actor.inputValue(), typed);
    };
    const filter = page.getByRole("button", { name: "Filter" });
    // From the keyboard the field keeps the focus, with the button it does not.
    for (const submit of [() => actor.press("Enter"), () => filter.click()]) {
      await actor.fill("usr_2");
      await submit();
      await shows(1, "usr_2");
      await actor.fill("");
      await submit();
      await shows(4, "");
    }
    await actor.fill("usr_3");
    await actor.press("Enter");
    await shows(1, "usr_3");
    await page.getByRole("link", { name: "Remove the filter actor_id" }).click();
    await shows(4, "");
  });
}
