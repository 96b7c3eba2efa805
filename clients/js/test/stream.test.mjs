import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Whence, WhenceError } from '../src/index.js';
import { abort, delta, end, error, json, made, refusal, retry, sendEvents, sendAndAbort, sendAndWait, serve, usage } from './service.mjs';

const request = { model: 'm', messages: [{ role: 'user', content: 'hi' }] };
const bound = { timeout: 20_000 };

async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

const cursors = ({ requests }) => requests.filter(({ method }) => method === 'GET').map(({ headers }) => headers['last-event-id']);

test('a stream is created, read, and ends once', bound, async (t) => {
  const service = await serve(t, json(201, made), sendEvents(retry + delta(1, 'one ') + delta(2, 'two') + end(3)));
  const whence = new Whence({ baseURL: `${service.baseURL}/v1/`, key: 'k' });
  const stream = await whence.stream({ ...request, leave: 'linger:30s' });
  assert.equal(stream.ending, undefined);
  const ending = {
    reason: 'completed', origin: 'llm-worker/0', path: ['llm-worker/0', 'chat-service', 'api-service'], message: '', param: null, code: null, finish: 'stop', usage,
  };
  assert.deepEqual(await all(stream), [
    { type: 'delta', id: 'e.1', text: 'one ' },
    { type: 'delta', id: 'e.2', text: 'two' },
    { type: 'usage', id: 'e.3', usage },
    { type: 'ending', id: 'e.4', ending },
  ]);
  assert.deepEqual(stream.ending, ending);
  assert.equal(await stream.text(), 'one two');
  assert.deepEqual(await all(stream), []);
  const [post, get] = service.requests;
  assert.deepEqual(JSON.parse(post.body), request);
  assert.equal(post.headers['x-leave'], 'linger:30s');
  assert.match(post.headers['idempotency-key'], /^[0-9a-f]{32}$/);
  assert.equal(post.headers.authorization, 'Bearer k');
  assert.equal(get.url, '/v1/streams/str-1/events?token=tok');
  assert.equal(service.requests.length, 2);
});

test('the text is the same wherever the connection breaks', { timeout: 120_000 }, async (t) => {
  const parts = [delta(1, 'o🌙e '), delta(2, 'two '), delta(3, 'three')];
  const whole = retry + parts.join('') + end(4);
  const size = Buffer.byteLength(whole);
  await Promise.all(Array.from({ length: size }, async (_, at) => {
    const after = (response) => { // the events after the cursor
      const cursor = Number(service.requests.at(-1).headers['last-event-id']?.slice(2) ?? 0);
      sendEvents(retry + parts.slice(cursor).join('') + (cursor < 4 ? end(4) : end(4).slice(end(4).indexOf('id: e.5'))))(response);
    };
    const service = await serve(t, sendAndAbort(Buffer.from(whole).subarray(0, at)), after);
    const stream = new Whence({ baseURL: service.baseURL }).resume('str-1');
    assert.equal(await stream.text(), 'o🌙e two three', `broken at ${at}`);
    assert.equal(stream.ending.reason, 'completed');
    assert.deepEqual(stream.ending.usage, usage);
    assert.equal(service.requests.length, 2);
  }));
});

test('a request whose answer is lost is retried under the same key', bound, async (t) => {
  const service = await serve(t, abort, refusal(503, 'draining', {}, { 'Retry-After': '0' }), json(200, made));
  const stream = await new Whence({ baseURL: service.baseURL }).stream(request);
  assert.equal(stream.id, 'str-1');
  assert.equal(new Set(service.requests.map(({ headers }) => headers['idempotency-key'])).size, 1);
  assert.equal(service.requests.length, 3);
});

test('the backoff after a break begins at retry: and grows', bound, async (t) => {
  const service = await serve(t, sendAndAbort('retry: 200\n\n' + delta(1, 'a')), abort, abort, sendEvents(end(2)));
  const stream = new Whence({ baseURL: service.baseURL }).resume('str-1', { lastEventId: 'e.0' });
  assert.equal(await stream.text(), 'a');
  assert.deepEqual(cursors(service), ['e.0', 'e.1', 'e.1', 'e.1']);
  const waits = service.requests.slice(1).map(({ at }, i) => at - service.requests[i].at);
  for (const [i, least] of [200, 400, 800].entries()) assert.ok(waits[i] >= least - 5, `${waits}`);
});

