// Tests of the delivery reports of clients/js: DIRECT_URL is a service, COLLECTING_URL an nginx in
// front of it that buffers, PASSING_URL an nginx that does not. collect_test.go starts them.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Whence } from '../../clients/js/src/index.js';

const { DIRECT_URL: direct, COLLECTING_URL: collecting, PASSING_URL: passing } = process.env;
const request = { model: 'whence-tiny', temperature: 0, max_tokens: 60, messages: [{ role: 'user', content: 'Tell me a long story about a fox in the harbor.' }] };

// delivery reads a stream through a URL, and returns the verdict on its delivery in its story.
async function delivery(baseURL, report = true) {
  const stream = await new Whence({ baseURL, report }).stream(request);
  await stream.text();
  for (let tries = 0; tries < (report ? 200 : 10); tries++) {
    const { delivery: told } = await (await fetch(`${direct}/v1/streams/${stream.id}`)).json();
    if (told) return told;
    await new Promise((done) => setTimeout(done, 20));
  }
  return undefined;
}

describe('reports', { skip: !direct && 'DIRECT_URL is not set' }, () => {
  test('a buffering nginx is named, another nginx is not, and gaps alone name no proxy', { timeout: 60_000 }, async () => {
    const without = await delivery(direct);
    assert.deepEqual([without.verdict, without.proxy], ['flowing', undefined], JSON.stringify(without));
    const bad = await delivery(collecting);
    assert.equal(bad.verdict, 'buffered', JSON.stringify(bad));
    assert.match(bad.proxy, /^nginx/);
    assert.ok(bad.seen.events === bad.sent.events && bad.seen.bursts * 4 <= bad.sent.bursts, JSON.stringify(bad));
    const good = await delivery(passing);
    assert.equal(good.verdict, 'flowing', JSON.stringify(good));
    assert.match(good.proxy, /^nginx/);
    assert.ok(Math.abs(good.seen.bursts - without.seen.bursts) <= without.seen.bursts / 4, JSON.stringify([good, without]));
  });

  test('without the option there is no report', { timeout: 60_000 }, async () => {
    assert.equal(await delivery(direct, false), undefined);
  });
});
