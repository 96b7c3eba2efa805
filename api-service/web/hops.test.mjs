import assert from 'node:assert/strict';
import { test } from 'node:test';
import { absent, withAbsent } from './assets/absent.js';
import { lanes } from './assets/lanes.js';
import { slowest } from './assets/pace.js';

const began = '2026-01-02T03:04:05Z';
const hop = (name, more = {}) => ({ hop: name, state: 'ended', reason: 'completed', began, took_ms: 100, tokens_in: 3, tokens_out: 2, stop_heard_ms: null, stop_confirmed_ms: null, ...more });
const down = (at, kind, more = {}) => ({ at_ms: at, kind, side: 'down', ...more });

// A stream whose first worker was killed after 40 ms, and which another worker continued.
const moved = hop('chat-service', {
  events: [
    down(1, 'send_header'), down(2, 'recv_header', { path: ['llm-worker/b'] }), down(3, 'recv', { index: 0 }), down(10, 'recv', { index: 1 }),
    { at_ms: 11, kind: 'send', side: 'up', index: 0 }, down(40, 'recv_rst', { code: 'LOST', reason: 'peer_lost', path: ['llm-worker/b'] }),
    down(40, 'send_header'), down(41, 'recv_header', { path: ['llm-worker/a'] }), down(50, 'recv', { index: 2 }),
  ],
  moves: [{ from: 'llm-worker/b', to: 'llm-worker/a', reason: 'peer_lost', at_ms: 40, tokens: 2 }],
});

test('a dead worker has a lane from the record of its caller', () => {
  const { lanes: all, ending } = lanes({ hops: [hop('api-service'), moved, hop('llm-worker/a')] });
  assert.deepEqual(all.map(({ name, state }) => [name, state]), [['api-service', 'ended'], ['chat-service', 'ended'], ['llm-worker/b', 'gone'], ['llm-worker/a', 'ended']]);
  const dead = all[2];
  assert.deepEqual([dead.from, dead.to], [1, 40]);
  assert.deepEqual(dead.ticks.map(({ at }) => at), [3, 10], 'messages of the next worker do not belong to the dead one');
  assert.match(dead.marks[0].text, /peer_lost/);
  assert.ok(ending, 'a hop without a record must not hide the ending');
});

test('a hop with a record has one lane, and a hop that several callers name has one, too', () => {
  assert.deepEqual(absent(moved, new Set(['llm-worker/a', 'llm-worker/b'])), []);
  const twice = withAbsent({ hops: [moved, { ...moved, hop: 'chat-service/2' }, hop('llm-worker/a')] });
  assert.equal(twice.filter(({ call }) => call?.name === 'llm-worker/b').length, 1);
});

test('without events the moves name the hops that were left', () => {
  const calls = absent(hop('chat-service', { moves: [{ from: 'w/1', to: 'w/2', reason: 'draining', at_ms: 30 }, { from: 'w/2', to: 'w/3', reason: 'peer_lost', at_ms: 70 }] }), new Set(['w/3']));
  assert.deepEqual(calls.map(({ name, at, to, reason }) => [name, at, to, reason]), [['w/1', 0, 30, 'draining'], ['w/2', 30, 70, 'peer_lost']]);
});

test('a worker that died before it answered is named by the reset', () => {
  const [call] = absent(hop('chat-service', { events: [down(1, 'send_header'), down(9, 'recv_rst', { reason: 'peer_lost', path: ['w/1'] })] }), new Set());
  assert.deepEqual([call.name, call.at, call.to, call.reason], ['w/1', 1, 9, 'peer_lost']);
});

const pace = (received, sent) => ({ received_pace: { longest_ms: received }, sent_pace: { longest_ms: sent } });
const paced = (api, chat, worker) => ({ hops: [hop('api-service', pace(...api)), hop('chat-service', pace(...chat)), hop('llm-worker/0', pace(...worker))] });

test('the hop that added most to the longest gap is named', () => {
  assert.equal(slowest(paced([300, 301], [299, 300], [298, 299])).who, 'the engine of llm-worker/0');
  assert.equal(slowest(paced([300, 301], [50, 300], [50, 50])).who, 'chat-service');
  assert.equal(slowest(paced([50, 400], [50, 50], [50, 50])).who, 'api-service');
  const network = slowest(paced([500, 500], [500, 500], [50, 60]));
  assert.deepEqual([network.who, network.added, network.longest], ['the way from llm-worker/0 to chat-service', 440, 500]);
  assert.equal(slowest({ hops: [hop('api-service')] }), null);
});