test('each retry is told, with its number and the failure', bound, async (t) => {
  const service = await serve(t, refusal(503, 'unavailable', {}, { 'Retry-After': '0' }), json(201, made),
    sendAndAbort(retry + delta(1, 'a')), abort, sendEvents(retry + delta(2, 'b')), sendEvents(error(3, 'peer_lost')));
  const told = [];
  const stream = await new Whence({ baseURL: service.baseURL }).stream(request, { onRetry: (attempt, { reason, status, gaveUp }) => told.push([attempt, reason, status, gaveUp]) });
  await assert.rejects(stream.text(), { reason: 'peer_lost', gaveUp: false }); // the ending of the stream itself
  assert.deepEqual(told, [[2, 'unavailable', 503, false], [2, 'peer_lost', undefined, false], [3, 'peer_lost', undefined, false], [2, 'peer_lost', undefined, false]]);
});

test('a body that ends normally without an ending counts as a break', bound, async (t) => {
  const service = await serve(t, sendEvents(retry + delta(1, 'a')), sendEvents(retry + end(2)));
  assert.equal(await new Whence({ baseURL: service.baseURL }).resume('x').text(), 'a');
});

test('silence counts as a break', bound, async (t) => {
  const service = await serve(t, sendAndWait(retry + delta(1, 'a')), () => {}, sendEvents(retry + end(2)));
  assert.equal(await new Whence({ baseURL: service.baseURL, silence: 1000 }).resume('x').text(), 'a'); // long enough for a busy machine
  assert.equal(service.requests.length, 3);
});

test('when patience is over, the ending is typed', bound, async (t) => {
  const service = await serve(t, sendAndAbort(retry + delta(1, 'a')), abort);
  const stream = new Whence({ baseURL: service.baseURL, patience: 500 }).resume('x');
  const begun = performance.now();
  await assert.rejects(all(stream), (err) => err instanceof WhenceError && err.reason === 'peer_lost' && err.ending === stream.ending);
  assert.ok(performance.now() - begun < 10_000); // the default patience is a minute
  assert.equal(stream.ending.origin, 'api-service');
  await assert.rejects(stream.text(), { ending: stream.ending, gaveUp: true }); // the same ending again
});

test('a failure is thrown when it is read, with reason, path and text', bound, async (t) => {
  const service = await serve(t, sendEvents(retry + delta(1, 'part') + error(2, 'user_stop') + delta(3, 'never')));
  const stream = new Whence({ baseURL: service.baseURL }).resume('x');
  const texts = [];
  const failure = await (async () => { for await (const event of stream) texts.push(event.text); })().catch((err) => err);
  assert.ok(failure instanceof WhenceError && failure instanceof Error);
  assert.equal(failure.message, 'user stop: why [client > api-service]');
  assert.deepEqual(stream.ending, { reason: 'user_stop', origin: 'client', path: ['client', 'api-service'], message: 'why', param: null, code: null, finish: null, usage: null });
  assert.deepEqual(texts, ['part']);
  assert.equal(service.requests.length, 1);
});

test('a refusal is thrown with its reason and status', bound, async (t) => {
  for (const [answer, want] of [
    [refusal(400, 'invalid', { param: 'messages' }), { reason: 'invalid', status: 400, param: 'messages' }],
    [refusal(403, 'forbidden'), { reason: 'forbidden', status: 403, param: null }],
    [refusal(504, 'deadline'), { reason: 'deadline', status: 504, param: null }],
    [json(404, '<html>'), { reason: 'not_found', status: 404, param: null }],
    [json(418, '{"error":"tea"}'), { reason: 'invalid', status: 418, param: null }],
    [json(200, '<html>'), { reason: 'internal', status: undefined, param: null }],
    [json(201, '{}'), { reason: 'internal', status: undefined, param: null }],
    [json(201, JSON.stringify('x'.repeat(1 << 21))), { reason: 'internal', status: undefined, param: null }],
  ]) {
    const service = await serve(t, answer);
    const err = await new Whence({ baseURL: service.baseURL }).stream(request).catch((err) => err);
    assert.deepEqual({ reason: err.reason, status: err.status, param: err.ending.param }, want);
    assert.equal(service.requests.length, 1);
  }
});

test('an error keeps its code', bound, async (t) => {
  const service = await serve(t, refusal(400, 'invalid', { code: 'context_length_exceeded' }));
  const err = await new Whence({ baseURL: service.baseURL }).stream(request).catch((err) => err);
  assert.deepEqual([err.reason, err.ending.code], ['invalid', 'context_length_exceeded']);
  const ours = await serve(t, refusal(400, 'invalid'));
  assert.equal((await new Whence({ baseURL: ours.baseURL }).stream(request).catch((err) => err)).ending.code, null);
});

