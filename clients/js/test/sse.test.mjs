import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Parser } from '../src/sse.js';

const bytes = (text) => new TextEncoder().encode(text);

// parse pushes the parts in turn and returns all events as [id, event, data], and the last retry.
function parse(...parts) {
  const parser = new Parser();
  const events = parts.flatMap((part) => parser.push(part)).map(({ id, event, data }) => [id, event, data]);
  return { events, retry: parser.retry };
}

const plain = (...data) => data.map((text) => ['', 'message', text]);

const stories = {
  'LF': ['data: a\n\ndata: b\n\n', plain('a', 'b')],
  'CRLF': ['data: a\r\n\r\ndata: b\r\n\r\n', plain('a', 'b')],
  'CR': ['data: a\r\rdata: b\r\r', plain('a', 'b')],
  'mixed line ends': ['data: a\r\n\ndata: b\n\r\ndata: c\r\n\r', plain('a', 'b', 'c')],
  'many data lines': ['data: a\r\ndata:\r\ndata: b\r\n\r\n', plain('a\n\nb')],
  'comments': [': ping\n\ndata: a\n: ping\n\n:\n\ndata: b\n\n', plain('a', 'b')],
  'no space, many spaces': ['data:a\n\ndata:  b: c\n\ndata\n\n', plain('a', ' b: c', '')],
  'text beyond ASCII': ['data: 你好 ❄️ 🌙\n\ndata: привет\n\n', plain('你好 ❄️ 🌙', 'привет')],
  'byte order mark': ['\ufeffdata: a\n\n\ufeffdata: b\n\n', plain('a')],
  'unfinished last event': ['data: a\n\ndata: b\n', plain('a')],
  'an id persists after its event, an event name does not': [
    'id: e.1\nevent: delta\ndata: a\n\ndata: b\n\nid\ndata: c\n\n', [['e.1', 'delta', 'a'], ['e.1', 'message', 'b'], ['', 'message', 'c']],
  ],
  'an id without data counts, an id with NUL does not': ['id: 8\n\nid: 9\0\ndata: a\n\n', [['8', 'message', 'a']]],
  'retry': ['retry: 10\n\nretry: 1e3\nretry: -5\nretry:\nnonsense\ndata: a\n\n', plain('a'), 10],
};

for (const [name, [text, want, retry]] of Object.entries(stories)) {
  test(`${name}: whole, split at every byte, at every two, and byte by byte`, () => {
    const all = bytes(text);
    const wanted = { events: want, retry };
    assert.deepEqual(parse(all), wanted);
    for (let i = 0; i <= all.length; i++) {
      for (let j = i; j <= all.length; j++) {
        assert.deepEqual(parse(all.subarray(0, i), all.subarray(i, j), all.subarray(j)), wanted, `split at ${i} and ${j}`);
      }
    }
    assert.deepEqual(parse(...Array.from(all, (byte) => [Uint8Array.of(byte), new Uint8Array()]).flat()), wanted);
  });
}

// A seeded random generator, so that a failure can be reproduced.
function draws(seed) {
  return (below) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
}

test('the events do not depend on how the bytes are split', () => {
  const words = ['data', 'id', 'event', 'retry', ':', ' ', '\r', '\n', '\r\n', '\n\n', 'x', '7', '🌙', '\ufeff', '\0'].map(bytes);
  words.push(Uint8Array.of(0xf0, 0x9f), Uint8Array.of(0xff)); // half a character, and an invalid byte
  for (let seed = 1; seed <= 2000; seed++) {
    const draw = draws(seed);
    const all = Uint8Array.from(Array.from({ length: draw(40) }, () => [...words[draw(words.length)]]).flat());
    const parts = [];
    for (let at = 0; at < all.length;) {
      const to = at + 1 + draw(6);
      parts.push(all.subarray(at, to));
      at = to;
    }
    assert.deepEqual(parse(...parts), parse(all), `seed ${seed}`);
  }
});

test('an event is returned with its last byte, not with the next event', () => {
  const parser = new Parser();
  assert.equal(parser.push(bytes('data: a\r\n\r')).length, 1);
  assert.equal(parser.push(bytes('\n')).length, 0);
});

test('an endless event is refused, not buffered', () => {
  const part = bytes('x'.repeat(1 << 16));
  const endless = (prefix) => () => {
    const parser = new Parser();
    for (let i = 0; i < 128; i++) {
      parser.push(bytes(prefix));
      parser.push(part);
    }
  };
  assert.throws(endless('data: '), RangeError);
  assert.throws(endless('\ndata: '), RangeError);
});
