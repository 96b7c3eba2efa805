// The page of a stream: lanes of hops without a record, and the gaps of each hop.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { base, inBrowser } from './console.mjs';
import { killed } from './fixtures.mjs';

inBrowser('the page of a stream', (at) => {
  for (const [width, colorScheme] of [[320, 'dark'], [1024, 'light']]) {
    test(`shows the dead worker and the slow hop at ${width} pixels`, async () => {
      await at.open({ viewport: { width, height: 700 }, colorScheme });
      await at.page.route('**/v1/streams/killed', (route) => route.fulfill({ json: killed }));
      await at.page.goto(`${base}/#/streams/killed`);
      await at.page.locator('.life.gone').waitFor();
      assert.deepEqual(await at.page.locator('.canvas .hop:visible').allTextContents(), ['api-service', 'chat-service', 'llm-worker/b', 'llm-worker/a']);
      assert.match(await at.page.locator('table.hops').textContent(), /llm-worker\/bno record.*peer_lost; known from the record of chat-service only/);
      assert.equal(await at.page.locator('#page .moves').textContent(),
        'Moved from llm-worker/b to llm-worker/a after 300 ms and 4 tokens: the worker was lost; nothing was lost, and the longest gap between tokens was 401 ms.');
      await at.page.getByText('Events', { exact: true }).click();
      assert.match(await at.page.locator('table.events').textContent(), /chat-service300 msrecv_rstdownLOST {2}peer_lost {2}llm-worker\/b/);
      assert.match(await at.page.locator('.slowest').textContent(), /longest gap between tokens was 401 ms; chat-service added 355 ms/);
    });
  }

  test('a stream can be compared with another one, on one scale', async () => {
    await at.open({ viewport: { width: 1280, height: 800 } });
    const longer = { ...killed, id: 'longer', hops: killed.hops.map((hop) => ({ ...hop, took_ms: 1800 })) };
    await at.page.route('**/v1/streams/killed', (route) => route.fulfill({ json: killed }));
    await at.page.route('**/v1/streams/longer', (route) => route.fulfill({ json: longer }));
    await at.page.goto(`${base}/#/streams/killed`);
    await at.page.getByLabel('Compare with').fill('longer');
    await at.page.getByRole('button', { name: 'Compare' }).click();
    assert.equal(new URL(at.page.url()).hash, '#/streams/killed?with=longer');
    await at.page.locator('.life').nth(7).waitFor();
    const [a, b] = await at.page.locator('.sides section').all();
    const scale = (side) => side.locator('.axis').allTextContents();
    const width = (side) => side.locator('.life').first().getAttribute('width').then(Number);
    assert.deepEqual(await scale(a), await scale(b));
    assert.ok(Math.abs(await width(b) / await width(a) - 2) < 0.05, 'the lanes have different scales');
    assert.equal(await at.page.locator('table.pace tbody tr').count(), 3);
    await at.page.getByRole('link', { name: 'longer' }).click();
    await at.page.getByRole('heading', { name: 'Hops' }).waitFor();
  });

  test('a stream that has run here has gaps on every hop', async () => {
    await at.ask('What is Whence?');
    await at.ending();
    await at.page.goto(`${base}/#/streams/${await at.id()}`);
    const rows = at.page.locator('table.pace tbody tr');
    await rows.first().waitFor();
    for (const text of await rows.allTextContents()) assert.ok(!text.includes('–'), text);
    assert.equal(await rows.count(), 3);
  });
});