test('a temporary refusal is retried after Retry-After until patience is over', bound, async (t) => {
  const service = await serve(t, refusal(429, 'overloaded', {}, { 'Retry-After': '1' }), json(200, made));
  await new Whence({ baseURL: service.baseURL }).stream(request);
  assert.ok(service.requests[1].at - service.requests[0].at >= 995);
  const full = await serve(t, refusal(429, 'overloaded', {}, { 'Retry-After': '3600' }));
  const err = await new Whence({ baseURL: full.baseURL }).stream(request).catch((err) => err);
  assert.deepEqual([err.reason, err.status, err.retryAfter, full.requests.length], ['overloaded', 429, 3_600_000, 1]);
});

test('an unreadable response ends the reader without a retry', bound, async (t) => {
  for (const [answer, reason] of [
    [refusal(404, 'not_found'), 'not_found'],
    [refusal(409, 'invalid', { param: 'Last-Event-ID' }), 'invalid'],
    [refusal(410, 'not_found'), 'not_found'],
    [refusal(410, 'draining'), 'draining'],
    [json(200, '{}'), 'internal'],
    [sendEvents('id: e.1\nevent: delta\ndata: {"tex\n\n'), 'internal'],
    [sendEvents('id: e.1\nevent: delta\ndata: {}\n\n'), 'internal'],
    [sendEvents('id: e.1\nevent: ending\ndata: {"reason":"completed"}\n\n'), 'internal'],
    [sendEvents('id: e.1\nevent: error\ndata: null\n\n'), 'internal'],
  ]) {
    const service = await serve(t, answer);
    const stream = new Whence({ baseURL: service.baseURL }).resume('x');
    await assert.rejects(stream.text(), { name: 'WhenceError', reason });
    assert.equal(stream.ending.reason, reason);
    assert.equal(service.requests.length, 1);
  }
});

test('events of a later version are ignored', bound, async (t) => {
  const service = await serve(t, sendEvents('id: e.1\nevent: mood\ndata: good\n\n' + delta(2, 'a') + end(3)));
  assert.equal(await new Whence({ baseURL: service.baseURL }).resume('x').text(), 'a');
});

test('a cursor of the ending returns the ending and no text', bound, async (t) => {
  const service = await serve(t, (response) => response.writeHead(204).end(), sendEvents(delta(1, 'a') + end(2)));
  const stream = new Whence({ baseURL: service.baseURL }).resume('x', { lastEventId: 'e.3' });
  assert.deepEqual((await all(stream)).map(({ type }) => type), ['ending']);
  assert.deepEqual(stream.ending.usage, usage);
  assert.equal(await stream.text(), '');
  assert.deepEqual(cursors(service), ['e.3', undefined]);
});

test('leaving the loop leaves the stream; another loop continues', bound, async (t) => {
  let left;
  const leaving = new Promise((resolve) => { left = resolve; });
  const first = (response) => {
    response.on('close', left);
    sendAndWait(delta(1, 'a') + delta(2, 'b'))(response);
  };
  const service = await serve(t, first, sendEvents(delta(2, 'b') + end(3)));
  const stream = new Whence({ baseURL: service.baseURL }).resume('x');
  for await (const _ of stream) break;
  await leaving;
  assert.equal(stream.ending, undefined);
  assert.equal(await stream.text(), 'ab');
  assert.deepEqual(cursors(service), [undefined, 'e.1']);
});

test('abort leaves at once: while a stream is created, read, awaited, and yielded', bound, async (t) => {
  const reason = new Error('enough');
  const asked = new AbortController();
  const slow = await serve(t, () => asked.abort(reason));
  await assert.rejects(new Whence({ baseURL: slow.baseURL }).stream(request, { signal: asked.signal }), reason);
  assert.equal(slow.requests.length, 1);

  for (const [answer, patience] of [[sendAndWait(delta(1, 'a')), 60_000], [sendAndAbort(`retry: 30000\n\n${delta(1, 'a')}`), 1e9]]) {
    const service = await serve(t, answer);
    const control = new AbortController();
    const stream = new Whence({ baseURL: service.baseURL, patience }).resume('x', { signal: control.signal });
    await assert.rejects(async () => {
      for await (const _ of stream) setTimeout(() => control.abort(reason), 100);
    }, reason);
    assert.equal(stream.ending, undefined);
    assert.equal(stream.lastEventId, 'e.1');
  }

  const service = await serve(t, sendEvents(delta(1, 'a') + delta(2, 'b') + end(3)));
  const control = new AbortController();
  const stream = new Whence({ baseURL: service.baseURL }).resume('x', { signal: control.signal });
  const read = [];
  await assert.rejects(async () => {
    for await (const event of stream) {
      read.push(event.text);
      control.abort(reason);
    }
  }, reason);
  assert.deepEqual(read, ['a']);
});

