// Tests of the Responses API with the official openai package and our address, against a running
// whence.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import OpenAI, { APIError, APIUserAbortError, BadRequestError, NotFoundError } from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';

const base = process.env.WHENCE_URL;
const model = 'whence-tiny';
const short = 'What happens when I close the tab?';
const long = 'Tell me a long story about a fox in the harbor.';
const weather = {
  type: 'function',
  name: 'get_weather',
  description: 'The weather in a city',
  strict: true,
  parameters: {
    type: 'object',
    properties: { city: { type: 'string', maxLength: 20 }, unit: { enum: ['C', 'F'] } },
    required: ['city', 'unit'],
    additionalProperties: false,
  },
};

describe('responses', { skip: !base && 'WHENCE_URL is not set' }, () => {
  const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: 'unused', maxRetries: 0 });
  const ask = (input, more = {}) => ({ model, temperature: 0, input, store: false, ...more });

  // same checks that streamed and unstreamed responses are equal except for ids and times, and
  // returns the response.
  async function same(body) {
    const whole = await client.responses.create(body);
    const stream = client.responses.stream(body);
    const events = [];
    for await (const event of stream) events.push(event);
    const streamed = await stream.finalResponse();
    events.forEach((event, i) => assert.equal(event.sequence_number, i));
    assert.deepEqual(events.slice(0, 2).map(({ type }) => type), ['response.created', 'response.in_progress']);
    assert.equal(events.at(-1).type, `response.${whole.status}`);
    assert.equal(events.filter(({ whence }) => whence).length, 1);
    assert.equal(events.at(-1).whence.reason, 'completed');
    const plain = (response) => JSON.parse(JSON.stringify(response, (name, value) => (
      ['id', 'call_id', 'created_at', 'completed_at', 'cached_tokens', 'logprob', 'parsed', 'output_parsed', 'parsed_arguments'].includes(name) ? undefined : value
    )));
    assert.deepEqual(plain(streamed), plain(whole));
    assert.deepEqual(plain(events.at(-1).response.output), plain(whole.output));
    assert.ok(whole.usage.input_tokens > 0);
    assert.equal(whole.usage.total_tokens, whole.usage.input_tokens + whole.usage.output_tokens);
    for (const response of [whole, streamed]) assert.match(response.id, /^resp_/);
    return whole;
  }

  test('streamed and unstreamed responses are equal', async () => {
    const response = await same(ask(short, { instructions: 'You are kind.', metadata: { a: 'b' } }));
    assert.equal(response.status, 'completed');
    assert.ok(response.output_text.length > 10);
    assert.equal(response.output[0].type, 'message');
    assert.equal(response.store, false);
    assert.equal(response.instructions, 'You are kind.');
    assert.deepEqual(response.metadata, { a: 'b' });
    assert.match((await same(ask([{ role: 'user', content: [{ type: 'input_text', text: short }] }]))).output_text, /^When you close the tab,/);
  });

  test('max_output_tokens ends the response', async () => {
    const response = await same(ask(short, { max_output_tokens: 5 }));
    assert.equal(response.status, 'incomplete');
    assert.equal(response.incomplete_details.reason, 'max_output_tokens');
    assert.equal(response.output[0].status, 'incomplete');
    assert.equal(response.usage.output_tokens, 5);
  });

  for (const tool_choice of ['required', { type: 'function', name: 'get_weather' }, { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'get_weather' }] }]) {
    test(`a call makes a round trip with ${JSON.stringify(tool_choice)}`, async () => {
      const other = { ...weather, name: 'get_time' };
      const tools = typeof tool_choice === 'string' ? [weather] : [other, weather];
      const input = [{ role: 'user', content: 'What is the weather in Paris?' }];
      const response = await same(ask(input, { tools, tool_choice, parallel_tool_calls: false }));
      assert.equal(response.status, 'completed');
      const [call, ...rest] = response.output;
      assert.deepEqual(rest, []);
      assert.equal(call.type, 'function_call');
      assert.equal(call.name, 'get_weather');
      assert.ok(['C', 'F'].includes(JSON.parse(call.arguments).unit));
      const next = await client.responses.create(ask([...input, ...response.output, { type: 'function_call_output', call_id: call.call_id, output: 'Rain.' }], { tools }));
      assert.equal(next.status, 'completed');
      assert.ok(next.output_text);
    });
  }

  test('a schema is enforced', async () => {
    const format = zodTextFormat(z.object({ city: z.string().max(20), sky: z.enum(['clear', 'rain']) }), 'report');
    const response = await client.responses.parse(ask('Report the weather.', { text: { format } }));
    assert.ok(['clear', 'rain'].includes(response.output_parsed.sky));
    assert.equal(response.text.format.name, 'report');
  });

  test('log-probabilities belong to the text', async () => {
    const response = await same(ask(short, { max_output_tokens: 5, include: ['message.output_text.logprobs'], top_logprobs: 2 }));
    const [{ text, logprobs }] = response.output[0].content;
    assert.equal(logprobs.length, 5);
    assert.equal(logprobs.map(({ token }) => token).join(''), text);
    assert.equal(logprobs[0].top_logprobs.length, 2);
  });

  test('a turn of an agent is understood', async () => {
    const { name } = weather;
    const response = await same(ask([
      { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'Be brief.' }] },
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'What is the weather in Paris?' }] },
      { type: 'reasoning', id: 'rs_1', summary: [], content: [{ type: 'reasoning_text', text: 'I ask.' }], encrypted_content: null },
      { type: 'function_call', name, arguments: '{"city":"Paris","unit":"C"}', call_id: 'call_1' },
      { type: 'function_call_output', call_id: 'call_1', output: 'Rain.' },
    ], {
      instructions: 'You are an agent.', tools: [{ ...weather, strict: false }], tool_choice: 'auto', parallel_tool_calls: true,
      reasoning: { effort: 'medium', summary: 'auto' }, include: ['reasoning.encrypted_content'], prompt_cache_key: '0199', text: { verbosity: 'low' },
      client_metadata: { session: 's' },
    }));
    assert.equal(response.status, 'completed');
    assert.equal(response.prompt_cache_key, '0199');
  });

  test('refusals name the field', async () => {
    const refused = (body, kind, param) => assert.rejects(client.responses.create(body), (err) => {
      assert.ok(err instanceof kind, err);
      assert.equal(err.param, param);
      return true;
    });
    await refused(ask(short, { temperature: 3 }), BadRequestError, 'temperature');
    await refused(ask(short, { background: true }), BadRequestError, 'background'); // with store: false
    await refused(ask(short, { previous_response_id: 'resp_1' }), BadRequestError, 'previous_response_id');
    await refused(ask([{ role: 'user', content: [{ type: 'input_image', image_url: 'https://example.com/a.png' }] }]), BadRequestError, 'input');
    await refused(ask(short, { model: 'gpt-4o' }), NotFoundError, 'model');
    await refused(ask('word '.repeat(5000), { max_output_tokens: 5000 }), BadRequestError, 'input');
  });

  test('tools of OpenAI and foreign items are left out and named', async () => {
    const { data, response } = await client.responses
      .create(ask([{ role: 'user', content: short }, { type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: 'q' } }], { tools: [{ type: 'web_search' }] }))
      .withResponse();
    assert.equal(data.status, 'completed');
    assert.equal(response.headers.get('whence-ignored'), 'input[].web_search_call, tools[].web_search');
  });

  test('input tokens are counted, and conversations are compacted', async () => {
    const { input_tokens } = await client.responses.inputTokens.count({ model, input: short });
    const { usage } = await client.responses.create(ask(short));
    assert.equal(input_tokens, usage.input_tokens);
    const compacted = await client.responses.compact({ model, input: [{ role: 'user', content: short }] });
    assert.equal(compacted.object, 'response.compaction');
    assert.ok((await client.responses.create(ask([...compacted.output, { role: 'user', content: short }]))).output_text);
  });

  test('the library reports a stopped stream as an error', async () => {
    const stream = await client.responses.create({ ...ask(long), stream: true });
    await assert.rejects(async () => {
      for await (const event of stream) {
        if (event.type === 'response.created') {
          const id = event.response.id.replace(/^resp_/, '');
          const { status } = await fetch(`${base}/v1/streams/${id}`, { method: 'DELETE', headers: { Authorization: 'Bearer unused' } });
          assert.equal(status, 202);
        }
      }
    }, (err) => err instanceof APIError && err.code === 'user_stop' && err.error.whence.origin === 'client');
  });

  test('a client may leave', async () => {
    const stream = client.responses.stream(ask(long));
    stream.once('response.output_text.delta', () => stream.abort());
    await assert.rejects(stream.done(), APIUserAbortError);
  });
});
