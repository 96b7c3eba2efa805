// The console's chat.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { base, inBrowser, story } from './console.mjs';

const completed = /^completed · (stop|length) · \d+ tokens · TTFT \d+ ms( · [\d.]+ tok\/s)?$/;

inBrowser('the chat', (at) => {
  test('the page loads under its content security policy', async () => {
    const response = await at.page.goto(base);
    assert.match(response.headers()['content-security-policy'] ?? '', /default-src 'none'/);
    assert.match(response.headers()['content-type'], /^text\/html/);
    assert.equal(await at.page.title(), 'Whence');
    assert.ok((await at.page.locator('#examples button').count()) >= 4);
    const favicon = await at.page.request.get(new URL('/assets/favicon.svg', base).href);
    assert.equal(favicon.status(), 200);
    assert.match(favicon.headers()['content-type'], /^image\/svg\+xml/);
  });

  test('unchanged files are not sent twice', async () => {
    const first = await at.page.request.get(new URL('/assets/app.js', base).href);
    const tag = first.headers().etag;
    assert.ok(tag, 'no ETag');
    const second = await at.page.request.get(new URL('/assets/app.js', base).href, { headers: { 'If-None-Match': tag } });
    assert.equal(second.status(), 304);
  });

  test('an example streams an answer and shows that it is complete', async () => {
    const example = at.page.locator('#examples button').first();
    const question = await example.textContent();
    await example.click();
    await at.answerOf(1);
    assert.equal(await at.lastTurn().locator('.answer').getAttribute('aria-busy'), 'true', 'the text is shown before its end');
    const early = (await at.answer()).length;
    assert.match(await at.ending(), completed);
    assert.ok((await at.answer()).length > early, 'the text did not grow');
    assert.equal(await at.lastTurn().locator('.question').textContent(), question);
    assert.equal(await at.lastTurn().locator('.answer').getAttribute('aria-busy'), null);
    assert.ok(await at.lastTurn().locator('.id').textContent(), 'no stream id');
    assert.ok((await at.page.locator('#announcer').textContent()).includes('completed'), 'the ending was not announced');
  });

  test('the curl line sends the same request', async () => {
    await at.ask("What's Whence?");
    await at.ending();
    const command = await at.page.locator('#curl').textContent();
    const output = execFileSync('sh', ['-c', `${command} -s --max-time 20`], { encoding: 'utf8' });
    assert.match(output, /^data: \{/);
    assert.match(output, /data: \[DONE\]\s*$/);
  });

  test('the curl lines of the other APIs are answered', async () => {
    await at.ask('What is Whence?');
    await at.ending();
    for (const [api, last] of [['Responses', /^event: response\.completed$/m], ['Messages', /^event: message_stop$/m]]) {
      await at.page.getByLabel('API', { exact: true }).selectOption(api);
      const command = await at.page.locator('#curl').textContent();
      assert.match(execFileSync('sh', ['-c', `${command} -s --max-time 20`], { encoding: 'utf8' }), last);
    }
  });

  test('Stop ends the answer, and the next message is answered', async () => {
    await at.page.getByRole('button', { name: story }).click();
    await at.answerOf(40);
    await at.page.getByRole('button', { name: 'Stop', exact: true }).click();
    assert.equal(await at.ending(), 'stopped by you');
    const text = await at.answer();
    await at.ask('What is Whence?');
    assert.match(await at.ending(), completed);
    assert.equal(await at.page.locator('.turn').first().locator('.answer').textContent(), text, 'the stopped answer has grown');
  });

  // delivered returns the text of a stream, from its log, without the white space.
  const bare = (text) => text.replaceAll(/\s/g, '');
  const delivered = (events) => bare([...events.matchAll(/^event: delta\ndata: (.*)$/gm)].map(([, data]) => JSON.parse(data).text).join(''));

  test('an answer goes on after a reload, in another chat and in a second tab, and a stop from there is told as that', async () => {
    const grows = async (page = at.page) => {
      await page.locator('.answer').last().waitFor();
      const length = await page.evaluate(() => document.querySelector('.answer').textContent.length);
      await page.waitForFunction((least) => document.querySelector('.answer')?.textContent.length > least, length);
    };
    await at.ask(story);
    await at.answerOf(20);
    const id = await at.id();
    const address = at.page.url();
    await at.page.reload();
    await grows();
    await at.page.locator('#beside .lanes .mark.resumed').waitFor({ state: 'attached' });
    await at.page.getByRole('button', { name: 'New chat' }).click();
    assert.equal(await at.page.locator('.turn').count(), 0);
    await at.page.getByRole('link', { name: story }).click();
    await grows();
    const tab = await at.page.context().newPage();
    await tab.goto(address);
    await grows(tab);
    await tab.getByRole('button', { name: 'Stop', exact: true }).click();
    await tab.locator('.ending[data-kind=stopped]').waitFor();
    assert.match(await at.ending(), /^ended: user_stop — a request from 127\.0\.0\.1 asked for the stream to stop/);
    const events = await (await at.page.request.get(`${base}/v1/streams/${id}/events`)).text();
    assert.equal(bare(await at.answer()), delivered(events), 'text was lost or repeated');
    assert.equal(bare(await tab.locator('.answer').textContent()), delivered(events), 'the second tab has another text');
  });

  test('a broken connection is resumed', async () => {
    let events;
    await at.page.route(/\/events\?/, async (route) => {
      const response = await route.fetch();
      events = await response.text();
      await route.fulfill({ response, body: events.slice(0, events.length / 2) });
    }, { times: 1 });
    await at.page.locator('#examples button').first().click();
    await at.page.getByText('connection broken, resuming (2)…').waitFor();
    assert.match(await at.ending(), /^completed .* · resumed once$/);
    assert.equal(bare(await at.answer()), delivered(events));
  });

  test('a refusal shows its message and the field, and restores the question', async () => {
    await at.page.getByLabel('Temperature').fill('9');
    await at.ask('What is Whence?');
    assert.match(await at.ending(), /^refused: 400 .*temperature/);
    assert.equal(await at.page.locator('#prompt').inputValue(), 'What is Whence?');
    await at.page.getByLabel('Temperature').fill('0');
    await at.page.getByLabel('Max tokens').fill('5');
    await at.page.locator('#prompt').press('Enter');
    await at.page.locator('.turn').nth(1).waitFor();
    assert.match(await at.ending(), /^completed · length · 5 tokens/);
  });

  test('earlier turns are sent until a new chat begins', async () => {
    const sent = [];
    at.page.on('request', (request) => request.method() === 'POST' && request.url().endsWith('/v1/streams') && sent.push(request.postDataJSON()));
    await at.page.getByText('System prompt').click();
    await at.page.getByRole('textbox', { name: 'System prompt' }).fill('You are a helpful assistant.');
    await at.page.getByLabel('Seed').fill('7');
    await at.ask('What is the capital of Spain?');
    await at.ending();
    const first = await at.answer();
    await at.ask('What is 2 + 3?');
    await at.ending();
    await at.page.getByRole('button', { name: 'New chat' }).click();
    assert.equal(await at.page.locator('.turn').count(), 0);
    await at.ask('What is Whence?');
    await at.ending();
    assert.deepEqual(sent.map(({ messages }) => messages.map(({ role }) => role).join(' ')), [
      'system user', 'system user assistant user', 'system user',
    ]);
    assert.equal(sent[1].messages[2].content, first);
    assert.equal(sent[0].seed, 7);
    assert.equal(sent[0].temperature, 0);
    assert.ok(!('max_tokens' in sent[0]), 'an empty field was sent');
  });

  test('the chat works with the keyboard alone', async () => {
    assert.equal(await at.page.evaluate(() => document.activeElement.id), 'prompt');
    await at.page.keyboard.type('one');
    await at.page.keyboard.press('Shift+Enter');
    await at.page.keyboard.type('two');
    assert.equal(await at.page.locator('#prompt').inputValue(), 'one\ntwo');
    assert.equal(await at.page.locator('.turn').count(), 0, 'Shift+Enter sent the message');
    await at.page.keyboard.press('ControlOrMeta+A');
    await at.page.keyboard.type(story);
    await at.page.keyboard.press('Enter');
    await at.answerOf(20);
    await at.page.keyboard.press('Escape');
    assert.equal(await at.ending(), 'stopped by you');
    assert.equal(await at.page.evaluate(() => document.activeElement.id), 'prompt');
    await at.page.keyboard.type('What is Whence?');
    await at.page.keyboard.press('Tab');
    assert.equal(await at.page.evaluate(() => document.activeElement.id), 'send');
    await at.page.keyboard.press('Enter');
    await at.page.locator('.turn').nth(1).waitFor();
    assert.match(await at.ending(), completed);
  });

  test('every control has a name and a visible focus', async () => {
    for (let i = 0; i < 12; i++) {
      await at.page.keyboard.press('Tab');
      const focus = await at.page.evaluate(() => {
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
      if (focus.what === 'BODY') continue;
      assert.ok(focus.name, `${focus.what} has no name`);
      assert.ok(focus.ring, `${focus.what} does not show the focus`);
    }
  });

  test('the page does not scroll while the reader has scrolled up, and one button returns to the end', async () => {
    await at.open({ viewport: { width: 1280, height: 420 } });
    await at.ask(story);
    const log = at.page.locator('#log');
    const toEnd = () => log.evaluate((node) => node.scrollHeight - node.scrollTop - node.clientHeight);
    await at.page.waitForFunction(() => {
      const node = document.getElementById('log');
      return node.scrollHeight > node.clientHeight + 100;
    });
    assert.ok((await toEnd()) < 60, 'the end is not in view');
    await log.hover();
    await at.page.mouse.wheel(0, -80);
    await at.page.locator('#latest').waitFor();
    const top = await log.evaluate((node) => node.scrollTop);
    await at.answerOf((await at.answer()).length + 60);
    assert.equal(await log.evaluate((node) => node.scrollTop), top, 'the page scrolled although the reader had scrolled up');
    await at.page.locator('#latest').click();
    assert.ok((await toEnd()) < 60);
    await at.page.locator('#latest').waitFor({ state: 'hidden' });
    await at.page.keyboard.press('Escape');
    await at.ending();
    assert.ok((await toEnd()) < 60, 'the ending is not in view');
  });

  test('the theme follows the system, then the choice, also after a reload', async () => {
    const dark = () => at.page.evaluate(() => {
      const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
      return r + g + b < 384;
    });
    assert.equal(await dark(), false);
    await at.page.emulateMedia({ colorScheme: 'dark' });
    assert.equal(await dark(), true);
    const button = at.page.locator('#theme');
    assert.equal(await button.textContent(), 'Light'); // what a click gives
    await button.click();
    assert.equal(await dark(), false);
    await at.page.reload();
    assert.equal(await dark(), false);
    assert.equal(await button.textContent(), 'Dark');
    await button.click();
    assert.equal(await dark(), true);
    await at.page.emulateMedia({ colorScheme: 'light' });
    assert.equal(await dark(), false, 'the page follows the system again');
  });

  for (const width of [320, 375, 768]) {
    test(`${width} pixels are wide enough for the page`, async () => {
      await at.open({ viewport: { width, height: 667 }, hasTouch: true, isMobile: true });
      await at.fits('empty');
      await at.page.locator('#prompt').fill(`${'long'.repeat(80)}\n${'word '.repeat(80)}`);
      await at.fits('a long message');
      await at.page.locator('#prompt').fill('');
      await at.page.locator('#examples button').first().tap();
      await at.ending();
      await at.fits('answered');
      await at.page.locator('#toggle').tap();
      await at.page.locator('#model').waitFor();
      await at.fits('with the panel');
    });
  }
});
