// What the page shows, in Chromium: each view without a message or a request, the numbers of the JSON view,
// search, zoom, keys, the address, both themes at two widths.
"use strict";
const assert = require("node:assert");
const fs = require("node:fs");
const { chromium } = require("playwright-core");

const folder = process.argv[2];
const file = `file://${folder}/page.html`;
const json = JSON.parse(fs.readFileSync(`${folder}/view.json`, "utf8"));

async function open(browser, options) {
  const page = await browser.newPage(options);
  page.on("console", (message) => assert.fail(`console: ${message.text()}`));
  page.on("pageerror", (error) => assert.fail(`error: ${error.message}`));
  page.on("request", (request) => assert.ok(request.url().startsWith("file:"), request.url()));
  return page;
}

const show = async (page, hash) => {
  await page.goto("about:blank");
  await page.goto(`${file}#${hash}`);
  await page.locator("#view > *").first().waitFor();
};

const cell = (row, number) => row.locator("td").nth(number).innerText();

async function tree(page) {
  await show(page, "view=top-down");
  const heads = await page.locator("thead th").allInnerTexts();
  for (const metric of ["work", "idleness", "overhead"]) {
    const at = heads.findIndex((head) => head === metric || head === `${metric} new`);
    const roots = page.locator("tbody tr[aria-level='1']");
    let sum = 0;
    for (let row = 0; row < await roots.count(); row++) sum += Number(await cell(roots.nth(row), at));
    assert.ok(Math.abs(sum - json.totals[metric]) <= 0.0006 * await roots.count(), `${metric}: ${sum}`);
  }
  const first = page.locator("tbody tr").first();
  const rows = await page.locator("tbody tr").count();
  await first.focus();
  await page.keyboard.press("ArrowLeft");
  assert.equal(await first.getAttribute("aria-expanded"), "false");
  assert.ok(await page.locator("tbody tr").count() < rows, "a row folds");
  await page.keyboard.press("ArrowRight");
  assert.equal(await first.getAttribute("aria-expanded"), "true");
}

async function icicle(page) {
  await show(page, "view=icicle");
  const canvas = page.locator("canvas");
  await canvas.focus();
  for (const key of ["ArrowDown", "ArrowDown", "ArrowDown"]) await page.keyboard.press(key);
  const name = await page.locator("#detail strong").innerText();
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash.includes("focus="));
  assert.equal(await page.locator("#detail strong").innerText(), name, "zoomed to what was chosen");
  const address = await page.evaluate(() => location.hash.slice(1));
  await show(page, address);
  assert.equal(await page.locator("#detail strong").innerText(), name, "the address leads there");
  await page.goBack();
}

async function timeline(page) {
  await show(page, "view=timeline");
  const canvas = page.locator("canvas");
  const said = () => page.locator("#detail").innerText();
  assert.match(await said(), /threads in \d+\.\d+ s/);
  const box = await canvas.boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + 30);
  assert.match(await said(), /^n_working and idle threads at \d.* works \d.* · idle \d/);
  await canvas.focus();
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash.includes("track="));
  assert.ok((await canvas.boundingBox()).height > box.height, "a track unfolds");
  await page.keyboard.press("+");
  await page.waitForFunction(() => location.hash.includes("from=0.25"));
  const address = await page.evaluate(() => location.hash.slice(1));
  const picture = await canvas.screenshot();
  await show(page, address);
  assert.ok(picture.equals(await page.locator("canvas").screenshot()), "the address leads there");
  await canvas.focus();
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !location.hash.includes("from="));
}

async function search(page) {
  const most = (a, b) => (b.exclusive.work > a.exclusive.work ? b : a);
  const { name } = json.nodes.filter((node) => node.kind === "procedure").reduce(most);
  await show(page, "view=top-down");
  await page.keyboard.press("/");
  await page.keyboard.type(name);
  await page.waitForFunction((name) => new URLSearchParams(location.hash.slice(1)).get("search") === name, name);
  await page.waitForTimeout(200);
  assert.match(await page.locator("#found").innerText(), /^[1-9][\d,]* contexts, \d+\.\d % of effort$/);
  assert.ok(await page.locator("tr.found").count() > 0, "what is found is marked");
}

(async () => {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
  const page = await open(browser, { viewport: { width: 1280, height: 800 } });
  await show(page, "");
  const tabs = await page.locator("#tabs button").allInnerTexts();
  for (const tab of tabs) {
    await page.locator("#tabs button", { hasText: new RegExp(`^${tab}$`) }).click();
    await page.locator("#tabs button[aria-selected='true']", { hasText: tab }).waitFor();
    assert.ok((await page.locator("#view").innerText()).length > 10, `${tab} shows something`);
  }
  await tree(page);
  await icicle(page);
  if (tabs.includes("Timeline")) await timeline(page);
  await search(page);
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1280, 2560]) {
      const other = await open(browser, { colorScheme, viewport: { width, height: 900 } });
      for (const view of ["icicle", ...tabs.includes("Timeline") ? ["timeline"] : []]) {
        await show(other, `view=${view}`);
        await other.screenshot({ path: `${folder}/${view}-${colorScheme}-${width}.png` });
      }
      await other.close();
    }
  }
  await browser.close();
  console.log(`page: ${tabs.length} views as they should be`);
})();
