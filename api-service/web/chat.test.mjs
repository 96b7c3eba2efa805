import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { useKey } from './assets/api.js';
import { Answer, begin, follow, unique } from './assets/chat.js';
import { curl, missing } from './assets/curl.js';
import { describe } from './assets/ending.js';

globalThis.location = { href: 'http://localhost/' }; // the client resolves its addresses against the page

const delta = (id, text, more) => ['delta', id, { text, ...more }];
const usage = (id, n) => ['usage', id, { prompt_tokens: 3, completion_tokens: n, total_tokens: 3 + n }];
const ending = (id, finish = 'stop') => ['ending', id, { reason: 'completed', finish, path: ['engine', 'api-service'] }];
const error = (reason, message, ...path) => ({ error: { message, type: 'server_error', param: null, code: null, whence: { reason, path } } });
const events = (...all) => `retry: 50\n\n${all.map(([name, id, data]) => `id: ${id}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`).join('')}`;
const made = () => new Response('{"id":"str-1","read_token":"tok"}', { status: 201 });
const stream = (...all) => () => new Response(events(...all), { headers: { 'Content-Type': 'text/event-stream' } });
const refusal = (status, body, headers) => () => new Response(typeof body === 'string' ? body : JSON.stringify(body), { status, headers });
const broken = () => { throw new TypeError('Failed to fetch'); };

let requests; // that were sent

// answerTo follows a stream whose service gives these answers, the last one again and again.
async function answerTo(answers, { open = begin({ model: 'm', stream: true, stream_options: {} }), signal = new AbortController().signal, asked = performance.now(), patience = undefined } = {}) {
  requests = [];
  globalThis.fetch = async (url, { method, headers, body, signal: bound }) => {
    bound.throwIfAborted();
    const answer = answers[Math.min(requests.length, answers.length - 1)];
    requests.push({ method, url, body, headers: Object.fromEntries(headers) });
    return answer(bound);
  };
  const heard = { made: [], opened: 0, frames: 0, text: '', breaks: [] };
  const last = await follow(open, {
    signal, asked, patience, onMade: (id) => heard.made.push(id), onOpen: () => heard.opened++, onFrame: () => heard.frames++, onText: (text) => (heard.text += text),
    onBreak: (attempt, { reason }) => heard.breaks.push([attempt, reason]),
  });
  return { ...heard, open, ending: last, line: describe(last) };
}

const realFetch = globalThis.fetch;
afterEach(() => (globalThis.fetch = realFetch));

test('a whole answer is completed, with its numbers', () => {
  const answer = new Answer(1000);
  const event = (text) => ({ type: 'delta', text });
  assert.equal(answer.take(event('Hel'), 1012).text, 'Hel');
  assert.equal(answer.take(event('lo'), 1500).text, 'lo');
  answer.take({ type: 'usage', usage: { completion_tokens: 47 } }, 2496);
  answer.take({ type: 'ending' }, 2500);
  assert.equal(describe(answer.completed({ finish: 'stop' })), 'completed · stop · 47 tokens · TTFT 12 ms · 31 tok/s');
  assert.equal(describe({ ...answer.completed({ finish: 'stop' }), resumed: 2 }), 'completed · stop · 47 tokens · TTFT 12 ms · 31 tok/s · resumed 2 times');
});

test('what is thought and called stands beside the text', () => {
  const answer = new Answer(0);
  const call = (index, name, args) => ({ type: 'delta', text: '', calls: [{ index, name, arguments: args }] });
  assert.deepEqual(answer.take({ type: 'delta', text: '', reasoning: 'hm' }, 5), { text: '', aside: { thought: 'hm', called: '' } });
  assert.equal(answer.take({ type: 'delta', text: 'a' }, 6).aside, undefined);
  const called = [call(0, 'f', '{'), call(0, undefined, '}'), call(1, 'g', '{}')].map((event) => answer.take(event, 7).aside.called).join('');
  assert.equal(called, 'f {}\ng {}');
});

test('a stream is made under a key, read with its token, and heard', async () => {
  useKey(' secret ');
  const heard = await answerTo([made, stream(delta('e.1', 'Hel'), delta('e.2', 'lo'), usage('e.3', 2), ending('e.4', 'length'))]);
  useKey('');
  const [post, get] = requests;
  assert.deepEqual(JSON.parse(post.body), { model: 'm' });
  assert.match(post.headers['idempotency-key'], /^[0-9a-f]{32}$/);
  assert.equal(post.headers.authorization, 'Bearer secret');
  assert.equal(get.url, '/v1/streams/str-1/events?token=tok');
  assert.deepEqual([heard.made, heard.opened, heard.frames, heard.text, heard.breaks], [['str-1'], 1, 2, 'Hello', []]);
  assert.match(heard.line, /^completed · length · 2 tokens/);
  await answerTo([made, stream(ending('e.1'))]);
  assert.ok(!('authorization' in requests[0].headers), 'a key that was taken back is sent');
});

