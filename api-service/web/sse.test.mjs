import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Parser } from './assets/sse.js';

const bytes = (text) => new TextEncoder().encode(text);

// parse pushes the parts in turn and returns the data of all events.
function parse(...parts) {
  const parser = new Parser();
  return parts.flatMap((part) => parser.push(typeof part === 'string' ? bytes(part) : part)).map(({ data }) => data);
}

const stories = {
  'LF': ['data: a\n\ndata: b\n\n', ['a', 'b']],
  'CRLF': ['data: a\r\n\r\ndata: b\r\n\r\n', ['a', 'b']],
  'CR': ['data: a\r\rdata: b\r\r', ['a', 'b']],
  'mixed line ends': ['data: a\r\n\ndata: b\n\r\ndata: c\r\n\r', ['a', 'b', 'c']],
  'many data lines': ['data: a\r\ndata:\r\ndata: b\r\n\r\n', ['a\n\nb']],
  'comments': [': ping\n\ndata: a\n: ping\n\n:\n\ndata: b\n\n', ['a', 'b']],
  'other fields': ['id: 7\nretry: 10\nevent: token\ndata: a\n\nid: 8\n\nnonsense\ndata: b\n\n', ['a', 'b']],
  'no space, many spaces': ['data:a\n\ndata:  b: c\n\ndata\n\n', ['a', ' b: c', '']],
  'text beyond ASCII': ['data: 你好 ❄️ 🌙\n\ndata: привет\n\n', ['你好 ❄️ 🌙', 'привет']],
  'byte order mark': ['\ufeffdata: a\n\n', ['a']],
  'unfinished last event': ['data: a\n\ndata: b\n', ['a']],
  'chunks and DONE': ['data: {"choices":[]}\n\ndata: [DONE]\n\n', ['{"choices":[]}', '[DONE]']],
};

for (const [name, [text, want]] of Object.entries(stories)) {
  test(`${name}: whole, split at every byte, and byte by byte`, () => {
    const all = bytes(text);
    assert.deepEqual(parse(all), want);
    for (let at = 0; at <= all.length; at++) {
      assert.deepEqual(parse(all.subarray(0, at), all.subarray(at)), want, `split at ${at}`);
    }
    assert.deepEqual(parse(...Array.from(all, (byte) => Uint8Array.of(byte))), want);
    assert.deepEqual(parse(...Array.from(all, (byte) => [Uint8Array.of(byte), new Uint8Array()]).flat()), want);
  });
}

test('an event arrives with its last byte, not with the next one', () => {
  const parser = new Parser();
  assert.deepEqual(parser.push(bytes('data: a\r\n\r')), [{ event: 'message', data: 'a' }]);
  assert.deepEqual(parser.push(bytes('\n')), []);
});

test('the event name belongs to one event', () => {
  const parser = new Parser();
  assert.deepEqual(parser.push(bytes('event: error\ndata: a\n\ndata: b\n\n')), [
    { event: 'error', data: 'a' },
    { event: 'message', data: 'b' },
  ]);
});

test('an event without end is refused, not kept', () => {
  const part = bytes('x'.repeat(1 << 16));
  const endless = (prefix) => () => {
    const parser = new Parser();
    for (let i = 0; i < 64; i++) {
      parser.push(bytes(prefix));
      parser.push(part);
    }
  };
  assert.throws(endless('data: '), /too large/);
  assert.throws(endless('\ndata: '), /too large/);
});
