// Tests of the packages eventsource, eventsource-client and @microsoft/fetch-event-source, against
// a running whence, through a proxy that cuts their connections:
//
//   WHENCE_URL=http://127.0.0.1:8080 npm test             # here, after npm ci

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { fetchEventSource } from '@microsoft/fetch-event-source';
import { EventSource } from 'eventsource';
import { createEventSource } from 'eventsource-client';
import { cutter } from '../cutter.mjs';

const base = process.env.WHENCE_URL;
const body = { model: 'whence-tiny', temperature: 0, messages: [{ role: 'user', content: 'Tell me a long story about a fox in the harbor.' }] };

async function post(path) {
  const response = await fetch(base + path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
  assert.ok(response.ok, `${path}: ${response.status}`);
  return response.json();
}

// read follows a stream with one of the packages: follow calls seen for each event, and returns
// when the reader has ended by itself. The text must equal the undisturbed answer, and no event may
// be repeated.
async function read(follow, more) {
  const proxy = await cutter(base, { times: 3, bytes: 800, ...more });
  try {
    const { choices: [{ message }] } = await post('/v1/chat/completions');
    const { events, read_token: token } = await post('/v1/streams');
    const ids = [], names = [];
    let text = '';
    await follow(`${proxy.url}${events}?token=${token}`, (id, name, data) => {
      ids.push(id);
      if (name === 'delta') text += JSON.parse(data).text;
      else names.push(name);
    });
    assert.equal(text, message.content);
    assert.equal(new Set(ids).size, ids.length, 'an event was repeated');
    assert.deepEqual(names, ['usage', 'ending']);
    assert.equal(proxy.cuts, 3);
  } finally {
    await proxy.close();
  }
}

describe('readers that are cut', { skip: !base && 'WHENCE_URL is not set' }, () => {
  test('eventsource resumes, and stops after the end', () => read((url, seen) => new Promise((resolve) => {
    const source = new EventSource(url);
    for (const name of ['delta', 'usage', 'ending']) source.addEventListener(name, ({ lastEventId, data }) => seen(lastEventId, name, data));
    source.addEventListener('error', () => { // 204 after the end is what closes it
      if (source.readyState === EventSource.CLOSED) resolve();
    });
  })));

  test('eventsource-client resumes', () => read(async (url, seen) => {
    const source = createEventSource({ url });
    for await (const { id, event, data } of source) {
      seen(id, event, data);
      if (event === 'ending') break;
    }
    source.close();
  }));

  test('fetch-event-source resumes, and stops after the end', () => {
    // The package is for browsers: it uses only these browser objects.
    globalThis.window = globalThis;
    globalThis.document = { addEventListener() {}, removeEventListener() {} };
    return read((url, seen) => {
      let over = false;
      return fetchEventSource(url, {
        openWhenHidden: true,
        onmessage: ({ id, event, data }) => {
          if (!event) return; // the retry hint
          seen(id, event, data);
          over ||= event === 'ending' || event === 'error';
        },
        onclose: () => { if (!over) throw new Error('cut'); }, // makes the package reconnect: for Node's fetch, a cut body has ended normally
      });
    }, { inLine: true }); // the package records an event's id when it has read the id line, before the empty line that ends the event
  });
});