test('the reason of an abort is not the ending of the stream', bound, async (t) => {
  const service = await serve(t, sendAndWait(delta(1, 'a')), refusal(404, 'not_found'));
  const control = new AbortController();
  const client = new Whence({ baseURL: service.baseURL });
  const stream = client.resume('x', { signal: control.signal });
  let other;
  await assert.rejects(async () => {
    for await (const _ of stream) {
      other = await client.resume('y').text().catch((err) => err);
      control.abort(other);
    }
  }, (err) => err === other);
  assert.ok(other instanceof WhenceError);
  assert.equal(stream.ending, undefined);
});

test('stop is retried, and succeeds if the stream has already ended', bound, async (t) => {
  const service = await serve(t, abort, json(202, '{}'));
  await new Whence({ baseURL: service.baseURL, key: 'k' }).resume('str/1').stop();
  assert.deepEqual(service.requests.map(({ method, url, headers }) => [method, url, headers.authorization]), Array(2).fill(['DELETE', '/v1/streams/str%2F1', 'Bearer k']));
  const over = await serve(t, refusal(404, 'not_found'));
  await new Whence({ baseURL: over.baseURL }).resume('x').stop();
  const not = await serve(t, refusal(403, 'forbidden'));
  await assert.rejects(new Whence({ baseURL: not.baseURL }).resume('x').stop(), { reason: 'forbidden' });
});

test('a reader allows only one loop at a time', bound, async (t) => {
  const service = await serve(t, sendAndWait(delta(1, 'a')));
  const stream = new Whence({ baseURL: service.baseURL }).resume('x');
  const first = stream[Symbol.asyncIterator]();
  await first.next();
  await assert.rejects(stream.text(), TypeError);
  await first.return();
});

test('bad options are refused at once', async () => {
  assert.throws(() => new Whence({ baseURL: 'nowhere' }), TypeError);
  assert.throws(() => new Whence(), TypeError); // there is no page to be relative to
  const whence = new Whence({ baseURL: 'http://127.0.0.1:1', fetch: () => assert.fail('a request was sent') });
  await assert.rejects(whence.stream({ ...request, leave: 'a\nb' }), TypeError);
  await assert.rejects(whence.resume('x', { lastEventId: 'ü€' }).text(), TypeError);
});

test('choices are separated, and the text is that of the first', bound, async (t) => {
  const choices = [{ index: 1, text: 'b', finish: 'length' }, { index: 0, text: 'é', logprobs: [{ token: 'é', logprob: -0.5, bytes: [195, 169], top_logprobs: [] }] }];
  const data = (value) => `id: e.1\nevent: delta\ndata: ${JSON.stringify(value)}\n\n`;
  const last = 'id: e.2\nevent: ending\ndata: {"reason":"completed","path":["api-service"]}\n\n';
  const service = await serve(t, json(201, made), sendEvents(data({ choices }) + last));
  const stream = await new Whence({ baseURL: service.baseURL }).stream({ model: 'm', prompt: ['p', 'q'] });
  assert.deepEqual((await all(stream))[0], { type: 'delta', id: 'e.1', text: 'é', choices });
  assert.equal(await stream.text(), 'é');
  assert.equal(stream.ending.finish, null);
  assert.deepEqual(JSON.parse(service.requests[0].body), { model: 'm', prompt: ['p', 'q'] });
  for (const bad of [{ choices: [null] }, { choices: [{ index: 0 }] }, { choices: 'x' }, {}]) {
    const broken = await serve(t, sendEvents(data(bad) + last));
    await assert.rejects(new Whence({ baseURL: broken.baseURL }).resume('str-1').text(), { reason: 'internal' });
  }
});

test('events have reasoning and tool calls', bound, async (t) => {
  const data = { text: '', reasoning: 'hm', calls: [{ index: 0, id: '1', name: 'f', arguments: '{}' }] };
  const service = await serve(t, json(201, made), sendEvents(`${retry}id: e.1\nevent: delta\ndata: ${JSON.stringify(data)}\n\n${end(2)}`));
  const stream = await new Whence({ baseURL: service.baseURL }).stream(request);
  assert.deepEqual((await all(stream))[0], { type: 'delta', id: 'e.1', ...data });
  assert.equal(await stream.text(), '');
});
