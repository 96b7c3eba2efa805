// Tests of the browser's own EventSource, against a running whence, through a proxy that cuts
// connections. See chat.test.mjs.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { chromium } from 'playwright-core';
import { executable, flags } from './chromium.mjs';
import { cutter } from '../cutter.mjs';

const base = process.env.WHENCE_URL;

describe('EventSource', { skip: !base && 'WHENCE_URL is not set' }, () => {
  let browser;
  before(async () => {
    browser = await chromium.launch({ executablePath: executable(), args: flags });
  });
  after(() => browser?.close());

  test('a reader that is cut three times has every byte once, and does not reconnect after the end', { timeout: 60_000 }, async () => {
    const proxy = await cutter(base, { times: 3, bytes: 800 });
    try {
      const page = await browser.newPage();
      const asked = [];
      page.on('response', (response) => response.url().includes('/events') && asked.push(response.status()));
      await page.goto(proxy.url);
      const got = await page.evaluate(async () => {
        const body = JSON.stringify({
          model: 'whence-tiny', temperature: 0, max_tokens: 200, messages: [{ role: 'user', content: 'Tell me a long story about a fox in the harbor.' }],
        });
        const post = async (path) => (await fetch(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body })).json();
        const { choices: [{ message }] } = await post('/v1/chat/completions');
        const { events, read_token: token } = await post('/v1/streams');
        const seen = { want: message.content, text: '', ids: [], names: [], opened: 0 };
        const source = new EventSource(`${events}?token=${token}`);
        source.addEventListener('open', () => { seen.opened++; });
        for (const name of ['delta', 'usage', 'ending', 'error']) {
          source.addEventListener(name, ({ data, lastEventId }) => {
            if (data === undefined) return; // an error of the connection, not of the stream
            seen.ids.push(lastEventId);
            if (name === 'delta') seen.text += JSON.parse(data).text;
            else seen.names.push(name);
          });
        }
        await new Promise((resolve) => {
          const timer = setInterval(() => {
            if (source.readyState !== EventSource.CLOSED) return;
            clearInterval(timer);
            resolve();
          }, 20);
        });
        return seen;
      });
      assert.equal(got.text, got.want);
      assert.ok(got.text.length > 300, `only ${got.text.length} characters`);
      assert.equal(new Set(got.ids).size, got.ids.length, 'an event was repeated');
      assert.deepEqual(got.names, ['usage', 'ending']);
      assert.equal(proxy.cuts, 3);
      assert.equal(got.opened, 4);
      assert.deepEqual(asked, [200, 200, 200, 200, 204]);
    } finally {
      await proxy.close();
    }
  });
});
