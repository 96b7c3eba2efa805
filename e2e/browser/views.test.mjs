// Tests of the views beside the chat, and of the streams that the chat shows.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { base, inBrowser, story } from './console.mjs';

inBrowser('the views', (at) => {
  const press = (name) => at.page.getByRole('button', { name, exact: true });

  // stopped requests a story, stops it, and returns the stream's id.
  const stopped = async () => {
    await at.ask(story);
    await at.answerOf(40);
    await press('Stop').click();
    await at.ending();
    await at.lastTurn().locator('.told .path').waitFor();
    return at.id();
  };

  // fail creates a stream that its deadline ends. Its body has no regular end, so it cannot be read to one.
  const fail = async (id) => {
    const response = await fetch(`${base}/v1/chat/completions`, {
      method: 'POST', headers: { 'Content-Type': 'application/json', 'X-Request-Id': id, 'X-Request-Timeout': '0.3' },
      body: JSON.stringify({ model: await at.page.locator('#model').inputValue(), stream: true, messages: [{ role: 'user', content: story }] }),
    });
    await assert.rejects(response.text());
  };

  const lanes = () => at.page.locator('.canvas .hop:visible').allTextContents();
  const all = ['client', 'api-service', 'chat-service', 'llm-worker/0'];

  // confirmed is like stopped, but the engine has confirmed the stop. On a busy machine a stop may
  // take longer than its grace: the calls are then reset, and confirmed stops another story.
  const confirmed = async () => {
    for (let attempt = 0; attempt < 5; attempt++) {
      const id = await stopped();
      const { hops: [first] } = await (await at.page.request.get(`${base}/v1/streams/${id}`)).json();
      if (first.stop_confirmed_ms !== null) return id;
    }
    return assert.fail('the grace of five stops has passed without a confirmation');
  };

  test('a stop is a DELETE, and its reader sees the path and the time until the engine stopped', async () => {
    const deleted = [];
    at.page.on('request', (request) => request.method() === 'DELETE' && deleted.push(new URL(request.url()).pathname));
    const id = await confirmed();
    assert.equal(deleted.at(-1), `/v1/streams/${id}`);
    assert.deepEqual(await at.lastTurn().locator('.path .stop').allTextContents(), all);
    assert.match(await at.lastTurn().locator('.told').textContent(), /user_stop; the engine had stopped after [\d.]+ ms; (no|\d+) tokens? wasted/);
  });

  test('the picture grows while the stream runs, and shows every hop', async () => {
    await at.ask(story);
    await at.page.waitForFunction(() => document.querySelectorAll('#beside .hop').length === 4);
    const early = (await at.page.locator('#beside .ticks').first().getAttribute('d')).length;
    await at.page.waitForFunction((length) => document.querySelector('#beside .ticks').getAttribute('d').length > length, early);
    assert.deepEqual(await lanes(), all);
    assert.ok(await press('Ending').isDisabled(), 'a running stream has no ending');
    assert.match(await at.page.locator('#beside .numbers').textContent(), /TTFT\d+ ms.*p50[\d.]+ ms/);
    await press('Stop').click();
    await at.ending();
    await press('Ending').click();
    assert.equal(await press('Ending').getAttribute('aria-pressed'), 'true');
    assert.equal(await at.page.locator('#beside .lanes .mark.heard').count(), 4, 'not every hop received the stop');
    assert.equal(await at.page.locator('#beside .thread').count(), 2);
  });

  test('a stream has a page, with or without events of the browser itself', async () => {
    const id = await stopped();
    await at.lastTurn().getByRole('link', { name: 'Timeline and hops' }).click();
    assert.equal(new URL(at.page.url()).hash, `#/streams/${id}`);
    await at.page.locator('table.hops').waitFor();
    assert.deepEqual(await lanes(), all);
    assert.match(await at.page.title(), /^Stream/);
    await at.page.reload();
    await at.page.locator('table.hops').waitFor();
    assert.deepEqual(await lanes(), all.slice(1), 'the events of another page are unknown here');
    assert.deepEqual(await at.page.locator('table.hops th[scope=row]').allTextContents(), all.slice(1));
    assert.match(await at.page.locator('table.hops').textContent(), /user_stop: client > api-service > chat-service > llm-worker\/0/);
    const json = await at.page.getByRole('link', { name: 'As JSON' }).getAttribute('href');
    assert.equal((await (await at.page.request.get(new URL(json, base).href)).json()).id, id);
  });

  test('a running stream can be stopped from its page', async () => {
    await at.ask(story);
    await at.answerOf(10);
    const id = await at.id();
    await at.lastTurn().getByRole('link', { name: 'Timeline and hops' }).click();
    await at.page.locator('#page').getByRole('button', { name: 'Stop' }).click();
    await at.page.locator('.told .chip', { hasText: 'user_stop' }).waitFor();
    assert.ok(await at.page.locator('#page').getByRole('button', { name: 'Stop' }).isHidden());
    await at.page.getByRole('link', { name: 'Chat' }).click();
    assert.match(await at.ending(), /^ended: user_stop/, `${id} was not stopped by this reader`);
  });

  test('an unknown stream is reported as unknown', async () => {
    await at.page.goto(`${base}/#/streams/nobody`);
    await at.page.getByText('No hop knows this stream').waitFor();
    await at.page.goto(`${base}/#/streams/%zz`);
    await at.page.getByText('The story cannot be shown').waitFor();
  });

  test('streams are listed, live and ended, and filtered by reason and hop', async () => {
    const id = await stopped();
    const failed = `failed-${id}`;
    await fail(failed);
    await at.ask(story);
    const live = await at.id();
    await at.page.getByRole('link', { name: 'Streams' }).click();
    const row = (name) => at.page.locator(`tr[data-id="${name}"]`);
    await at.page.getByLabel('Per page').selectOption('500');
    await row(live).getByText('live').waitFor();
    await row(live).getByText('llm-worker/0').waitFor();
    await row(id).getByText('user_stop').waitFor();
    await row(failed).getByText('deadline').waitFor();
    await at.page.getByRole('button', { name: /^Live \d/ }).click();
    await row(id).waitFor({ state: 'detached' });
    await row(live).getByRole('button', { name: 'Stop' }).click(); // it asks back
    await row(live).getByRole('button', { name: 'Really stop' }).click();
    await row(live).waitFor({ state: 'detached' });
    await at.page.getByRole('button', { name: /^Ended \d/ }).click();
    await row(live).getByText('user_stop').waitFor();
    assert.match(at.page.url(), /state=ended/);
    await at.page.getByRole('button', { name: /^All \d/ }).click();
    await row(id).waitFor();

    await at.page.locator('select[name=reason]').selectOption('deadline');
    await row(id).waitFor({ state: 'detached' });
    await row(failed).waitFor();
    assert.equal(await row(live).count(), 0, 'a running stream has no reason');
    assert.match(new URL(at.page.url()).hash, /reason=deadline/);
    await at.page.reload();
    await row(failed).waitFor();
    assert.equal(await row(id).count(), 0, 'the URL lost the filter');

    await at.page.locator('select[name=reason]').selectOption('');
    await at.page.getByLabel('Hop in its path').selectOption('client');
    await row(failed).waitFor({ state: 'detached' }); // its path has no client
    await row(id).waitFor();
    await at.page.locator('select[name=worker]').selectOption('llm-worker/0');
    await row(id).waitFor();
    assert.match(new URL(at.page.url()).hash, /worker=llm-worker%2F0/);
    await at.page.goto(`${base}/#/streams?worker=nobody`);
    await at.page.getByText('No stream matches these filters.').waitFor();
    await at.page.goto(`${base}/#/streams?hop=client&limit=500`);
    await row(id).waitFor();
    await at.page.getByLabel('Search').fill(`deadline ${failed}`);
    await at.page.locator('select[name=hop]').selectOption('');
    await row(failed).waitFor();
    assert.match(new URL(at.page.url()).hash, /search=deadline/);
    await row(id).waitFor({ state: 'detached' });
    await at.page.getByLabel('Search').fill(id);
    await row(id).getByRole('link').click();
    await at.page.locator('table.hops').waitFor();
  });

  test('the list of ended streams has pages and an order, which the address names', async () => {
    const ended = Array.from({ length: 60 }, (_, i) => ({
      id: `s${String(i).padStart(2, '0')}`, state: 'ended', reason: 'completed', origin: 'engine', tokens: { delivered: i },
      hops: [{ hop: 'api-service', began: new Date(Date.UTC(2026, 0, 2, 3, 4, i)).toISOString(), took_ms: 100 - i, peer: 'h:1' }],
    }));
    await at.page.route('**/v1/streams?state=ended**', (route) => route.fulfill({ json: { streams: ended } }));
    await at.page.goto(`${base}/#/streams?state=ended&sort=took&order=ascending&page=2`);
    await at.page.getByText('Page 2 of 3').waitFor();
    const first = () => at.page.locator('.streams tr[data-id^="s"]').first().getAttribute('data-id');
    assert.equal(await first(), 's34');
    await at.page.getByRole('button', { name: 'Next page' }).press('Enter');
    await at.page.getByText('Page 3 of 3').waitFor();
    assert.ok(await at.page.getByRole('button', { name: 'Next page' }).isDisabled());
    assert.match(at.page.url(), /page=3/);
    await at.page.locator('select[name=sort]').selectOption('tokens');
    await at.page.getByText('Page 1 of 3').waitFor();
    assert.equal(await first(), 's00');
  });

  test('workers show their state', async () => {
    await at.page.getByRole('link', { name: 'Workers' }).click();
    const card = at.page.locator('.card');
    await card.waitFor();
    const text = await card.textContent();
    for (const want of ['llm-worker/0', 'healthy', 'embedded', 'KV cache']) assert.ok(text.includes(want), `${want} is missing: ${text}`);
    assert.ok(Number(await card.getByRole('meter', { name: 'Running' }).getAttribute('aria-valuemax')) > 0);
    await at.page.getByText('1 of 1 worker healthy').waitFor();
  });

  test('a worker and the ending of a picture have addresses', async () => {
    const id = await stopped();
    await at.page.goto(`${base}/#/streams/${id}?part=ending`);
    await at.page.locator('#page .lanes .mark.heard').first().waitFor();
    assert.equal(await press('Ending').last().getAttribute('aria-pressed'), 'true');
    await at.page.locator('#page').getByRole('button', { name: 'Whole' }).press('Enter');
    assert.equal(new URL(at.page.url()).hash, `#/streams/${id}`);
    await at.page.locator('#page').getByRole('button', { name: 'Ending' }).press('Enter');
    assert.equal(new URL(at.page.url()).hash, `#/streams/${id}?part=ending`);

    await at.page.goto(`${base}/#/overview`);
    await at.page.locator('.card').getByRole('link', { name: 'llm-worker/0' }).press('Enter');
    await at.page.locator('.card[aria-current]').getByText('llm-worker/0').waitFor();
    assert.equal(new URL(at.page.url()).hash, '#/workers/llm-worker%2F0');
    const link = at.page.locator('.card').getByRole('link', { name: 'llm-worker/0' });
    await link.focus();
    await at.page.waitForResponse((response) => response.url().endsWith('/v1/workers'));
    await at.page.waitForResponse((response) => response.url().endsWith('/v1/workers')); // the first answer is on the page
    assert.ok(await link.evaluate((node) => node === document.activeElement), 'a poll has moved the focus');
    await at.page.goto(`${base}/#/workers/nobody`);
    await at.page.getByText('There is no worker nobody.').waitFor();
  });

  test('a lost worker and a lost server have different messages', async () => {
    await at.page.route('**/v1/workers', (route) => route.fulfill({ json: { workers: [{ name: '', target: 'h:1', state: 'down', message: '<b>nobody</b> listens', streams: 0 }] } }));
    await at.page.getByRole('link', { name: 'Workers' }).click();
    await at.page.getByText('<b>nobody</b> listens').waitFor(); // as text
    await at.page.unroute('**/v1/workers');
    await at.page.route('**/v1/workers', (route) => route.fulfill({ status: 429, json: { error: { message: 'later', code: 'rate_limit_exceeded', whence: { reason: 'overloaded' } } } }));
    await at.page.getByText('The workers cannot be listed: later.').waitFor();
  });

  test('the key is sent with every request and to no other place', async () => {
    const sent = [];
    at.page.on('request', (request) => request.url().includes('/v1/') && sent.push(request.headers().authorization));
    await at.page.getByText('API key', { exact: true }).click();
    await at.page.locator('#key').fill('secret-1');
    await stopped();
    assert.ok(sent.length > 3 && sent.every((header) => header === 'Bearer secret-1'), String(sent));
    const curl = await at.page.locator('#curl').textContent();
    assert.ok(curl.includes('$WHENCE_KEY') && !curl.includes('secret-1'), curl);
    assert.ok(!(await at.page.evaluate(() => JSON.stringify([localStorage, location.href]))).includes('secret-1'));
  });

  test('a page that is refused asks for a key, polls no more until it has one, and keeps it over a reload', async () => {
    const refused = [];
    await at.page.route('**/v1/**', (route) => {
      const request = route.request();
      if (request.headers().authorization === 'Bearer secret-1') return route.fallback();
      refused.push(`${request.method()} ${new URL(request.url()).pathname}`);
      return route.fulfill({ status: 401, json: { error: { message: 'a key is missing', whence: { reason: 'unauthenticated', path: ['api-service'] } } } });
    });
    await at.page.reload();
    const field = () => at.page.getByLabel('API key, or the operator’s key').filter({ visible: true });
    await at.page.getByText('No model to talk to: a key is missing').waitFor();
    assert.equal(await field().count(), 1);
    for (const [name, heading] of [['Overview', 'Endings'], ['Streams', 'Streams'], ['Workers', 'Workers']]) {
      await at.page.getByRole('link', { name, exact: true }).click();
      await at.page.getByRole('heading', { name: heading, exact: true }).first().waitFor();
      await field().waitFor();
    }
    await field().fill('wrong');
    const again = at.page.waitForResponse((response) => response.url().endsWith('/v1/workers') && response.status() === 401);
    await at.page.getByRole('button', { name: 'Use this key' }).filter({ visible: true }).click();
    await again;
    await field().fill('secret-1');
    await at.page.getByRole('button', { name: 'Use this key' }).filter({ visible: true }).click();
    await at.page.locator('.card').first().waitFor();
    assert.equal(await field().count(), 0);
    // Each page asked once for each of its lists and key: this one had two keys.
    assert.equal(refused.filter((asked) => asked === 'GET /v1/workers').length, 3, String(refused));
    await at.page.reload();
    await at.page.locator('.card').first().waitFor();
  });

  test('sampling and stop strings reach the request, and the curl line is complete', async () => {
    const sent = at.page.waitForRequest((request) => request.method() === 'POST');
    await at.page.getByLabel('Top p').fill('0.9');
    await at.page.getByText('Stop strings', { exact: true }).click();
    await at.page.getByLabel('Stop strings').fill('17\n\nStop, please');
    await at.ask('Count to 100.');
    await at.ending();
    const { top_p: topP, stop } = (await sent).postDataJSON();
    assert.deepEqual([topP, stop], [0.9, ['17', 'Stop, please']]);
    assert.ok(!(await at.answer()).includes('17'));
    assert.equal(await at.page.locator('#curl').evaluate((node) => getComputedStyle(node).whiteSpace), 'pre-wrap');
  });

  test('the keyboard reaches everything', async () => {
    // reach presses Tab until the element with this name has the focus.
    const reach = async (name) => {
      for (let i = 0; i < 60; i++) {
        await at.page.keyboard.press('Tab');
        const focused = await at.page.evaluate(() => document.activeElement.ariaLabel || document.activeElement.labels?.[0]?.firstChild.textContent || document.activeElement.textContent.trim());
        if (focused === name) return;
      }
      assert.fail(`Tab never reaches ${name}`);
    };
    await at.page.keyboard.type(story);
    await at.page.keyboard.press('Enter');
    await at.answerOf(20);
    await at.page.keyboard.press('Escape');
    await at.ending();
    const id = await at.id();
    await at.lastTurn().locator('.told .path').waitFor();
    await reach('Ending');
    await at.page.keyboard.press('Enter');
    assert.equal(await press('Ending').getAttribute('aria-pressed'), 'true');
    await reach('Streams');
    await at.page.keyboard.press('Enter');
    assert.equal(await at.page.evaluate(() => document.activeElement.textContent), 'Streams', 'the heading has no focus');
    await reach('Reason');
    await at.page.keyboard.type('user_stop');
    await at.page.waitForURL(/reason=user_stop/);
    await at.page.locator(`tr[data-id="${id}"]`).waitFor();
    await reach(id);
    await at.page.waitForResponse((response) => response.url().includes('state=ended')); // a poll must not move the focus
    assert.equal(await at.page.evaluate(() => document.activeElement.textContent), id);
    await at.page.keyboard.press('Enter');
    await at.page.locator('table.hops').waitFor();
    await at.page.locator('#skip').focus();
    await at.page.keyboard.press('Enter');
    assert.equal(await at.page.evaluate(() => document.activeElement.tagName), 'H2');
    assert.equal(new URL(at.page.url()).hash, `#/streams/${id}`, 'the skip link left the view');
  });

  for (const [width, colorScheme] of [[320, 'light'], [375, 'dark'], [375, 'light'], [1280, 'dark']]) {
    test(`everything fits into ${width} pixels, ${colorScheme}`, async () => {
      await at.open({ viewport: { width, height: 740 }, colorScheme, hasTouch: width < 1000, isMobile: width < 1000 });
      const id = await stopped();
      await at.fits('a stopped answer with its picture');
      await fail(`narrow-${id}`);
      for (const [hash, there] of [[`#/streams/${id}`, 'table.hops'], ['#/streams', '.streams'], ['#/workers', '.card']]) {
        await at.page.goto(`${base}/${hash}`);
        await at.page.locator(there).first().waitFor();
        await at.fits(hash);
      }
    });
  }
});
