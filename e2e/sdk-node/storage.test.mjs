// Tests of stored responses with the official openai package and our address, against a running
// whence.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import OpenAI, { BadRequestError, NotFoundError } from 'openai';

const base = process.env.WHENCE_URL;
const model = 'whence-tiny';
const short = 'What happens when I close the tab?';
const long = 'Tell me a long story about a fox in the harbor.';

describe('stored responses', { skip: !base && 'WHENCE_URL is not set' }, () => {
  const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: 'unused', maxRetries: 0 });
  const create = (input, more = {}) => client.responses.create({ model, temperature: 0, input, ...more });

  // plain returns a response without the fields that the SDK adds.
  const plain = ({ output_text, ...response }) => JSON.parse(JSON.stringify(response));

  async function ended(response) {
    while (['queued', 'in_progress'].includes(response.status)) {
      response = await client.responses.retrieve(response.id);
    }
    return response;
  }

  test('a background response is polled', async () => {
    const response = await create(short, { background: true });
    assert.ok(['queued', 'in_progress'].includes(response.status));
    assert.equal(response.background, true);
    assert.equal(response.store, true);
    const got = await ended(response);
    assert.equal(got.status, 'completed');
    assert.equal(got.id, response.id);
    assert.equal(got.output_text, (await create(short, { store: false })).output_text);
    assert.deepEqual(plain(await client.responses.cancel(got.id)), plain(got));
  });

  test('a background stream is resumed after its last event', async () => {
    const first = [];
    for await (const event of await create(short, { background: true, stream: true })) {
      first.push(event);
      if (event.sequence_number === 7) break; // closes the connection
    }
    const { id } = first[0].response;
    const rest = [];
    for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: 7 })) rest.push(event);
    const all = [...first, ...rest];
    all.forEach((event, i) => assert.equal(event.sequence_number, i));
    const last = all.at(-1);
    assert.equal(last.type, 'response.completed');
    const text = all.filter(({ type }) => type === 'response.output_text.delta').map(({ delta }) => delta).join('');
    assert.equal(text, last.response.output[0].content[0].text);
    const again = [];
    for await (const event of await client.responses.retrieve(id, { stream: true })) again.push(event);
    assert.deepEqual(again, all);
    const stored = await client.responses.retrieve(id);
    assert.equal(stored.output_text, text);
    assert.deepEqual(plain(stored), plain(last.response));
  });

  test('the stream helper resumes a response', async () => {
    const { id } = await create(short, { background: true });
    const stream = client.responses.stream({ response_id: id, starting_after: undefined });
    const final = await stream.finalResponse();
    assert.equal(final.status, 'completed');
    assert.equal(final.id, id);
  });

  test('a background response is cancelled, and stays so', async () => {
    const { id } = await create(long, { background: true, max_output_tokens: 900 });
    for (const got of [await client.responses.cancel(id), await client.responses.cancel(id), await client.responses.retrieve(id)]) {
      assert.equal(got.status, 'cancelled');
      assert.equal(got.id, id);
    }
    const foreground = await create(short, { store: true });
    await assert.rejects(client.responses.cancel(foreground.id), BadRequestError);
  });

  test('a deleted response is not found', async () => {
    const { id } = await create(long, { background: true });
    await client.responses.delete(id);
    await assert.rejects(client.responses.retrieve(id), NotFoundError);
    await assert.rejects(client.responses.delete(id), NotFoundError);
    await assert.rejects(create(short, { previous_response_id: id }), (err) => {
      assert.ok(err instanceof BadRequestError, err);
      assert.equal(err.code, 'previous_response_not_found');
      assert.equal(err.param, 'previous_response_id');
      return true;
    });
  });

  test('a conversation continues without its earlier items', async () => {
    const instructions = 'You are kind.';
    const first = await create('Who are you?', { store: true, instructions });
    const input = [{ role: 'user', content: 'Who are you?' }, ...first.output, { role: 'user', content: short }];
    const whole = await create(input, { store: false });
    const second = await create(short, { store: true, previous_response_id: first.id });
    assert.equal(second.usage.input_tokens, whole.usage.input_tokens); // the instructions are not carried over
    assert.equal(second.output_text, whole.output_text);
    assert.equal(second.previous_response_id, first.id);
    const items = [];
    for await (const item of client.responses.inputItems.list(second.id, { order: 'asc', limit: 2 })) items.push(item);
    assert.deepEqual(items.map(({ role, content: [{ type, text }] }) => [role, type, text]), [
      ['user', 'input_text', 'Who are you?'], ['assistant', 'output_text', first.output_text], ['user', 'input_text', short],
    ]);
    await client.responses.delete(first.id);
    const third = await create('And then?', { previous_response_id: second.id, store: false }); // needs only the second response
    assert.equal(third.status, 'completed');
    assert.ok(third.usage.input_tokens > second.usage.input_tokens);
    await assert.rejects(client.responses.retrieve(third.id), NotFoundError);
  });
});
