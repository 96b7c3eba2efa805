// Tests of the Responses API over a WebSocket with the official openai package, against a running
// whence.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import OpenAI from 'openai';
import { ResponsesWS } from 'openai/resources/responses/ws';

const base = process.env.WHENCE_URL;
const model = 'whence-tiny';
const weather = {
  type: 'function',
  name: 'get_weather',
  description: 'The weather in a city',
  strict: true,
  parameters: { type: 'object', properties: { city: { type: 'string', maxLength: 20 } }, required: ['city'], additionalProperties: false },
};

describe('responses over a WebSocket', { skip: !base && 'WHENCE_URL is not set' }, () => {
  // open returns a function that requests a response and waits for its last event or for an error.
  const open = (t) => {
    const ws = new ResponsesWS(new OpenAI({ baseURL: `${base}/v1`, apiKey: 'unused' }));
    t.after(() => ws.close());
    const last = new Set(['response.completed', 'response.incomplete', 'response.failed', 'error']);
    return (fields) =>
      new Promise((resolve, reject) => {
        const done = (e) => {
          if (!last.has(e.type)) return;
          ws.off('event', done);
          resolve(e);
        };
        ws.on('event', done);
        ws.on('error', () => {}); // errors are events, too
        ws.socket.on?.('close', () => reject(new Error('the WebSocket has ended')));
        ws.send({ type: 'response.create', model, temperature: 0, store: false, ...fields });
      });
  };

  test('a tool is called, and its result continues the response', async (t) => {
    const ask = open(t);
    const called = await ask({ input: 'What is the weather in Paris?', tools: [weather], tool_choice: 'required' });
    assert.equal(called.type, 'response.completed');
    const call = called.response.output.find((item) => item.type === 'function_call');
    assert.equal(call.name, 'get_weather');
    const answered = await ask({
      previous_response_id: called.response.id,
      input: [{ type: 'function_call_output', call_id: call.call_id, output: 'sunny' }],
      max_output_tokens: 20,
    });
    assert.match(answered.type, /^response\.(completed|incomplete)$/);
    assert.equal(answered.response.previous_response_id, called.response.id);
    assert.ok(answered.response.usage.input_tokens > 0);
  });

  test('a bad request leaves the WebSocket usable', async (t) => {
    const ask = open(t);
    const refused = await ask({ input: 'Hi', previous_response_id: 'resp_unknown' });
    assert.equal(refused.type, 'error');
    assert.equal(refused.status, 400);
    assert.equal(refused.error.code, 'previous_response_not_found');
    const answered = await ask({ input: 'Hi', max_output_tokens: 5 });
    assert.match(answered.type, /^response\.(completed|incomplete)$/);
  });
});
