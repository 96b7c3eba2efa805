// Tests of clients/js in a real browser, on a page of another origin than the service.
// jsclient_test.go starts them.
//
// CLIENT_PAGE is a page whose origin has the client under /client/. CUT_URL is a proxy in front of
// a whence that cuts connections.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { chromium } from 'playwright-core';
import { executable, flags } from './chromium.mjs';

const { CLIENT_PAGE: address, CUT_URL: cutting } = process.env;
const request = { model: 'whence-tiny', temperature: 0, messages: [{ role: 'user', content: 'Tell me a long story about a fox in the harbor.' }] };

describe('the client', { skip: !address && 'CLIENT_PAGE is not set', timeout: 120_000 }, () => {
  let browser, page;

  before(async () => {
    browser = await chromium.launch({ executablePath: executable(), args: flags });
    page = await browser.newPage();
    await page.goto(address);
  });
  after(() => browser?.close());

  test('a stream that is cut many times has the text and the ending of an undisturbed stream', async () => {
    const [cut, whole] = await page.evaluate(async ([baseURL, request]) => {
      const { Whence } = await import('/client/index.js');
      const whence = new Whence({ baseURL });
      const read = async () => {
        const stream = await whence.stream(request);
        return { text: await stream.text(), ending: stream.ending };
      };
      return [await read(), await read()]; // the second stream is not cut
    }, [cutting, request]);
    assert.deepEqual(cut, whole);
    assert.ok(whole.text.length > 500);
    assert.equal(whole.ending.reason, 'completed');
  });

  test('stop and abort', async () => {
    const got = await page.evaluate(async ([baseURL, request]) => {
      const { Whence, WhenceError } = await import('/client/index.js');
      const whence = new Whence({ baseURL });
      const stream = await whence.stream(request);
      const stopped = await (async () => {
        for await (const event of stream) if (event.type === 'delta') await stream.stop();
      })().catch((err) => [err instanceof WhenceError, err.reason, err.ending.origin]);
      const leaving = new AbortController();
      const left = await whence.stream({ ...request, leave: 'cancel' }, { signal: leaving.signal });
      const aborted = await (async () => {
        for await (const _ of left) leaving.abort();
      })().catch((err) => err.name);
      while ((await (await fetch(`${baseURL}/v1/streams/${left.id}`)).json()).state !== 'ended'); // otherwise a reader has reconnected
      const late = await whence.resume(left.id, { token: left.token }).text().catch((err) => err.reason);
      return { stopped, aborted, late };
    }, [cutting, request]);
    assert.deepEqual(got, { stopped: [true, 'user_stop', 'client'], aborted: 'AbortError', late: 'client_gone' });
  });
});
