import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { useKey } from './assets/api.js';
import { Answer, ask, mint } from './assets/chat.js';
import { curl, missing } from './assets/curl.js';
import { describe } from './assets/ending.js';

const chunk = (delta, finish_reason = null) => JSON.stringify({ choices: [{ index: 0, delta, finish_reason }], usage: null });
const role = chunk({ role: 'assistant', content: '' });
const usage = '{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":47}}';
const frames = (...data) => data.map((line) => `data: ${line}\n\n`).join('');

let asked; // the headers of the last request

// serve makes fetch answer with these parts; an Error among them breaks the connection, null leaves it open.
function serve(parts, { status = 200, type = 'text/event-stream', headers = {} } = {}) {
  globalThis.fetch = async (_, { signal, headers: sent }) => {
    signal.throwIfAborted();
    asked = sent;
    const body = new ReadableStream({
      start(controller) {
        signal.addEventListener('abort', () => controller.error(signal.reason));
        for (const part of parts) {
          if (part === null) return;
          if (part instanceof Error) return controller.error(part);
          controller.enqueue(new TextEncoder().encode(part));
        }
        controller.close();
      },
    }, { highWaterMark: 0 });
    return new Response(body, { status, headers: { 'Content-Type': type, ...headers } });
  };
}

async function answerTo(parts, response, signal = new AbortController().signal) {
  serve(parts, response);
  const heard = { opened: 0, frames: 0, text: '' };
  const ending = await ask({}, {
    id: 'web-1', signal, onOpen: () => heard.opened++, onFrame: () => heard.frames++, onText: (text) => (heard.text += text),
  });
  return { ...heard, ending, line: describe(ending) };
}

const realFetch = globalThis.fetch;
afterEach(() => (globalThis.fetch = realFetch));

test('a whole answer is completed, with its numbers', () => {
  const answer = new Answer(1000);
  assert.equal(answer.take(role, 1005), '');
  assert.equal(answer.take(chunk({ content: 'Hel' }), 1012), 'Hel');
  assert.equal(answer.take(chunk({ content: 'lo' }), 1500), 'lo');
  assert.equal(answer.take(chunk({}, 'stop'), 2496), '');
  assert.equal(answer.take(usage, 2497), '');
  assert.equal(answer.ending, null);
  answer.take('[DONE]', 2498);
  assert.equal(describe(answer.ending), 'completed · stop · 47 tokens · TTFT 12 ms · 31 tok/s');
});

test('what is thought and called stands beside the text', () => {
  const answer = new Answer(0);
  const call = (index, name, args) => ({ tool_calls: [{ index, function: { name, arguments: args } }] });
  assert.equal(answer.take(chunk({ reasoning_content: 'hm' }), 5), '');
  assert.deepEqual(answer.aside, { thought: 'hm', called: '' });
  assert.equal(answer.take(chunk({ content: 'a' }), 6), 'a');
  assert.equal(answer.aside, null);
  let called = '';
  for (const delta of [call(0, 'f', '{'), call(0, undefined, '}'), call(1, 'g', '{}')]) {
    answer.take(chunk(delta), 7);
    called += answer.aside.called;
  }
  assert.equal(called, 'f {}\ng {}');
});

test('the header, each frame and the text are heard, under the id and the key', async () => {
  useKey(' secret ');
  const heard = await answerTo([frames(role, chunk({ content: 'Hel' })), frames(chunk({ content: 'lo' }), chunk({}, 'length'), '[DONE]')]);
  useKey('');
  assert.equal(asked['X-Request-Id'], 'web-1');
  assert.equal(asked.Authorization, 'Bearer secret');
  assert.deepEqual([heard.opened, heard.frames, heard.text], [1, 2, 'Hello']);
  assert.match(heard.line, /^completed · length/);
  await answerTo([frames(role)]);
  assert.ok(!('Authorization' in asked), 'a key that was taken back is sent');
});

test('ids are minted for streams, each its own', () => {
  assert.match(mint(), /^[A-Za-z0-9._:-]{20,128}$/);
  assert.notEqual(mint(), mint());
});

test('an error in mid-stream is the ending, whatever follows', async () => {
  const error = '{"error":{"message":"the worker went away","type":"server_error","param":null,"code":"server_error","whence":{"reason":"peer_lost","path":["llm-worker","chat-service","api-service"]}}}';
  const { text, line } = await answerTo([frames(role, chunk({ content: 'Hel' }), error, chunk({ content: 'lo' }), '[DONE]')]);
  assert.equal(text, 'Hel');
  assert.equal(line, 'ended: peer_lost — the worker went away — path: llm-worker > chat-service > api-service');
});

