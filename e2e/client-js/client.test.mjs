// Tests of clients/js in Node, against a running whence. jsclient_test.go starts whence and the
// proxy between the two.
//
// WHENCE_URL is the service, CUT_URL a proxy in front of it that cuts connections, and CONTROL_URL
// kills and restarts it.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Whence, WhenceError } from '../../clients/js/src/index.js';

const { WHENCE_URL: base, CUT_URL: cutting, CONTROL_URL: control } = process.env;
const request = { model: 'whence-tiny', temperature: 0, messages: [{ role: 'user', content: 'Tell me a long story about a fox in the harbor.' }] };
const bound = { timeout: 60_000 };

// failure reads a stream to its end, which must be an error, and returns the error.
async function failure(stream) {
  const err = await stream.text().then(() => assert.fail('it completed'), (err) => err);
  if (!(err instanceof WhenceError)) throw err;
  assert.equal(stream.ending, err.ending);
  return err;
}

// over waits until a stream has ended: a reader that connects earlier would keep the stream
// running.
async function over(id) {
  while ((await (await fetch(`${base}/v1/streams/${id}`)).json()).state !== 'ended');
}

describe('the client', { skip: !base && 'WHENCE_URL is not set' }, () => {
  test('a stream that is cut many times has the text and the ending of an undisturbed stream', bound, async () => {
    const direct = new Whence({ baseURL: base });
    const undisturbed = await direct.stream(request);
    const whole = await undisturbed.text();
    const cut = new Whence({ baseURL: cutting });
    const stream = await cut.stream(request);
    let text = '';
    for await (const event of stream) if (event.type === 'delta') text += event.text;
    assert.equal(text, whole);
    assert.deepEqual(stream.ending, undisturbed.ending);
    assert.equal(stream.ending.finish, 'stop');
    assert.ok(stream.ending.usage.completion_tokens > 100);
    const late = direct.resume(stream.id, { token: stream.token, lastEventId: stream.lastEventId });
    assert.equal(await late.text(), '');
    assert.deepEqual(late.ending, stream.ending);
  });

  test('two readers read at their own pace, and one leaves', bound, async () => {
    const whence = new Whence({ baseURL: base });
    const first = await whence.stream({ ...request, leave: 'linger:10s' });
    const second = whence.resume(first.id, { token: first.token });
    let seen = '';
    for await (const event of second) {
      seen += event.text;
      if (seen.length > 40) break;
    }
    const [one, rest] = await Promise.all([first.text(), second.text()]);
    assert.equal(one, rest);
    assert.deepEqual(first.ending, second.ending);
  });

  test('stop ends the stream for all readers, with its cause', bound, async () => {
    const whence = new Whence({ baseURL: base });
    const stream = await whence.stream(request);
    const other = whence.resume(stream.id, { token: stream.token });
    const watched = failure(other);
    const err = await (async () => {
      for await (const event of stream) if (event.type === 'delta') await stream.stop();
    })().catch((err) => err);
    assert.equal(err.reason, 'user_stop');
    assert.deepEqual(err.ending.path, ['client', 'api-service']);
    assert.deepEqual((await watched).ending, err.ending);
    await stream.stop(); // the stream has already ended
  });

  test('abort leaves the stream, which ends according to its policy', bound, async () => {
    const whence = new Whence({ baseURL: base });
    const leaving = new AbortController();
    const stream = await whence.stream({ ...request, leave: 'cancel' }, { signal: leaving.signal });
    await assert.rejects(async () => {
      for await (const _ of stream) leaving.abort();
    }, { name: 'AbortError' });
    await over(stream.id);
    const late = whence.resume(stream.id, { token: stream.token });
    assert.equal((await failure(late)).reason, 'client_gone');
  });

  test('a refusal names the field', bound, async () => {
    const err = await new Whence({ baseURL: base }).stream({ ...request, max_tokens: 'many' }).catch((err) => err);
    assert.deepEqual([err.reason, err.status, err.ending.param], ['invalid', 400, 'max_tokens']);
  });

  test('a service that has lost the stream, or that does not come back, gives a typed ending', bound, async () => {
    const waiting = await new Whence({ baseURL: base }).stream(request);
    const hasty = new Whence({ baseURL: base, patience: 1500 }).resume(waiting.id, { token: waiting.token });
    const loop = waiting[Symbol.asyncIterator]();
    await loop.next();
    const lost = failure(hasty);
    await fetch(`${control}/kill`);
    assert.equal((await lost).reason, 'peer_lost');
    await fetch(`${control}/restart`);
    const err = await (async () => { for (;;) await loop.next(); })().catch((err) => err);
    assert.deepEqual([err.reason, err.status, err.ending.path], ['not_found', 404, ['api-service']]);
  });
});
