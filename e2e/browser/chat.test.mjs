// The page at "/" in a real browser, against a running whence:
//
//   go run . --pace 30                                    # slow enough to stop an answer
//   WHENCE_URL=http://127.0.0.1:8080 npm test             # here, after npm ci
//
// CHROMIUM is the browser's executable; without it chromium is looked up on PATH.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { chromium } from 'playwright-core';

const base = process.env.WHENCE_URL;
const story = 'Tell me a long story about a fox in the harbor.';
const completed = /^completed · (stop|length) · \d+ tokens · TTFT \d+ ms( · [\d.]+ tok\/s)?$/;
const flags = [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];

function executable() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  for (const name of ['chromium', 'chromium-browser', 'google-chrome']) {
    try {
      return execFileSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).trim();
    } catch {
      // not this one
    }
  }
  throw new Error('no chromium on PATH: set CHROMIUM to its executable');
}

describe('the page', { skip: !base && 'WHENCE_URL is not set' }, () => {
  let browser, context, page, complaints;

  before(async () => {
    browser = await chromium.launch({ executablePath: executable(), args: flags });
  });
  after(() => browser?.close());

  // open replaces the page by one with these context options.
  async function open(options = {}) {
    await context?.close();
    context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: 'light', ...options });
    page = await context.newPage();
    page.setDefaultTimeout(20_000);
    complaints = [];
    page.on('pageerror', (err) => complaints.push(String(err)));
    page.on('console', (message) => {
      // Chromium reports refused requests, which some tests provoke, as console errors of their own.
      const expected = /^Failed to load resource.*status of 4\d\d/.test(message.text()) && message.location().url.includes('/v1/');
      if (['error', 'warning'].includes(message.type()) && !expected) complaints.push(message.text());
    });
    page.on('requestfailed', (request) => {
      if (!request.url().endsWith('/v1/chat/completions')) complaints.push(`failed: ${request.url()}`);
    });
    page.on('request', (request) => {
      if (new URL(request.url()).origin !== new URL(base).origin) complaints.push(`left the host: ${request.url()}`);
    });
    await page.goto(base);
    await page.waitForFunction(() => document.getElementById('model').value !== '');
  }
  beforeEach(() => open());
  afterEach(async () => {
    const found = complaints;
    await context.close();
    context = undefined;
    assert.deepEqual(found, []);
  });

  const lastTurn = () => page.locator('.turn').last();
  const answer = () => lastTurn().locator('.answer').textContent();
  const ask = async (question) => {
    const turns = await page.locator('.turn').count();
    await page.locator('#prompt').fill(question);
    await page.keyboard.press('Enter');
    await page.locator('.turn').nth(turns).waitFor();
  };
  const ending = async () => {
    await lastTurn().locator('.ending[data-kind]').waitFor();
    return lastTurn().locator('.ending').textContent();
  };
  const answerOf = (length) => page.waitForFunction(
    (want) => [...document.querySelectorAll('.answer')].at(-1)?.textContent.length >= want, length,
  );

  test('loads under its policy, and the policy is there', async () => {
    const response = await page.goto(base);
    assert.match(response.headers()['content-security-policy'] ?? '', /default-src 'none'/);
    assert.match(response.headers()['content-type'], /^text\/html/);
    assert.equal(await page.title(), 'Whence');
    assert.ok((await page.locator('#examples button').count()) >= 4);
    const favicon = await page.request.get(new URL('/assets/favicon.svg', base).href);
    assert.equal(favicon.status(), 200);
    assert.match(favicon.headers()['content-type'], /^image\/svg\+xml/);
  });

  test('unchanged files are not sent twice', async () => {
    const first = await page.request.get(new URL('/assets/app.js', base).href);
    const tag = first.headers().etag;
    assert.ok(tag, 'no ETag');
    const second = await page.request.get(new URL('/assets/app.js', base).href, { headers: { 'If-None-Match': tag } });
    assert.equal(second.status(), 304);
  });

  test('an example streams an answer, which says that it is complete', async () => {
    const example = page.locator('#examples button').first();
    const question = await example.textContent();
    await example.click();
    await answerOf(1);
    assert.equal(await lastTurn().locator('.answer').getAttribute('aria-busy'), 'true', 'the text is there before its end');
    const early = (await answer()).length;
    assert.match(await ending(), completed);
    assert.ok((await answer()).length > early, 'the text did not grow');
    assert.equal(await lastTurn().locator('.question').textContent(), question);
    assert.equal(await lastTurn().locator('.answer').getAttribute('aria-busy'), null);
    assert.ok(await lastTurn().locator('.id').textContent(), 'no stream id');
    assert.ok((await page.locator('#announcer').textContent()).includes('completed'), 'the ending was not announced');
  });

  test('the curl line sends the same request', async () => {
    await ask("What's Whence?");
    await ending();
    const command = await page.locator('#curl').textContent();
    const output = execFileSync('sh', ['-c', `${command} -s --max-time 20`], { encoding: 'utf8' });
    assert.match(output, /^data: \{/);
    assert.match(output, /data: \[DONE\]\s*$/);
  });

  test('Stop ends the answer, and the next message is answered', async () => {
    await page.getByRole('button', { name: story }).click();
    await answerOf(40);
    await page.getByRole('button', { name: 'Stop' }).click();
    assert.equal(await ending(), 'stopped by you');
    const text = await answer();
    await ask('What is Whence?');
    assert.match(await ending(), completed);
    assert.equal(await page.locator('.turn').first().locator('.answer').textContent(), text, 'a stopped answer grew');
  });

  test('a refusal shows its message and the field, and gives the question back', async () => {
    await page.getByLabel('Max tokens').fill('100000000');
    await ask('What is Whence?');
    assert.match(await ending(), /^refused: 400 .*max_tokens/);
    assert.equal(await page.locator('#prompt').inputValue(), 'What is Whence?');
    await page.getByLabel('Max tokens').fill('5');
    await page.locator('#prompt').press('Enter');
    await page.locator('.turn').nth(1).waitFor();
    assert.match(await ending(), /^completed · length · 5 tokens/);
  });

  test('earlier turns are sent along until a new chat', async () => {
    const sent = [];
    page.on('request', (request) => request.method() === 'POST' && sent.push(request.postDataJSON()));
    await page.locator('summary').click();
    await page.getByRole('textbox', { name: 'System prompt' }).fill('You are a helpful assistant.');
    await page.getByLabel('Seed').fill('7');
    await ask('What is the capital of Spain?');
    await ending();
    const first = await answer();
    await ask('What is 2 + 3?');
    await ending();
    await page.getByRole('button', { name: 'New chat' }).click();
    assert.equal(await page.locator('.turn').count(), 0);
    await ask('What is Whence?');
    await ending();
    assert.deepEqual(sent.map(({ messages }) => messages.map(({ role }) => role).join(' ')), [
      'system user', 'system user assistant user', 'system user',
    ]);
    assert.equal(sent[1].messages[2].content, first);
    assert.equal(sent[0].seed, 7);
    assert.equal(sent[0].temperature, 0);
    assert.ok(!('max_tokens' in sent[0]), 'an empty field was sent');
  });

  test('the keyboard is enough', async () => {
    assert.equal(await page.evaluate(() => document.activeElement.id), 'prompt');
    await page.keyboard.type('one');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('two');
    assert.equal(await page.locator('#prompt').inputValue(), 'one\ntwo');
    assert.equal(await page.locator('.turn').count(), 0, 'Shift+Enter sent the message');
    await page.keyboard.press('ControlOrMeta+A');
    await page.keyboard.type(story);
    await page.keyboard.press('Enter');
    await answerOf(20);
    await page.keyboard.press('Escape');
    assert.equal(await ending(), 'stopped by you');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'prompt');
    await page.keyboard.type('What is Whence?');
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'send');
    await page.keyboard.press('Enter');
    await page.locator('.turn').nth(1).waitFor();
    assert.match(await ending(), completed);
  });

  test('every control has a name and a visible focus', async () => {
    for (let i = 0; i < 12; i++) {
      await page.keyboard.press('Tab');
      const at = await page.evaluate(() => {
        const node = document.activeElement;
        const ring = (element) => {
          const style = getComputedStyle(element);
          return (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== 'none';
        };
        return {
          what: node.id || node.tagName,
          name: node.ariaLabel || node.labels?.[0]?.textContent || node.textContent.trim(),
          ring: ring(node) || (node.parentElement !== null && ring(node.parentElement)),
        };
      });
      if (at.what === 'BODY') continue;
      assert.ok(at.name, `${at.what} has no name`);
      assert.ok(at.ring, `${at.what} does not show the focus`);
    }
  });

  test('a reader who scrolled up is left alone, and comes back with one button', async () => {
    await open({ viewport: { width: 1280, height: 420 } });
    await ask(story);
    const log = page.locator('#log');
    const toEnd = () => log.evaluate((node) => node.scrollHeight - node.scrollTop - node.clientHeight);
    await page.waitForFunction(() => {
      const node = document.getElementById('log');
      return node.scrollHeight > node.clientHeight + 100;
    });
    assert.ok((await toEnd()) < 60, 'the end is not in view');
    await log.hover();
    await page.mouse.wheel(0, -80);
    await page.locator('#latest').waitFor();
    const top = await log.evaluate((node) => node.scrollTop);
    await answerOf((await answer()).length + 60);
    assert.equal(await log.evaluate((node) => node.scrollTop), top, 'the page moved under the reader');
    await page.locator('#latest').click();
    assert.ok((await toEnd()) < 60);
    await page.locator('#latest').waitFor({ state: 'hidden' });
    await page.keyboard.press('Escape');
    await ending();
    assert.ok((await toEnd()) < 60, 'the ending is not in view');
  });

  test('the theme follows the system, then the choice, also after a reload', async () => {
    const dark = () => page.evaluate(() => {
      const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
      return r + g + b < 384;
    });
    assert.equal(await dark(), false);
    await page.emulateMedia({ colorScheme: 'dark' });
    assert.equal(await dark(), true);
    const button = page.getByRole('button', { name: 'Dark' });
    assert.equal(await button.getAttribute('aria-pressed'), 'true');
    await button.click();
    assert.equal(await dark(), false);
    await page.reload();
    assert.equal(await dark(), false);
    assert.equal(await button.getAttribute('aria-pressed'), 'false');
    await button.click();
    assert.equal(await dark(), true);
    await page.emulateMedia({ colorScheme: 'light' });
    assert.equal(await dark(), false, 'the system is followed again');
  });

  for (const width of [320, 375, 768]) {
    test(`${width} pixels are wide enough`, async () => {
      await open({ viewport: { width, height: 667 }, hasTouch: true, isMobile: true });
      const fits = async (when) => {
        const outside = await page.evaluate(() => [
          ...(document.documentElement.scrollWidth > innerWidth ? ['the page itself'] : []),
          ...[...document.querySelectorAll('.bar > *, .panel *, .log *, .composer *')]
            .filter((node) => node.getClientRects().length > 0 && node.getBoundingClientRect().right > innerWidth + 0.5)
            .map((node) => node.id || node.className || node.tagName),
        ]);
        assert.deepEqual(outside, [], when);
      };
      await fits('empty');
      await page.locator('#prompt').fill(`${'long'.repeat(80)}\n${'word '.repeat(80)}`);
      await fits('a long message');
      await page.locator('#prompt').fill('');
      await page.locator('#examples button').first().tap();
      await ending();
      await fits('answered');
      await page.locator('#toggle').tap();
      await page.locator('#model').waitFor();
      await fits('with the panel');
    });
  }
});
