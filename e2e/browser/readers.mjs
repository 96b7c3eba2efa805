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

// A context has six connections per service, of which a tab uses one. A context for each tab would be a
// window for each, which costs Chromium several processes.
const tabsPerContext = 5;

// each is Promise.all over the tabs.
const each = (run) => Promise.all(tabs.map(run));

const commands = {
  async open({ url, requests }) {
    const contexts = await Promise.all(requests.filter((_, i) => i % tabsPerContext === 0).map(() => browser.newContext()));
    tabs = await Promise.all(requests.map((_, i) => contexts[Math.floor(i / tabsPerContext)].newPage()));
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
    await Promise.all(browser.contexts().map((context) => context.close()));
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
