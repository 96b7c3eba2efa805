// The overview: rates, latencies, endings, workers.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { base, inBrowser } from './console.mjs';

inBrowser('the overview', (at) => {
  for (const [width, colorScheme] of [[320, 'dark'], [768, 'light'], [1024, 'dark'], [2560, 'light']]) {
    test(`shows what has run, at ${width} pixels, ${colorScheme}`, async () => {
      await at.open({ viewport: { width, height: 720 }, colorScheme });
      await at.ask('What is Whence?');
      await at.ending();
      await at.page.getByRole('link', { name: 'Overview' }).press('Enter');
      await at.page.locator('.endings').getByText('completed').waitFor();
      for (const name of ['Streams ended per second', 'Tokens delivered per second', 'Time to the first token', 'Gaps between tokens']) {
        const plot = at.page.getByRole('img', { name });
        await plot.waitFor();
        assert.match(await plot.getAttribute('aria-label'), /\d/, `${name} has no value`);
        assert.ok((await plot.locator('.line').count()) > 0, `${name} has no line`);
      }
      assert.match(await at.page.locator('.numbers:visible').textContent(), /TTFT p50[\d.]+ m?s.*Gap p95[\d.]+ m?s/);
      await at.page.locator('.card').getByText('llm-worker/0').waitFor();
      await at.fits('the overview');
    });
  }

  test('an ending links to its streams, and the address has the time span', async () => {
    await at.ask('What is Whence?');
    await at.ending();
    await at.page.goto(`${base}/#/overview?minutes=60`);
    assert.equal(await at.page.locator('select[name=minutes]').inputValue(), '60');
    await at.page.locator('select[name=minutes]').selectOption('1');
    assert.match(at.page.url(), /minutes=1$/);
    await at.page.locator('.endings a').filter({ hasText: 'completed' }).first().click();
    await at.page.locator('.streams .chip').filter({ hasText: 'completed' }).first().waitFor();
    assert.match(at.page.url(), /#\/streams\?reason=completed$/);
  });

  test('without the right to list workers the streams are still shown', async () => {
    await at.page.route('**/v1/workers', (route) => route.fulfill({ status: 403, json: { error: { message: 'only an operator lists workers', whence: { reason: 'forbidden' } } } }));
    await at.page.goto(`${base}/#/overview`);
    await at.page.getByText('The workers cannot be listed: only an operator lists workers.').waitFor();
    await at.page.getByRole('img', { name: 'Streams ended per second' }).waitFor();
  });
});
