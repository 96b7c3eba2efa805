// Tests of Vercel's AI SDK with each of its providers for our APIs, with our address.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateText, jsonSchema, Output, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

const base = process.env.WHENCE_URL;
const name = 'whence-tiny';
const short = 'What happens when I close the tab?';
const long = 'Tell me a long story about a fox in the harbor.';
const question = 'What is the weather in Paris?';
const weather = {
  type: 'object',
  properties: { city: { type: 'string', maxLength: 20 }, unit: { enum: ['C', 'F'] } },
  required: ['city', 'unit'],
  additionalProperties: false,
};

const to = { baseURL: `${base}/v1`, apiKey: 'unused' };
const openai = createOpenAI(to);

// A surface has a provider's models by name, and its API's error for an unknown model.
const surfaces = {
  'OpenAI, Responses': { of: openai, code: 'model_not_found', providerOptions: { openai: { store: false } } },
  'OpenAI, chat completions': { of: openai.chat, code: 'model_not_found' },
  'OpenAI-compatible': { of: createOpenAICompatible({ ...to, name: 'whence', includeUsage: true, supportsStructuredOutputs: true }), code: 'model_not_found' },
  'Anthropic': { of: createAnthropic(to), code: 'not_found_error' },
};

for (const [surface, { of, code, providerOptions }] of Object.entries(surfaces)) {
  describe(`Vercel AI SDK: ${surface}`, { skip: !base && 'WHENCE_URL is not set', concurrency: true }, () => {
    const settings = { model: of(name), temperature: 0, maxRetries: 0, maxOutputTokens: 300, providerOptions };

    test('streamed and unstreamed answers are equal', async () => {
      const whole = await generateText({ ...settings, prompt: short });
      const stream = streamText({ ...settings, prompt: short });
      let text = '';
      for await (const piece of stream.textStream) text += piece;
      assert.match(text, /^When you close the tab,/);
      assert.equal(text, whole.text);
      const usage = await stream.usage;
      assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0);
      assert.deepEqual([usage.inputTokens, usage.outputTokens], [whole.usage.inputTokens, whole.usage.outputTokens]);
      assert.deepEqual([await stream.finishReason, whole.finishReason], ['stop', 'stop']);
    });

    test('a limit ends the answer', async () => {
      const { finishReason, usage } = await generateText({ ...settings, prompt: long, maxOutputTokens: 5 });
      assert.equal(finishReason, 'length');
      assert.equal(usage.outputTokens, 5);
    });

    test('a tool is called, and its result is used', async () => {
      const asked = [];
      const tools = {
        get_weather: tool({ description: 'The weather in a city', inputSchema: jsonSchema(weather), execute: async (args) => { asked.push(args); return 'Rain.'; } }),
      };
      const whole = await generateText({ ...settings, prompt: question, tools, toolChoice: 'required' });
      assert.equal(whole.finishReason, 'tool-calls');
      assert.equal(whole.toolResults[0].output, 'Rain.');
      const stream = streamText({
        ...settings, prompt: question, tools, stopWhen: stepCountIs(2),
        prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? { type: 'tool', toolName: 'get_weather' } : 'auto' }),
      });
      let text = '';
      for await (const piece of stream.textStream) text += piece;
      assert.ok(text);
      assert.equal((await stream.steps).length, 2);
      assert.equal(asked.length, 2);
      for (const { city, unit, ...rest } of asked) {
        assert.ok(typeof city === 'string' && city.length <= 20 && ['C', 'F'].includes(unit));
        assert.deepEqual(rest, {});
      }
    });

    test('a schema is enforced', async () => {
      const schema = z.object({ city: z.string().max(9), rain: z.boolean() });
      const { output } = await generateText({ ...settings, prompt: question, output: Output.object({ schema }) });
      schema.parse(output);
      const stream = streamText({ ...settings, prompt: question, output: Output.object({ schema }) });
      let last;
      for await (const partial of stream.partialOutputStream) last = partial;
      assert.deepEqual(last, output);
    });

    test('an abort ends the stream', async () => {
      const abort = new AbortController();
      let aborted = false;
      const stream = streamText({ ...settings, prompt: long, abortSignal: abort.signal, onAbort: () => { aborted = true; } });
      const parts = [];
      for await (const { type } of stream.fullStream) {
        parts.push(type);
        if (type === 'text-delta') abort.abort();
      }
      assert.ok(aborted);
      assert.equal(parts.at(-1), 'abort');
    });

    test('a refusal has its status, its code and our reason', async () => {
      const refused = await generateText({ ...settings, model: of('nobody'), prompt: short }).catch((err) => err);
      assert.ok(APICallError.isInstance(refused), refused);
      assert.equal(refused.statusCode, 404);
      assert.match(refused.message, /nobody/);
      assert.equal(refused.data.error.code ?? refused.data.error.type, code);
      assert.equal(refused.isRetryable, false);
      const body = JSON.parse(refused.responseBody);
      const { reason, origin } = body.whence ?? body.error.whence;
      assert.deepEqual([reason, origin], ['not_found', 'chat-service']);
    });

    test('a stopped stream ends with an error', async () => {
      const id = `vercel-${surface.replace(/\W/g, '')}-${crypto.randomUUID()}`;
      let failure;
      const stream = streamText({ ...settings, prompt: long, headers: { 'X-Request-Id': id }, onError: ({ error }) => { failure ??= error; } });
      let stopped;
      const read = async () => {
        for await (const { type } of stream.fullStream) {
          if (type === 'text-delta') stopped ??= fetch(`${base}/v1/streams/${id}`, { method: 'DELETE' });
        }
      };
      await read().catch((err) => { failure ??= err; }); // the body of a failed stream has no end
      assert.equal((await stopped).status, 202);
      assert.match(failure.message, /a request from 127\.0\.0\.1 asked for the stream to stop/);
    });
  });
}

for (const store of [undefined, true, false]) {
  test(`Vercel AI SDK: a second turn over Responses, with store: ${store}`, { skip: !base && 'WHENCE_URL is not set' }, async () => {
    const ask = async (messages) => generateText({ model: openai(name), temperature: 0, maxRetries: 0, messages, providerOptions: { openai: { store } } });
    const first = await ask([{ role: 'user', content: short }]);
    const second = await ask([{ role: 'user', content: short }, ...first.response.messages, { role: 'user', content: question }]);
    assert.ok(second.text);
    assert.equal(second.response.headers['whence-ignored'], undefined); // with store, the request refers to the first answer, which is found
  });
}
