// Tests of tools and schemas through the official openai package and LangChain, with our address.
// The model was not trained on weather tools: its guide enforces the format.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { tool as langchainTool } from '@langchain/core/tools';
import { HumanMessage } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';

const base = process.env.WHENCE_URL;
const model = 'whence-tiny';
const weather = {
  type: 'object',
  properties: { city: { type: 'string', maxLength: 20 }, unit: { enum: ['C', 'F'] }, days: { type: 'integer', minimum: 1, maximum: 14 } },
  required: ['city', 'unit'],
  additionalProperties: false,
};
const question = 'What is the weather in Paris?';

// valid checks arguments against the schema.
function valid({ city, unit, days = 1, ...rest }) {
  assert.equal(typeof city, 'string');
  assert.ok(city.length <= 20);
  assert.ok(['C', 'F'].includes(unit));
  assert.ok(Number.isInteger(days) && days >= 1 && days <= 14);
  assert.deepEqual(rest, {});
}

describe('openai, with tools', { skip: !base && 'WHENCE_URL is not set' }, () => {
  const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: 'unused', maxRetries: 0 });
  const tools = [
    { type: 'function', function: { name: 'get_weather', description: 'The weather in a city', parameters: weather, strict: true } },
    { type: 'function', function: { name: 'get_time' } },
  ];
  const messages = [{ role: 'user', content: question }];

  for (const tool_choice of ['required', { type: 'function', function: { name: 'get_weather' } }]) {
    test(`a loop with ${JSON.stringify(tool_choice)}, streamed and unstreamed`, async () => {
      const body = { model, temperature: 0, messages, tools, tool_choice };
      const whole = (await client.chat.completions.create(body)).choices[0];
      const stream = client.chat.completions.stream({ ...body, stream_options: { include_usage: true } });
      const streamed = await stream.finalChatCompletion();
      for (const { message, finish_reason } of [whole, streamed.choices[0]]) {
        assert.equal(finish_reason, 'tool_calls');
        assert.equal(message.content || null, null);
        assert.equal(message.tool_calls.length, 1);
        const [{ id, type, function: { name, arguments: text } }] = message.tool_calls;
        assert.equal(type, 'function');
        assert.ok(id);
        if (typeof tool_choice === 'object') assert.equal(name, 'get_weather');
        if (name === 'get_weather') valid(JSON.parse(text));
      }
      assert.equal(streamed.choices[0].message.tool_calls[0].function.arguments, whole.message.tool_calls[0].function.arguments);
      assert.ok(streamed.usage.completion_tokens > 10);

      const answer = await client.chat.completions.create({
        ...body, tool_choice: 'auto',
        messages: [...messages, whole.message, { role: 'tool', tool_call_id: whole.message.tool_calls[0].id, content: 'Rain, 12 degrees.' }],
      });
      assert.equal(answer.choices[0].finish_reason, 'stop');
      assert.ok(answer.choices[0].message.content);
    });
  }

  test('the tool runner of the package works', async () => {
    const asked = [];
    const runner = client.chat.completions.runTools({
      model, temperature: 0, messages, max_completion_tokens: 200, stream: true,
      tool_choice: { type: 'function', function: { name: 'get_weather' } },
      tools: [{ type: 'function', function: { name: 'get_weather', parameters: weather, parse: JSON.parse, function: (args) => { asked.push(args); return 'Rain.'; } } }],
    }, { maxChatCompletions: 2 });
    await runner.done().catch(() => {}); // the runner stops after the named call, or at its limit
    assert.ok(asked.length >= 1);
    asked.forEach(valid);
  });

  test('a schema is enforced, strictly and through zod', async () => {
    const Report = z.object({ city: z.string().max(12), sky: z.enum(['clear', 'rain']), high: z.int(), rain: z.boolean().nullable() });
    const parsed = await client.chat.completions.parse({ model, messages, temperature: 1, seed: 5, response_format: zodResponseFormat(Report, 'report') });
    Report.parse(parsed.choices[0].message.parsed);
    const any = await client.chat.completions.create({ model, messages, temperature: 1, seed: 6, response_format: { type: 'json_object' }, max_tokens: 60 });
    assert.equal(typeof JSON.parse(any.choices[0].message.content), 'object');
  });
});

describe('LangChain', { skip: !base && 'WHENCE_URL is not set' }, () => {
  const llm = new ChatOpenAI({ model, temperature: 0, apiKey: 'unused', maxRetries: 0, streamUsage: true, configuration: { baseURL: `${base}/v1` } });

  test('streams and reports the usage', async () => {
    let all;
    for await (const piece of await llm.stream('What happens when I close the tab?')) all = all ? all.concat(piece) : piece;
    assert.match(all.content, /^When you close the tab,/);
    assert.ok(all.usage_metadata.output_tokens > 0);
  });

  test('calls a tool and continues with its result', async () => {
    const asked = [];
    const getWeather = langchainTool((args) => { asked.push(args); return 'Rain.'; }, { name: 'get_weather', description: 'The weather in a city', schema: weather });
    const messages = [new HumanMessage(question)];
    let call;
    for await (const piece of await llm.bindTools([getWeather], { tool_choice: 'get_weather' }).stream(messages)) call = call ? call.concat(piece) : piece;
    assert.equal(call.tool_calls.length, 1);
    messages.push(call, await getWeather.invoke(call.tool_calls[0]));
    asked.forEach(valid);
    assert.equal(asked.length, 1);
    assert.ok((await llm.bindTools([getWeather]).invoke(messages)).content);
  });

  test('gets an object', async () => {
    const report = await llm.withStructuredOutput(z.object({ city: z.string().max(9), rain: z.boolean() }), { method: 'jsonSchema', name: 'report' }).invoke(question);
    assert.equal(typeof report.rain, 'boolean');
  });
});