test('names are unique', () => {
  assert.match(unique(), /^[0-9a-f]{32}$/);
  assert.notEqual(unique(), unique());
});

test('a broken connection is resumed after the last event', async () => {
  const heard = await answerTo([made, stream(delta('e.1', 'Hel')), broken, stream(delta('e.2', 'lo'), usage('e.3', 2), ending('e.4'))]);
  assert.equal(heard.text, 'Hello');
  assert.deepEqual([heard.opened, heard.breaks], [2, [[2, 'peer_lost'], [3, 'peer_lost']]]);
  assert.equal(requests.at(-1).headers['last-event-id'], 'e.1');
});

test('a page reads on where another one was, and repeats its request under the same key', async () => {
  const { open } = await answerTo([made, stream(delta('e.1', 'Hel'), ['error', 'e.2', error('user_stop', 'stopped', 'client')])]);
  assert.deepEqual(open, { key: open.key, id: 'str-1', token: 'tok', last: 'e.1' });
  const rest = await answerTo([stream(delta('e.2', 'lo'), usage('e.3', 2), ending('e.4'))], { open: JSON.parse(JSON.stringify(open)), asked: null });
  assert.deepEqual([rest.text, rest.made, rest.line], ['lo', [], 'completed · stop · 2 tokens']);
  assert.equal(requests[0].headers['last-event-id'], 'e.1');

  const unsent = JSON.parse(JSON.stringify(begin({ model: 'm' })));
  const again = await answerTo([made, stream(ending('e.1'))], { open: unsent });
  assert.deepEqual([again.made, requests[0].headers['idempotency-key']], [['str-1'], unsent.key]);
});

test('an error in mid-stream is the ending, whatever follows', async () => {
  const { text, line, ending: { code } } = await answerTo([made, stream(delta('e.1', 'Hel'),
    ['error', 'e.2', error('peer_lost', 'the worker went away', 'llm-worker', 'chat-service', 'api-service')], delta('e.3', 'lo'))]);
  assert.deepEqual([text, code], ['Hel', 'peer_lost']);
  assert.equal(line, 'ended: peer_lost — the worker went away — path: llm-worker > chat-service > api-service');
});

test('a stream that a restarted api-service has lost is cut off', async () => {
  const { line } = await answerTo([made, stream(delta('e.1', 'Hel')), refusal(404, error('not_found', 'there is no stream', 'api-service'))]);
  assert.equal(line, 'cut off — api-service has lost the stream: it has restarted, or the stream ended long ago');
});

test('an api-service that is away is no answer, or a stream that can be read later', async () => {
  assert.equal((await answerTo([broken], { patience: 0 })).line, 'no answer — the server could not be reached');
  const { line, ending: { kind } } = await answerTo([made, stream(delta('e.1', 'Hel')), broken], { patience: 300 });
  assert.equal(kind, 'lost');
  assert.match(line, /^not read to its end — the connection broke/);
});

test('an event that cannot be read ends the reading', async () => {
  const { ending: { kind, code } } = await answerTo([made, () => new Response('id: 1\nevent: delta\ndata: {"te\n\n', { headers: { 'Content-Type': 'text/event-stream' } })]);
  assert.deepEqual([kind, code], ['failed', 'internal']);
});

test('a refusal shows status, message and field', async () => {
  const wrong = { error: { ...error('invalid', 'max_tokens is over the context', 'api-service').error, param: 'max_tokens', code: 'context_length_exceeded' } };
  const { line, ending: { id } } = await answerTo([refusal(400, wrong, { 'X-Request-Id': 'str-9' })]);
  assert.equal(line, 'refused: 400 invalid — max_tokens is over the context — field: max_tokens — path: api-service');
  assert.equal(id, 'str-9');
  assert.match((await answerTo([refusal(403, '<p>hello')])).line, /^refused: 403 forbidden/);
});

test('a temporary refusal is tried again', async () => {
  const { breaks, line } = await answerTo([refusal(503, error('unavailable', 'no worker is healthy', 'chat-service', 'api-service'), { 'Retry-After': '0' }), made, stream(usage('e.1', 1), ending('e.2'))]);
  assert.deepEqual(breaks, [[2, 'unavailable']]);
  assert.match(line, /^completed/);
});

test('aborting is "stopped by you", before and during the stream', async () => {
  const controller = new AbortController();
  const hangs = (bound) => new Response(new ReadableStream({
    start(body) {
      bound.addEventListener('abort', () => body.error(bound.reason));
      body.enqueue(new TextEncoder().encode(events(delta('e.1', 'Hel'))));
      controller.abort();
    },
  }), { headers: { 'Content-Type': 'text/event-stream' } });
  assert.equal((await answerTo([made, hangs], { signal: controller.signal })).line, 'stopped by you');
  assert.equal((await answerTo([made], { signal: controller.signal })).line, 'stopped by you');
  assert.equal(requests.length, 0);
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
