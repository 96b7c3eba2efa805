// Tests of the official @anthropic-ai/sdk package with our address, against a running whence.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import Anthropic, { APIError, APIUserAbortError, BadRequestError, NotFoundError } from '@anthropic-ai/sdk';

const base = process.env.WHENCE_URL;
const model = 'whence-tiny';
const short = 'What happens when I close the tab?';
const long = 'Tell me a long story about a fox in the harbor.';
const weather = {
  name: 'get_weather',
  description: 'The weather in a city',
  input_schema: {
    type: 'object',
    properties: { city: { type: 'string', maxLength: 20 }, unit: { enum: ['C', 'F'] } },
    required: ['city', 'unit'],
    additionalProperties: false,
  },
};

describe('anthropic', { skip: !base && 'WHENCE_URL is not set' }, () => {
  const client = new Anthropic({ baseURL: base, apiKey: 'unused', authToken: null, maxRetries: 0 });
  const ask = (content, more = {}) => ({ model, temperature: 0, max_tokens: 200, messages: [{ role: 'user', content }], ...more });

  // same checks that streamed and unstreamed answers are equal, and returns the answer.
  async function same(body) {
    const whole = await client.messages.create(body);
    const streamed = await client.messages.stream(body).finalMessage();
    const blocks = ({ content }) => content.map(({ id, ...rest }) => rest); // ids of calls differ
    assert.deepEqual(blocks(streamed), blocks(whole));
    assert.equal(streamed.stop_reason, whole.stop_reason);
    assert.equal(streamed.stop_sequence, whole.stop_sequence);
    const input = ({ usage }) => usage.input_tokens + usage.cache_read_input_tokens;
    assert.ok(input(whole) > 0);
    assert.equal(input(streamed), input(whole));
    for (const answer of [whole, streamed]) assert.match(answer.id, /^msg_/);
    return whole;
  }

  test('streamed and unstreamed answers are equal', async () => {
    const { content, stop_reason, usage } = await same(ask(short));
    assert.match(content[0].text, /^When you close the tab,/);
    assert.equal(stop_reason, 'end_turn');
    assert.ok(usage.output_tokens > 10);
  });

  test('max_tokens and stop sequences end the answer', async () => {
    const cut = await same(ask(short, { max_tokens: 5 }));
    assert.equal(cut.stop_reason, 'max_tokens');
    assert.equal(cut.usage.output_tokens, 5);
    const stopped = await same(ask(short, { stop_sequences: ['nowhere', ' sends'] }));
    assert.equal(stopped.stop_reason, 'stop_sequence');
    assert.equal(stopped.stop_sequence, ' sends');
  });

  test('fields that clients send by default are accepted', async () => {
    const cache_control = { type: 'ephemeral' };
    const answer = await same(ask([{ type: 'text', text: short, cache_control }], {
      system: [{ type: 'text', text: 'You are kind.', cache_control }], metadata: { user_id: 'u' }, service_tier: 'auto', thinking: { type: 'disabled' },
    }));
    assert.equal(answer.content[0].type, 'text');
  });

  for (const tool_choice of [{ type: 'any' }, { type: 'tool', name: 'get_weather', disable_parallel_tool_use: true }]) {
    test(`a call makes a round trip with ${JSON.stringify(tool_choice)}`, async () => {
      const body = ask('What is the weather in Paris?', { tools: [weather], tool_choice });
      const answer = await same(body);
      assert.equal(answer.stop_reason, 'tool_use');
      const [call, ...rest] = answer.content;
      assert.deepEqual(rest, []);
      assert.equal(call.name, 'get_weather');
      assert.ok(['C', 'F'].includes(call.input.unit));
      const results = { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'Rain.' }] };
      const { stop_reason, content } = await client.messages.create({
        ...body, tool_choice: { type: 'auto' }, messages: [...body.messages, { role: 'assistant', content: answer.content }, results],
      });
      assert.equal(stop_reason, 'end_turn');
      assert.ok(content[0].text);
    });
  }

  test('the tool runner works with its defaults', async () => {
    const seen = [];
    const runner = client.beta.messages.toolRunner(ask('What is the weather in Oslo?', {
      max_iterations: 3, tool_choice: { type: 'any' }, tools: [{ ...weather, parse: (input) => input, run: (input) => { seen.push(input.city); return [{ type: 'text', text: 'Rain\0' }]; } }],
    }));
    for await (const { stop_reason } of runner) assert.equal(stop_reason, 'tool_use');
    assert.ok(seen.length >= 2, `${seen.length} calls`);
  });

  test('models are listed in the form of the API', async () => {
    const listed = [];
    for await (const { type, id, display_name, created_at } of client.models.list()) listed.push({ type, id, display_name, dated: Date.parse(created_at) > 0 });
    assert.deepEqual(listed, [{ type: 'model', id: model, display_name: model, dated: true }]);
    assert.equal((await client.models.retrieve(model)).id, model);
  });

  test('count_tokens counts the prompt', async () => {
    const body = ask('What is the weather in Paris?', { tools: [weather] });
    const { input_tokens } = await client.messages.countTokens({ model, messages: body.messages, tools: body.tools });
    const { usage } = await client.messages.create({ ...body, max_tokens: 1 });
    assert.equal(input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
    const { input_tokens: without } = await client.messages.countTokens({ model, messages: body.messages });
    assert.ok(without < input_tokens);
  });

  test('refusals have the form of the API', async () => {
    const refused = (body, kind, type, param) => assert.rejects(client.messages.create(body), (err) => {
      assert.ok(err instanceof kind, err);
      assert.equal(err.type, type);
      assert.ok(err.requestID);
      assert.equal(err.error.whence.param, param);
      return true;
    });
    await refused(ask(short, { temperature: 2 }), BadRequestError, 'invalid_request_error', 'temperature');
    await refused(ask([{ type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } }]), BadRequestError, 'invalid_request_error', 'messages');
    await refused(ask(short, { thread: { type: 'create' } }), BadRequestError, 'invalid_request_error', 'thread');
    await refused(ask(short, { model: 'gpt-4o' }), NotFoundError, 'not_found_error', 'model');
    await refused(ask('word '.repeat(5000), { max_tokens: 5000 }), BadRequestError, 'invalid_request_error', 'messages');
  });

  test('a stopped stream ends with an error', async () => {
    const stream = await client.messages.create({ ...ask(long, { max_tokens: 800 }), stream: true });
    await assert.rejects(async () => {
      for await (const event of stream) {
        if (event.type === 'message_start') {
          const id = event.message.id.replace(/^msg_/, '');
          const { status } = await fetch(`${base}/v1/streams/${id}`, { method: 'DELETE', headers: { Authorization: 'Bearer unused' } });
          assert.equal(status, 202);
        }
        assert.notEqual(event.type, 'message_stop');
      }
    }, (err) => {
      assert.ok(err instanceof APIError, err);
      assert.equal(err.error.error.type, 'api_error');
      assert.equal(err.error.whence.reason, 'user_stop');
      assert.equal(err.error.whence.origin, 'client');
      return true;
    });
  });

  test('a client may leave', async () => {
    const stream = client.messages.stream(ask(long, { max_tokens: 800 }));
    stream.once('text', () => stream.abort());
    await assert.rejects(stream.done(), APIUserAbortError);
  });
});
