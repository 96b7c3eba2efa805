// Helpers for tests of the console in a real browser, against a running whence:
//
//   go run . --pace 30                                    # slow enough to stop an answer
//   WHENCE_URL=http://127.0.0.1:8080 npm test             # here, after npm ci
//
// CHROMIUM is the browser's executable; the default is chromium on PATH.

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe } from 'node:test';
import { chromium } from 'playwright-core';
import { executable, flags } from './chromium.mjs';

export const base = process.env.WHENCE_URL;
export const story = 'Tell me a long story about a fox in the harbor.';

// inBrowser describes tests. Each test has its own page in at.page, opened at the chat, or, if opened
// is false, opened by the test with at.open. A test fails if its page logs an error to its console,
// throws, loses a request or contacts another host.
export function inBrowser(name, define, { opened = true } = {}) {
  describe(name, { skip: !base && 'WHENCE_URL is not set' }, () => {
    const at = {};
    let browser, context, complaints = [];

    before(async () => {
      browser = await chromium.launch({ executablePath: executable(), args: flags });
    });
    after(() => browser?.close());

    // open opens a page with these context options, in place of the page that was open.
    at.open = async (options = {}) => {
      await context?.close();
      context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: 'light', ...options });
      at.page = await context.newPage();
      at.page.setDefaultTimeout(20_000);
      const found = (complaints = []);
      at.page.on('pageerror', (err) => found.push(String(err)));
      at.page.on('console', (message) => {
        // Chromium reports refused requests, which some tests provoke, as console errors.
        const expected = /^Failed to load resource.*status of 4\d\d/.test(message.text()) && message.location().url.includes('/v1/');
        if (['error', 'warning'].includes(message.type()) && !expected) found.push(message.text());
      });
      at.page.on('requestfailed', (request) => {
        // A closing page aborts its polls and its answers.
        if (!new URL(request.url()).pathname.startsWith('/v1/')) found.push(`failed: ${request.url()}`);
      });
      at.page.on('request', (request) => {
        if (new URL(request.url()).origin !== new URL(base).origin) found.push(`left the host: ${request.url()}`);
      });
      await at.page.goto(base);
      await at.page.waitForFunction(() => document.getElementById('model').value !== '');
    };
    if (opened) beforeEach(() => at.open());
    afterEach(async () => {
      await context?.close();
      context = undefined;
      assert.deepEqual(complaints, []);
    });

    at.lastTurn = () => at.page.locator('.turn').last();
    at.answer = () => at.lastTurn().locator('.answer').textContent();
    at.ask = async (question) => {
      const turns = await at.page.locator('.turn').count();
      await at.page.locator('#prompt').fill(question);
      await at.page.locator('#prompt').press('Enter');
      await at.page.locator('.turn').nth(turns).waitFor();
    };
    at.ending = async () => {
      await at.lastTurn().locator('.ending[data-kind]').waitFor();
      return at.lastTurn().locator('.ending').textContent();
    };
    at.answerOf = (length) => at.page.waitForFunction(
      (want) => [...document.querySelectorAll('.answer')].at(-1)?.textContent.length >= want, length,
    );
    at.id = () => at.lastTurn().locator('.id:not(:empty)').textContent(); // once the stream is made
    // asked returns the next request that makes a stream.
    at.asked = () => at.page.waitForRequest((request) => request.method() === 'POST' && request.url().endsWith('/v1/streams'));
    // answers makes the server answer with these deltas.
    at.answers = async (...deltas) => {
      const event = (name, data, i) => `id: e.${i + 1}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
      const body = [...deltas.map((text) => ['delta', { text }]), ['ending', { reason: 'completed', finish: 'stop', path: ['engine'] }]].map(([name, data], i) => event(name, data, i)).join('');
      await at.page.route('**/v1/streams', (route) => (route.request().method() === 'POST' ? route.fulfill({ status: 201, json: { id: 'scripted' } }) : route.fallback()));
      await at.page.route('**/v1/streams/scripted/events', (route) => route.fulfill({ contentType: 'text/event-stream', body }));
    };
    // fits checks that nothing is wider than the page.
    at.fits = async (when) => {
      const outside = await at.page.evaluate(() => [
        ...(document.documentElement.scrollWidth > innerWidth ? ['the page itself'] : []),
        ...[...document.querySelectorAll('.bar > *, .panel *, .log *, .composer *, .page *')]
          .filter((node) => node.getClientRects().length > 0 && node.getBoundingClientRect().right > innerWidth + 0.5)
          .map((node) => node.id || node.getAttribute('class') || node.tagName),
      ]);
      assert.deepEqual(outside, [], when);
    };
    define(at);
  });
}
