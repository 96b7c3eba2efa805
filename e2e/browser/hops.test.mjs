// The page of a stream: lanes of hops without a record, and the gaps of each hop.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { base, inBrowser } from './console.mjs';

const pace = (longest) => ({ first_ms: 5, p50_ms: 20, p95_ms: 30, longest_ms: longest });
const hop = (name, received, sent, more = {}) => ({
  hop: name, state: 'ended', reason: 'completed', path: ['engine', 'llm-worker/a', 'chat-service'], began: '2026-01-02T03:04:05Z', took_ms: 900, tokens_in: 9, tokens_out: 9,
  stop_heard_ms: null, stop_confirmed_ms: null, received_pace: pace(received), sent_pace: pace(sent), ...more,
});
const story = {
  id: 'killed', state: 'ended', reason: 'completed', origin: 'engine', tokens: { prompt: 3, generated: 9, delivered: 9, wasted: 0 },
  hops: [
    hop('api-service', 400, 401),
    hop('chat-service', 45, 400, {
      moves: [{ from: 'llm-worker/b', to: 'llm-worker/a', reason: 'peer_lost', at_ms: 300, tokens: 4 }],
      events: [
        { at_ms: 1, kind: 'send_header', side: 'down' }, { at_ms: 2, kind: 'recv_header', side: 'down', path: ['llm-worker/b'] },
        { at_ms: 300, kind: 'recv_rst', side: 'down', code: 'LOST', reason: 'peer_lost', path: ['llm-worker/b'] },
      ],
    }),
    hop('llm-worker/a', 40, 41),
  ],
};

inBrowser('the page of a stream', (at) => {
  for (const [width, colorScheme] of [[320, 'dark'], [1024, 'light']]) {
    test(`shows the dead worker and the slow hop at ${width} pixels`, async () => {
      await at.open({ viewport: { width, height: 700 }, colorScheme });
      await at.page.route('**/v1/streams/killed', (route) => route.fulfill({ json: story }));
      await at.page.goto(`${base}/#/streams/killed`);
      await at.page.locator('.life.gone').waitFor();
      assert.deepEqual(await at.page.locator('.canvas .hop:visible').allTextContents(), ['api-service', 'chat-service', 'llm-worker/b', 'llm-worker/a']);
      assert.match(await at.page.locator('table.hops').textContent(), /llm-worker\/bno record.*peer_lost; known from the record of chat-service only/);
      assert.match(await at.page.locator('.slowest').textContent(), /longest gap between tokens was 401 ms; chat-service added 355 ms/);
    });
  }

  test('a stream that has run here has gaps on every hop', async () => {
    await at.ask('Count to 100.');
    await at.ending();
    await at.page.goto(`${base}/#/streams/${await at.id()}`);
    const rows = at.page.locator('table.pace tbody tr');
    await rows.first().waitFor();
    for (const text of await rows.allTextContents()) assert.ok(!text.includes('–'), text);
    assert.equal(await rows.count(), 3);
  });
});
