// Runs many tabs of reader.html, each with its own stream, on commands from lastmile_test.go.
// Commands and answers are lines of JSON on standard input and output. CHROMIUM is the browser's
// executable.
//
//   {"do":"open","url":…,"requests":[…]}   a tab for each request; answered when each has text to show
//   {"do":"reload"}                        all tabs
//   {"do":"finish"}                        answered with what each tab has seen, when all are over

import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';
import { executable, flags } from './chromium.mjs';

const browser = await chromium.launch({ executablePath: executable(), args: flags });
let tabs = [];

// each is Promise.all over the tabs. Each tab has its own context, because a context has only six
// connections per service.
const each = (run) => Promise.all(tabs.map(run));

const commands = {
  async open({ url, requests }) {
    tabs = await Promise.all(requests.map(async () => (await browser.newContext()).newPage()));
    await each((page) => page.goto(url));
    await each((page, i) => page.evaluate((request) => window.begin(request), requests[i]));
    await each((page) => page.waitForFunction(() => window.seen.text.length > 20));
    return each((page) => page.evaluate(() => window.seen));
  },
  async reload() {
    await each((page) => page.reload());
    return [];
  },
  async finish() {
    await each((page) => page.waitForFunction(() => window.seen?.over || window.seen?.gaveUp, undefined, { timeout: 90_000 }));
    const seen = await each((page) => page.evaluate(() => ({ ...window.seen, shown: document.getElementById('text').textContent })));
    await each((page) => page.context().close());
    tabs = [];
    return seen;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  try {
    console.log(JSON.stringify({ tabs: await commands[command.do](command) }));
  } catch (err) {
    console.log(JSON.stringify({ error: String(err) }));
  }
}
await browser.close();
