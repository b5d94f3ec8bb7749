// What every page is looked at for, of the dashboard and of the console: accessible in both themes, on paper, on a narrow screen, without
// JavaScript, within its policy, and small.
import assert from "node:assert/strict";
import { COLOURS, EVERYTHING, hasNoBarriers } from "./barriers.mjs";
import { journey } from "./browser.mjs";

const FIRST_VIEW_BYTES_MAX = 100_000;
const NARROW = 320;
const PHONE = 375;
/// As high as a thumb is wide, less the rounding of a browser.
const TARGET = 43.5;
/// A4 without the margins of the stylesheet, in pixels of 1/96 inch.
const PAPER = 673;
/// The same where the stylesheet turns the sheet, of the letter format, which is the shorter one.
const WIDE_PAPER = 979;

/// `open` goes to a page as somebody, and says what is wrong with the answer.
export function walk(entries, { browser, title, open }) {
  for (const entry of entries) {
    // One load serves for all of it: what changes the look is a switch of the browser, and the page is the same.
    journey(`${title(entry)}: no barriers in either theme, a small first view, and fit for paper`, browser, {}, async (page, one) => {
      const answers = [];
      one.context.on("response", (response) => answers.push(response));
      await open(entry, one);
      await page.waitForLoadState("load");
      await isSmall(answers);
      for (const [colorScheme, rules] of [["light", EVERYTHING], ["dark", COLOURS]]) {
        await page.emulateMedia({ colorScheme });
        assert.equal(await page.evaluate((wanted) => matchMedia(`(prefers-color-scheme: ${wanted})`).matches, colorScheme), true);
        await hasNoBarriers(page, rules);
      }
      await fitsPhone(page);
      await fitsPaper(page);
    });

    journey(`${title(entry)}: reads without JavaScript and fits a narrow screen`, browser, { scripts: false, narrow: true, kept: true }, async (page, one) => {
      await open(entry, one);
      const width = await page.evaluate(() => document.scrollingElement.scrollWidth);
      assert.ok(width <= NARROW, `it is ${width} wide and must be scrolled sideways`);
      await fitsPhone(page);
    });
  }
}

/// What only a form or a query opens is looked at where its journey meets it.
export async function isForEverybody(page, { scripts }) {
  // axe-core waits for timers, which a page without JavaScript does not have.
  const looks = scripts ? [["light", EVERYTHING], ["dark", COLOURS]] : [];
  for (const [colorScheme, rules] of looks) {
    await page.emulateMedia({ colorScheme });
    await hasNoBarriers(page, rules);
  }
  await page.emulateMedia({ colorScheme: null });
  await fitsPhone(page);
}

/// As it comes over the wire for the first time: the page, its stylesheet, its scripts. What events arrive later is not part of it, and has no end.
async function isSmall(answers) {
  const ended = answers.filter((answer) => !answer.headers()["content-type"]?.startsWith("text/event-stream"));
  const sizes = await Promise.all(ended.map(async (answer) => (await answer.request().sizes()).responseBodySize));
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  assert.ok(ended.some((answer) => answer.url().endsWith("/app.css")), "the stylesheet is counted");
  assert.ok(bytes > 1000 && bytes < FIRST_VIEW_BYTES_MAX, `${bytes} bytes`);
}

/// Nothing is behind the edge of a phone but what a shadow announces, and a thumb hits what there is to press.
export async function fitsPhone(page) {
  const before = page.viewportSize();
  await page.setViewportSize({ width: PHONE, height: before.height });
  const found = await page.evaluate(([width, target]) => {
    const name = (element) => `${element.tagName}.${element.getAttribute("class")}: ${element.textContent.trim().slice(0, 40)}`;
    const shown = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.closest(".vh, .skip, svg, [popover]:not(:popover-open)");
    const inside = ({ left, right }) => left >= -1 && right <= width + 1;
    const announces = (element) => {
      const { overflowX, backgroundAttachment } = getComputedStyle(element);
      return ["auto", "scroll"].includes(overflowX) && backgroundAttachment.includes("local") && inside(element.getBoundingClientRect());
    };
    const isAnnounced = (element) => {
      for (let at = element.parentElement; at; at = at.parentElement) if (announces(at)) return true;
      return false;
    };
    const all = [...document.body.querySelectorAll("*")].filter(shown);
    const pressed = "main :is(button, select, textarea, summary, a.btn, .tabs a, .seg a, .cards a), main input:not([type=hidden], [type=checkbox], [type=radio]), .topbar button, .sheet :is(a, button)";
    return {
      behind: all.filter((element) => !inside(element.getBoundingClientRect()) && !isAnnounced(element)).map(name),
      low: all.filter((element) => element.matches(pressed) && element.getBoundingClientRect().height < target).map(name),
    };
  }, [PHONE, TARGET]);
  await page.setViewportSize(before);
  assert.deepEqual(found, { behind: [], low: [] }, "on a phone");
}

/// On paper there is the content, whole, in dark on white, and nothing to press.
async function fitsPaper(page) {
  await page.emulateMedia({ media: "print", colorScheme: "dark" });
  const wide = await page.evaluate(() => {
    const shown = (element) => element.checkVisibility({ visibilityProperty: true });
    const dark = (colour) => colour.match(/\d+/g).slice(0, 3).every((part) => Number(part) < 100);
    return {
      // Of a letter, the letter alone.
      content: [...document.querySelectorAll("main h1, main article.letter")].filter(shown).length,
      navigation: [...document.querySelectorAll("nav, header.rail, .btn, .skip")].filter(shown).map((element) => element.outerHTML.slice(0, 80)),
      dark: dark(getComputedStyle(document.body).color),
    };
  });
  assert.deepEqual(wide, { content: 1, navigation: [], dark: true });
  const before = page.viewportSize();
  const width = await page.evaluate(() => getComputedStyle(document.body).page) === "wide" ? WIDE_PAPER : PAPER;
  await page.setViewportSize({ width, height: before.height });
  // What scrolls on a screen is cut off on paper.
  const cut = await page.evaluate((width) => [document.scrollingElement, ...document.querySelectorAll("main *")]
    .filter((element) => element.checkVisibility() && !element.closest(".vh, svg, input, select, textarea"))
    .filter((element) => element === document.scrollingElement
      ? element.scrollWidth > width
      : getComputedStyle(element).overflowX !== "visible" && element.scrollWidth > element.clientWidth + 1)
    .map((element) => `${element.tagName}.${element.className}: ${element.scrollWidth} of ${element.clientWidth}`), width);
  assert.deepEqual(cut, [], "cut off on paper");
}
