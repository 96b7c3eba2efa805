// Tests of the official openai package with our address, against a running whence:
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

  // streamed joins the chunks of a streamed answer.
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

  // same checks that streamed and unstreamed answers are equal, and returns the answer.
  async function same(body) {
    const whole = await client.chat.completions.create(body);
    const pieces = await streamed({ ...body, stream_options: { include_usage: true } });
    assert.equal(pieces.content, whole.choices[0].message.content);
    assert.equal(pieces.finish, whole.choices[0].finish_reason);
    assert.equal(pieces.usage.prompt_tokens, whole.usage.prompt_tokens);
    assert.equal(pieces.usage.total_tokens, pieces.usage.prompt_tokens + pieces.usage.completion_tokens);
    return { content: pieces.content, finish: pieces.finish, tokens: whole.usage.completion_tokens, usage: pieces.usage };
  }

  test('streamed and unstreamed answers are equal', async () => {
    const { content, finish, tokens, usage } = await same(ask(short));
    assert.match(content, /^When you close the tab,/);
    assert.equal(finish, 'stop');
    assert.equal(usage.completion_tokens, tokens);
  });

  test('max_tokens ends the answer', async () => {
    assert.equal((await same(ask(short, { max_tokens: 5 }))).finish, 'length');
    assert.equal((await same(ask(short, { max_completion_tokens: 5 }))).tokens, 5);
  });

  test('a stop string ends the answer', async () => {
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
    assert.ok(others.some((other) => other !== seven), 'all seeds give the same answer');
  });

  test('usage is sent only on request', async () => {
    const { chunks, usage } = await streamed(ask(short, { max_tokens: 3 }));
    assert.equal(usage, null);
    assert.ok(chunks.every(({ choices }) => choices.length === 1));
  });

  test('the stream helper of the package works', async () => {
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
      [{ model: 'gpt-4o' }, NotFoundError, 404, 'model_not_found', 'model'],
      [{ temperature: 3 }, BadRequestError, 400, 'decimal_above_max_value', 'temperature'],
      [{ messages: ask('word '.repeat(5000)).messages }, BadRequestError, 400, 'context_length_exceeded', 'messages'],
      [{ n: 17 }, BadRequestError, 400, 'integer_above_max_value', 'n'],
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

  // spelled joins the bytes of the tokens of logprobs.
  const spelled = (tokens) => Buffer.from(tokens.flatMap(({ bytes }) => bytes ?? [])).toString();

  test('several choices with logprobs are equal streamed and unstreamed', async () => {
    const body = ask(long, { n: 3, seed: 5, temperature: 1, max_tokens: 20, logprobs: true, top_logprobs: 2 });
    const { choices, usage } = await client.chat.completions.create(body);
    const pieces = [0, 1, 2].map(() => ({ content: '', tokens: [], finish: null }));
    let counted;
    for await (const chunk of await client.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } })) {
      for (const { index, delta, logprobs, finish_reason: finish } of chunk.choices) {
        pieces[index].content += delta.content ?? '';
        pieces[index].tokens.push(...(logprobs?.content ?? []));
        pieces[index].finish = finish ?? pieces[index].finish;
      }
      counted = chunk.usage ?? counted;
    }
    assert.equal(new Set(choices.map(({ message }) => message.content)).size, 3, 'choices are equal');
    assert.deepEqual(pieces, choices.map(({ message, logprobs, finish_reason: finish }) => ({ content: message.content, tokens: logprobs.content, finish })));
    for (const { message, logprobs } of choices) {
      assert.equal(spelled(logprobs.content), message.content);
      assert.ok(logprobs.content.every(({ logprob, top_logprobs: top }) => top.length === 2 && logprob <= top[0].logprob && top[0].logprob <= 0));
    }
    assert.deepEqual(counted, usage);
    assert.equal(usage.completion_tokens, 60);
  });

  test('prompts are continued without a template', async () => {
    const body = { model, prompt: ['The fox', 'Once upon'], n: 2, best_of: 2, seed: 7, max_tokens: 12, logprobs: 2 };
    const { choices, usage, id } = await client.completions.create(body);
    assert.match(id, /^cmpl-/);
    assert.equal(choices.length, 4);
    const texts = ['', '', '', ''], tokens = [[], [], [], []];
    for await (const chunk of await client.completions.create({ ...body, stream: true })) {
      for (const { index, text, logprobs } of chunk.choices) {
        texts[index] += text;
        tokens[index].push(...(logprobs?.tokens ?? []));
      }
    }
    assert.deepEqual(texts, choices.map(({ text }) => text));
    assert.deepEqual(tokens, choices.map(({ logprobs }) => logprobs.tokens));
    const alone = await client.completions.create({ ...body, prompt: 'Once upon' });
    assert.deepEqual(alone.choices.map(({ text }) => text), texts.slice(2));
    assert.ok(usage.completion_tokens > 30);
    await assert.rejects(client.completions.create({ ...body, suffix: 'end' }), ({ status, param }) => status === 400 && param === 'suffix');
  });

  test('a text has the same embedding as numbers and as base64', async () => {
    const input = ['The fox sleeps.', 'A harbor at night'];
    const bytes = await client.embeddings.create({ model, input }); // the package requests base64 by default
    const numbers = await client.embeddings.create({ model, input, encoding_format: 'float' });
    assert.deepEqual(bytes.data.map(({ index, embedding }) => [index, [...embedding].map(Math.fround)]), numbers.data.map(({ index, embedding }) => [index, embedding.map(Math.fround)]));
    assert.equal(bytes.usage.total_tokens, numbers.usage.prompt_tokens);
    for (const { embedding } of numbers.data) assert.ok(Math.abs(embedding.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-5);
    await assert.rejects(client.embeddings.create({ model, input, dimensions: 8 }), ({ status, param }) => status === 400 && param === 'dimensions');
    await assert.rejects(client.embeddings.create({ model, input: ['a', ''] }), ({ status, param }) => status === 400 && param === 'input[1]');
    await assert.rejects(client.embeddings.create({ model: 'none', input }), NotFoundError);
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
