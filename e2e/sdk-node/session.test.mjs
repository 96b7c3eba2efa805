// A session of five turns through each client library of npm, with the library's default settings: a tool,
// a tool that returns an image, a tool that returns a NUL, a call that was cut off, and an answer that is
// aborted and then continued. The model behind WHENCE_URL follows a script: it calls the tool that a
// question names, says what a tool has returned, and goes on with what it has said.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import { AIMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool as langchainTool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { generateText, jsonSchema, streamText, tool } from 'ai';
import { Ollama } from 'ollama';
import OpenAI from 'openai';

const base = process.env.WHENCE_URL;
const model = 'whence-tiny';
const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const url = `data:image/png;base64,${png}`;
const picture = 'a picture of a fox';
const results = { 'word.txt': 'fox-17', 'fox.png': picture, 'zip.bin': 'PK\0\x03' };
const cut = '{"path": "cutmark';
const cutResult = 'The call was cut off.';
const schema = { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] };
const to = { baseURL: `${base}/v1`, apiKey: 'unused' };

// Each library has a chat: user, result, image and said add to its history, turn asks for an answer, cut adds
// a call that was cut off, and begin returns the first piece of an answer and aborts it.

const functions = [{ type: 'function', function: { name: 'read_file', parameters: schema } }];

// chats is a chat over chat completions, without the calls of a library.
function chats() {
  const messages = [];
  return {
    messages,
    user: (content) => messages.push({ role: 'user', content }),
    result: (call, content) => messages.push({ role: 'tool', tool_call_id: call.id, content }),
    image(call, text) { this.result(call, [{ type: 'text', text }, { type: 'image_url', image_url: { url } }]); },
    said: (content) => messages.push({ role: 'assistant', content }),
    cut() {
      messages.push({ role: 'assistant', content: null, tool_calls: [{ id: 'call_cut', type: 'function', function: { name: 'read_file', arguments: cut } }] });
      this.result({ id: 'call_cut' }, cutResult);
    },
  };
}

function openaiChats() {
  const client = new OpenAI(to);
  const chat = chats();
  const body = { model, messages: chat.messages, tools: functions };
  return {
    ...chat,
    async turn() {
      const { message } = (await client.chat.completions.create(body)).choices[0];
      chat.messages.push(message);
      return { text: message.content, calls: (message.tool_calls ?? []).map((c) => ({ id: c.id, path: JSON.parse(c.function.arguments).path })) };
    },
    async begin() {
      for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
        if (chunk.choices[0]?.delta.content) return chunk.choices[0].delta.content; // leaving the loop aborts the stream
      }
    },
  };
}

function openaiResponses() {
  const client = new OpenAI(to);
  const input = [];
  const body = { model, input, tools: [{ type: 'function', name: 'read_file', parameters: schema, strict: false }] };
  return {
    user: (content) => input.push({ role: 'user', content }),
    result: (call, output) => input.push({ type: 'function_call_output', call_id: call.id, output }),
    image(call, text) { this.result(call, [{ type: 'input_text', text }, { type: 'input_image', image_url: url, detail: 'auto' }]); },
    said: (content) => input.push({ role: 'assistant', content }),
    cut() {
      input.push({ type: 'function_call', call_id: 'call_cut', name: 'read_file', arguments: cut });
      this.result({ id: 'call_cut' }, cutResult);
    },
    async turn() {
      const response = await client.responses.create(body);
      input.push(...response.output);
      const calls = response.output.filter((i) => i.type === 'function_call').map((i) => ({ id: i.call_id, path: JSON.parse(i.arguments).path }));
      return { text: response.output_text, calls };
    },
    async begin() {
      for await (const event of await client.responses.create({ ...body, stream: true })) {
        if (event.type === 'response.output_text.delta') return event.delta;
      }
    },
  };
}

function anthropic() {
  const client = new Anthropic({ baseURL: base, apiKey: 'unused' });
  const messages = [];
  const body = { model, max_tokens: 1024, messages, tools: [{ name: 'read_file', input_schema: schema }] };
  const add = (role, content) => messages.push({ role, content });
  return {
    user: (text) => add('user', text),
    result: (call, content) => add('user', [{ type: 'tool_result', tool_use_id: call.id, content }]),
    image(call, text) { this.result(call, [{ type: 'text', text }, { type: 'image', source: { type: 'base64', media_type: 'image/png', data: png } }]); },
    said: (text) => add('assistant', text),
    cut() {
      add('user', 'Read another file.');
      add('assistant', [{ type: 'tool_use', id: 'toolu_cut', name: 'read_file', input: cut }]);
      this.result({ id: 'toolu_cut' }, cutResult);
    },
    async turn() {
      const { content } = await client.messages.create(body);
      add('assistant', content);
      const calls = content.filter((b) => b.type === 'tool_use').map((b) => ({ id: b.id, path: b.input.path }));
      return { text: content.filter((b) => b.type === 'text').map((b) => b.text).join(''), calls };
    },
    async begin() {
      for await (const event of client.messages.stream(body)) {
        if (event.type === 'content_block_delta') return event.delta.text;
      }
    },
  };
}

