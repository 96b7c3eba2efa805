// Tests of conversations and kept streams over the browser's own WebSocket, against a running
// whence. See chat.test.mjs.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { chromium } from 'playwright-core';
import { executable, flags } from './chromium.mjs';

const base = process.env.WHENCE_URL;

describe('WebSocket', { skip: !base && 'WHENCE_URL is not set' }, () => {
  let browser;
  before(async () => {
    browser = await chromium.launch({ executablePath: executable(), args: flags });
  });
  after(() => browser?.close());

  // open opens a page of the service with the function talk, which opens a WebSocket, passes each
  // message to heard, and returns its messages and its close event.
  async function open() {
    const page = await browser.newPage();
    await page.goto(base);
    await page.evaluate(() => {
      window.talk = (path, first, heard = () => {}, protocols = ['whence.v1']) => new Promise((resolve) => {
        const seen = { text: '', turns: 0, protocol: null };
        const socket = new WebSocket(`ws://${location.host}${path}`, protocols);
        const send = (message) => socket.send(JSON.stringify(message));
        socket.onopen = () => {
          seen.protocol = socket.protocol;
          if (first) send(first);
        };
        socket.onmessage = ({ data }) => {
          const m = JSON.parse(data);
          if (m.started) seen.id = m.started.stream_id;
          if (m.delta?.text) seen.text += m.delta.text;
          if (m.event === 'delta') seen.text += m.data.text;
          if (m.turn_end) seen.turns++;
          seen.last = m;
          heard(m, send, socket, seen);
        };
        socket.onclose = ({ code, reason, wasClean }) => resolve({ ...seen, code, reason, wasClean });
      });
      window.post = async (path, body) => (await fetch(path, {
        method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ model: 'whence-tiny', temperature: 0, ...body }),
      })).json();
    });
    return page;
  }

  // story waits for the end of a stream, and returns the record of the edge.
  async function story(id) {
    for (const begun = Date.now(); Date.now() - begun < 20_000;) {
      const { hops } = await (await fetch(`${base}/v1/streams/${id}`)).json();
      if (hops?.length > 2 && hops.every((hop) => hop.state === 'ended')) return hops;
      await new Promise((resolve) => { setTimeout(resolve, 20); });
    }
    throw new Error(`${id} does not end`);
  }

  test('two turns have the answers of two requests, and the ending has a code', { timeout: 60_000 }, async () => {
    const page = await open();
    const { seen, want } = await page.evaluate(async () => {
      const ask = (content) => ({ role: 'user', content });
      const one = [ask('Tell me about a fox.')];
      const { choices: [{ message: first }] } = await window.post('/v1/chat/completions', { messages: one, max_tokens: 12 });
      const two = [...one, first, ask('And then?')];
      const { choices: [{ message: second }] } = await window.post('/v1/chat/completions', { messages: two, max_tokens: 12 });
      const seen = await window.talk(
        '/v1/converse', { chat: { model: 'whence-tiny', messages: one, sampling: { max_tokens: 12, temperature: 0 } } },
        (m, send, socket, { turns }) => {
          if (!m.turn_end) return;
          if (turns === 1) send({ turn: { messages: [ask('And then?')] } });
          else socket.send(new Uint8Array()); // no more turns
        },
        ['whence.v1', 'whence.key.eA'],
      );
      return { seen, want: first.content + second.content };
    });
    assert.equal(seen.text, want);
    assert.deepEqual([seen.turns, seen.code, seen.reason, seen.wasClean, seen.protocol], [2, 1000, 'completed', true, 'whence.v1']);
    assert.equal(seen.last.ending.reason, 'completed');
    assert.equal(seen.last.ending.path[0], 'engine');
    const [edge] = await story(seen.id);
    assert.deepEqual(edge.events.filter(({ side, kind }) => side === 'up' && /header|trailer/.test(kind)).map(({ kind, code }) => [kind, code]), [
      ['recv_header', undefined], ['send_header', '101'], ['send_trailer', '1000'],
    ]);
  });

  test('a stop in mid-answer has its reason and code', { timeout: 60_000 }, async () => {
    const page = await open();
    const seen = await page.evaluate(() => window.talk(
      '/v1/converse', { chat: { messages: [{ role: 'user', content: 'Tell me a long story.' }], sampling: { max_tokens: 500 } } },
      (m, send, socket, { text }) => { if (m.delta && text.length < 8) send({ stop: { message: 'enough' } }); },
    ));
    assert.deepEqual([seen.code, seen.reason, seen.last.error.whence.reason, seen.last.error.message], [4003, 'user_stop', 'user_stop', 'enough']);
    for (const { reason } of await story(seen.id)) assert.equal(reason, 'user_stop');
  });

  test('a page that closes its WebSocket stops the engine', { timeout: 60_000 }, async () => {
    const page = await open();
    const seen = await page.evaluate(() => window.talk(
      '/v1/converse', { chat: { messages: [{ role: 'user', content: 'Tell me a long story.' }], sampling: { max_tokens: 500 } } },
      (m, send, socket) => { if (m.delta) socket.close(4999, 'bored'); },
    ));
    assert.equal(seen.code, 4999);
    const hops = await story(seen.id);
    for (const { reason, path } of hops) assert.deepEqual([reason, path[0]], ['client_gone', 'client']);
  });

  test('a closed page counts as a client that has gone', { timeout: 60_000 }, async () => {
    const page = await open();
    const id = await page.evaluate(() => new Promise((resolve) => {
      window.talk(
        '/v1/converse', { chat: { messages: [{ role: 'user', content: 'Tell me a long story.' }], sampling: { max_tokens: 500 } } },
        (m, send, socket, seen) => { if (m.delta) resolve(seen.id); },
      );
    }));
    await page.close();
    for (const { reason } of await story(id)) assert.equal(reason, 'client_gone');
  });

  test('a page of another origin opens no WebSocket', { timeout: 60_000 }, async () => {
    const elsewhere = createServer((request, response) => response.end('<!doctype html>'));
    await new Promise((resolve) => { elsewhere.listen(0, '127.0.0.1', resolve); });
    try {
      const page = await browser.newPage();
      await page.goto(`http://127.0.0.1:${elsewhere.address().port}`);
      const seen = await page.evaluate((host) => new Promise((resolve) => {
        const socket = new WebSocket(`ws://${host}/v1/converse`, ['whence.v1']);
        socket.onopen = () => resolve('open');
        socket.onclose = ({ code }) => resolve(code);
      }), new URL(base).host);
      assert.equal(seen, 1006);
    } finally {
      elsewhere.close();
      elsewhere.closeAllConnections();
    }
  });

  test('a kept stream is read over a WebSocket', { timeout: 60_000 }, async () => {
    const page = await open();
    const { seen, want } = await page.evaluate(async () => {
      const body = { messages: [{ role: 'user', content: 'Tell me about a fox.' }], max_tokens: 30 };
      const { choices: [{ message }] } = await window.post('/v1/chat/completions', body);
      const { events, read_token: token } = await window.post('/v1/streams', body);
      return { seen: await window.talk(`${events}?token=${token}`, null), want: message.content };
    });
    assert.equal(seen.text, want);
    assert.deepEqual([seen.code, seen.last.event, seen.last.data.reason], [1000, 'ending', 'completed']);
  });
});
