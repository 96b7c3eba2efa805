// Writes a picture of the console, with an answer that its reader has stopped: node picture.mjs FILE. WHENCE_URL is the
// address of a running whence that is slow enough to stop an answer.

import { chromium } from 'playwright-core';
import { executable, flags } from './chromium.mjs';
import { base, story } from './console.mjs';

const browser = await chromium.launch({ executablePath: executable(), args: flags });
try {
  const page = await browser.newPage({ viewport: { width: 1220, height: 690 }, colorScheme: 'light' });
  await page.goto(base);
  await page.waitForFunction(() => document.getElementById('model').value !== '');
  await page.getByLabel('Temperature').fill('0');
  await page.locator('#prompt').fill(story);
  await page.locator('#prompt').press('Enter');
  await page.waitForFunction(() => [...document.querySelectorAll('.answer')].at(-1)?.textContent.length >= 400);
  await page.keyboard.press('Escape');
  await page.locator('.turn').last().locator('.ending[data-kind]').waitFor();
  await page.getByRole('button', { name: 'Ending' }).click();
  await page.waitForTimeout(1000); // the records of the hops below
  await page.screenshot({ path: process.argv[2] });
} finally {
  await browser.close();
}