function ollama() {
  const client = new Ollama({ host: base });
  const chat = chats();
  const body = { model, messages: chat.messages, tools: functions };
  return {
    ...chat,
    result: (_, content) => chat.messages.push({ role: 'tool', tool_name: 'read_file', content }),
    image: (_, content) => chat.messages.push({ role: 'tool', tool_name: 'read_file', content, images: [png] }),
    cut() {
      chat.messages.push({ role: 'assistant', content: '', tool_calls: [{ function: { name: 'read_file', arguments: cut } }] });
      this.result({}, cutResult);
    },
    async turn() {
      const { message } = await client.chat(body);
      chat.messages.push(message);
      return { text: message.content, calls: (message.tool_calls ?? []).map((c) => ({ path: c.function.arguments.path })) };
    },
    async begin() {
      const stream = await client.chat({ ...body, stream: true });
      let begun = '';
      await assert.rejects(async () => {
        for await (const chunk of stream) {
          begun ||= chunk.message.content;
          stream.abort();
        }
      }, { name: 'AbortError' });
      return begun;
    },
  };
}

function langchain() {
  const llm = new ChatOpenAI({ model, apiKey: 'unused', configuration: { baseURL: to.baseURL } });
  const bound = llm.bindTools([langchainTool(() => '', { name: 'read_file', schema })]);
  const messages = [];
  return {
    user: (text) => messages.push(new HumanMessage(text)),
    result: (call, content) => messages.push(new ToolMessage({ content, tool_call_id: call.id })),
    image(call, text) { this.result(call, [{ type: 'text', text }, { type: 'image_url', image_url: { url } }]); },
    said: (text) => messages.push(new AIMessage(text)),
    cut() {
      const call = { id: 'call_cut', type: 'function', function: { name: 'read_file', arguments: cut } };
      messages.push(new AIMessage({ content: '', additional_kwargs: { tool_calls: [call] } }));
      this.result({ id: 'call_cut' }, cutResult);
    },
    async turn() {
      const message = await bound.invoke(messages);
      messages.push(message);
      return { text: message.text, calls: message.tool_calls.map((c) => ({ id: c.id, path: c.args.path })) };
    },
    async begin() {
      for await (const chunk of await bound.stream(messages)) {
        if (chunk.text) return chunk.text;
      }
    },
  };
}

// aiSDK is a chat over one of the providers of the AI SDK.
function aiSDK(provider) {
  const messages = [];
  const settings = { model: provider(model), messages, tools: { read_file: tool({ inputSchema: jsonSchema(schema) }) } };
  const add = (role, content) => messages.push({ role, content });
  const output = (id, value) => add('tool', [{ type: 'tool-result', toolCallId: id, toolName: 'read_file', output: value }]);
  return {
    user: (text) => add('user', text),
    result: (call, value) => output(call.id, { type: 'text', value }),
    image: (call, text) => output(call.id, { type: 'content', value: [{ type: 'text', text }, { type: 'image-data', data: png, mediaType: 'image/png' }] }),
    said: (text) => add('assistant', text),
    cut() {
      add('user', 'Read another file.');
      add('assistant', [{ type: 'tool-call', toolCallId: 'call_cut', toolName: 'read_file', input: cut }]);
      this.result({ id: 'call_cut' }, cutResult);
    },
    async turn() {
      const { text, toolCalls, response } = await generateText(settings);
      messages.push(...response.messages);
      return { text, calls: toolCalls.map((c) => ({ id: c.toolCallId, path: c.input.path })) };
    },
    async begin() {
      const abort = new AbortController();
      for await (const text of streamText({ ...settings, abortSignal: abort.signal }).textStream) {
        abort.abort();
        return text;
      }
    },
  };
}

const libraries = {
  'openai, chats': openaiChats,
  'openai, responses': openaiResponses,
  '@anthropic-ai/sdk': anthropic,
  'ollama': ollama,
  '@langchain/openai': langchain,
  'AI SDK, openai': () => aiSDK(createOpenAI(to)),
  'AI SDK, anthropic': () => aiSDK(createAnthropic(to)),
  'AI SDK, openai-compatible': () => aiSDK(createOpenAICompatible({ ...to, name: 'whence' })),
};

describe('a session', { skip: !base && 'WHENCE_URL is not set', concurrency: true }, () => {
  for (const [name, begin] of Object.entries(libraries)) {
    test(name, async () => {
      const chat = begin();
      for (const [path, result] of Object.entries(results)) {
        chat.user(`Read ${path} with the tool.`);
        const { calls } = await chat.turn();
        assert.deepEqual(calls.map((c) => c.path), [path]);
        if (path === 'fox.png') chat.image(calls[0], result);
        else chat.result(calls[0], result);
        const { text } = await chat.turn();
        assert.ok(text.includes(result.split('\0')[0]), text);
      }
      chat.cut();
      chat.user('Which call was cut?');
      assert.match((await chat.turn()).text, /cutmark/);
      chat.user('Tell a story.');
      const begun = await chat.begin();
      assert.ok(begun);
      chat.said(begun);
      chat.user('Go on.');
      assert.match((await chat.turn()).text, /I go on/);
    });
  }
});