test('a stream that just ends is cut off, never complete', async () => {
  const cut = async (...data) => (await answerTo([frames(...data)])).line;
  assert.equal(await cut(role, chunk({ content: 'Hel' })), 'cut off — the stream ended without a finish_reason or [DONE]');
  assert.equal(await cut(role, chunk({}, 'stop'), usage), 'cut off — the stream ended without [DONE]');
  assert.equal(await cut(role, '[DONE]'), 'cut off — [DONE] came without a finish_reason');
  assert.match(await cut(), /^cut off/);
});

test('a broken connection and an unreadable frame are cut off', async () => {
  assert.equal((await answerTo([frames(role), new TypeError('network error')])).line, 'cut off — the connection broke');
  assert.equal((await answerTo([frames(role, '{"choi')])).line, 'cut off — a frame could not be read');
});

test('a refusal shows status, message and field', async () => {
  const body = '{"error":{"message":"max_tokens is over the context","type":"invalid_request_error","param":"max_tokens","code":"context_length_exceeded","whence":{"reason":"invalid","path":["api-service"]}}}';
  assert.equal(
    (await answerTo([body], { status: 400, type: 'application/json' })).line,
    'refused: 400 invalid — max_tokens is over the context — field: max_tokens — path: api-service',
  );
  assert.equal(
    (await answerTo(['try later'], { status: 429, type: 'text/plain', headers: { 'Retry-After': '2' } })).line,
    'refused: 429 — try later — retry after: 2 s',
  );
  assert.match((await answerTo(['<p>hello'], { type: 'text/html' })).line, /^refused: 200/);
});

test('aborting is "stopped by you", before and during the stream', async () => {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), 20);
  assert.equal((await answerTo([frames(role, chunk({ content: 'Hel' })), null], {}, controller.signal)).line, 'stopped by you');
  assert.equal((await answerTo([], {}, controller.signal)).line, 'stopped by you');
});

test('an answer that is complete does not wait for the connection to close', async () => {
  const { line } = await answerTo([frames(role, chunk({}, 'stop'), '[DONE]'), null]);
  assert.match(line, /^completed/);
});

test('a server that is not there is no answer', async () => {
  globalThis.fetch = async () => { throw new TypeError('Failed to fetch'); };
  const ending = await ask({}, { signal: new AbortController().signal, onOpen() {}, onFrame() {}, onText() {} });
  assert.match(describe(ending), /^no answer/);
});

test('curl survives quotes, has one field a line, and never the key', () => {
  const command = curl('http://localhost', { model: 'm', seed: undefined, messages: [{ role: 'user', content: `it's "$HOME" \`x\` $' and\nmore` }] }, true);
  assert.match(command, /^curl -N http:\/\/localhost\/v1\/chat\/completions \\\n {2}-H 'Content-Type/);
  assert.ok(command.includes(String.raw`it'\''s \"$HOME\" ` + '`x` $' + String.raw`'\'' and\nmore`), command);
  assert.match(command, /\n {2}-H "Authorization: Bearer \$WHENCE_KEY" \\\n/);
  assert.match(command, /-d '\{\n {4}"model": "m",\n {4}"messages": \[.*\]\n {2}\}'$/);
});

test('curl sends the same request to the other APIs', () => {
  const request = {
    model: 'm', stream: true, stream_options: { include_usage: true }, temperature: 0, max_tokens: undefined, seed: 7, stop: ['x'],
    messages: [{ role: 'system', content: 's' }, { role: 'user', content: 'Hi' }],
  };
  const sent = (api) => {
    const command = curl('http://localhost', request, false, api);
    return [command.split(' ')[2], JSON.parse(command.slice(command.indexOf('{'), command.lastIndexOf('}') + 1))];
  };
  const messages = [{ role: 'user', content: 'Hi' }];
  assert.deepEqual(sent('Responses'), ['http://localhost/v1/responses', { model: 'm', instructions: 's', input: messages, stream: true, store: false, temperature: 0 }]);
  assert.deepEqual(sent('Messages'), ['http://localhost/v1/messages', { model: 'm', max_tokens: 400, system: 's', messages, stream: true, temperature: 0, stop_sequences: ['x'] }]);
  assert.deepEqual([missing(request, 'Chat completions'), missing(request, 'Responses'), missing(request, 'Messages')], [[], ['seed', 'stop'], ['seed']]);
});
