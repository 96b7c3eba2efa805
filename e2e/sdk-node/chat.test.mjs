// The official openai package, of which only the address is ours, against a running whence:
//
//   WHENCE_URL=http://127.0.0.1:8080 npm test             # here, after npm ci

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import OpenAI, { APIError, APIUserAbortError, BadRequestError, NotFoundError } from 'openai';

const base = process.env.WHENCE_URL;
const model = 'whence-tiny';
const short = 'What happens when I close the tab?';
const long = 'Tell me a long story about a fox in the harbor.';

describe('openai', { skip: !base && 'WHENCE_URL is not set' }, () => {
  const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: 'unused', maxRetries: 0 });
  const ask = (content, more = {}) => ({ model, temperature: 0, messages: [{ role: 'user', content }], ...more });

  // streamed puts together what comes in pieces.
  async function streamed(body) {
    const all = { content: '', finish: null, usage: null, chunks: [] };
    for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
      all.chunks.push(chunk);
      all.content += chunk.choices[0]?.delta.content ?? '';
      all.finish = chunk.choices[0]?.finish_reason ?? all.finish;
      all.usage = chunk.usage ?? all.usage;
    }
    return all;
  }

  // same wants an answer to be the same in pieces as at once, and returns it.
  async function same(body) {
    const whole = await client.chat.completions.create(body);
    const pieces = await streamed({ ...body, stream_options: { include_usage: true } });
    assert.equal(pieces.content, whole.choices[0].message.content);
    assert.equal(pieces.finish, whole.choices[0].finish_reason);
    assert.equal(pieces.usage.prompt_tokens, whole.usage.prompt_tokens);
    assert.equal(pieces.usage.total_tokens, pieces.usage.prompt_tokens + pieces.usage.completion_tokens);
    return { content: pieces.content, finish: pieces.finish, tokens: whole.usage.completion_tokens, usage: pieces.usage };
  }

  test('an answer is the same in pieces and at once', async () => {
    const { content, finish, tokens, usage } = await same(ask(short));
    assert.match(content, /^When you close the tab,/);
    assert.equal(finish, 'stop');
    assert.equal(usage.completion_tokens, tokens);
  });

  test('max_tokens cuts it', async () => {
    assert.equal((await same(ask(short, { max_tokens: 5 }))).finish, 'length');
    assert.equal((await same(ask(short, { max_completion_tokens: 5 }))).tokens, 5);
  });

  test('a stop string ends it', async () => {
    const { content } = await same(ask(short));
    const cut = await same(ask(short, { stop: ['nowhere', ' sends'] }));
    assert.equal(cut.content, content.slice(0, content.indexOf(' sends')));
    assert.equal(cut.finish, 'stop');
  });

  test('the same seed gives the same answer', async () => {
    const drawn = async (seed) => (await same(ask(long, { temperature: 1, seed, max_tokens: 40 }))).content;
    const seven = await drawn(7);
    assert.equal(await drawn(7), seven);
    const others = await Promise.all([8, 9, 10].map(drawn));
    assert.ok(others.some((other) => other !== seven), 'all seeds give the same');
  });

  test('usage comes only to those who ask', async () => {
    const { chunks, usage } = await streamed(ask(short, { max_tokens: 3 }));
    assert.equal(usage, null);
    assert.ok(chunks.every(({ choices }) => choices.length === 1));
  });

  test('the helper for streams understands them', async () => {
    const stream = client.chat.completions.stream(ask(short));
    let text = '';
    stream.on('content', (delta) => { text += delta; });
    const { choices } = await stream.finalChatCompletion();
    assert.equal(choices[0].message.content, text);
    assert.equal(choices[0].finish_reason, 'stop');
  });

  test('models can be listed and found', async () => {
    const models = [];
    for await (const found of client.models.list()) models.push(found);
    assert.deepEqual(models.map(({ id, object }) => [id, object]), [[model, 'model']]);
    assert.deepEqual(await client.models.retrieve(model), models[0]);
    await assert.rejects(client.models.retrieve('no/such model'), NotFoundError);
  });

  test('refusals have their class, code and field', async () => {
    for (const [body, type, status, code, param] of [
      [{ model: 'gpt-4o' }, NotFoundError, 404, 'not_found', 'model'],
      [{ temperature: 3 }, BadRequestError, 400, 'invalid', 'temperature'],
      [{ max_tokens: 5000 }, BadRequestError, 400, 'invalid', 'max_tokens'],
      [{ n: 2 }, BadRequestError, 400, 'invalid', 'n'],
    ]) {
      for (const stream of [false, true]) {
        await assert.rejects(client.chat.completions.create(ask(short, { ...body, stream })), (err) => {
          assert.ok(err instanceof type && err instanceof APIError, String(err));
          assert.deepEqual([err.status, err.code, err.param, err.type], [status, code, param, 'invalid_request_error']);
          assert.ok(err.message.length > 10);
          assert.ok(err.requestID, 'no request id');
          return true;
        });
      }
    }
  });

  test('an aborted stream ends at once, and the next request is answered', async () => {
    const stream = await client.chat.completions.create(ask(long, { stream: true }));
    let pieces = 0;
    for await (const chunk of stream) {
      if (chunk.choices[0]?.delta.content && ++pieces === 3) stream.controller.abort();
    }
    assert.ok(pieces >= 3 && pieces < 100, `${pieces} pieces`);
    const aborter = new AbortController();
    const whole = client.chat.completions.create(ask(long), { signal: aborter.signal });
    setImmediate(() => aborter.abort());
    await assert.rejects(whole, APIUserAbortError);
    assert.equal((await client.chat.completions.create(ask('What is 2 + 3?'))).choices[0].message.content, '2 + 3 = 5.');
  });
});
