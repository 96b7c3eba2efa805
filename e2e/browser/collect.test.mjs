// Tests of the console behind a buffering nginx at COLLECTING_URL: see collect_test.go.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chromium } from 'playwright-core';
import { executable, flags } from './chromium.mjs';

const base = process.env.COLLECTING_URL;

test('the console names a proxy that collects tokens', { skip: !base && 'COLLECTING_URL is not set', timeout: 60_000 }, async () => {
  const browser = await chromium.launch({ executablePath: executable(), args: flags });
  try {
    const page = await browser.newPage();
    await page.goto(base);
    await page.waitForFunction(() => document.getElementById('model').value !== '');
    await page.locator('#prompt').fill('What happens when I close the tab?');
    await page.locator('#prompt').press('Enter');
    const line = page.locator('.turn .delivery');
    await line.waitFor();
    const said = /A proxy between browser and api-service \(nginx\/[\d.]+\) collects tokens: \d+ events, sent in \d+ bursts, arrived in \d+\. proxy_buffering off/;
    assert.match(await line.textContent(), said);
    await page.getByRole('link', { name: 'Timeline and hops' }).click();
    await page.locator('table.hops').waitFor();
    assert.match(await page.locator('#page .delivery').textContent(), said);
  } finally {
    await browser.close();
  }
});
