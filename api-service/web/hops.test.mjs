import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lanes } from './assets/lanes.js';
import { happened } from './assets/hops.js';
import { slowest } from './assets/pace.js';
import { renamer, tree } from './assets/tree.js';

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

const gone = (story) => tree(story).filter(({ call }) => call);

test('a hop with a record has one lane, and a hop that several callers name has one, too', () => {
  assert.deepEqual(gone({ hops: [moved, hop('llm-worker/a'), hop('llm-worker/b')] }), []);
  const twice = gone({ hops: [moved, { ...moved, hop: 'chat-service/2' }, hop('llm-worker/a')] });
  assert.deepEqual(twice.map(({ name }) => name), ['llm-worker/b']);
});

test('without events the moves name the hops that were left', () => {
  const moves = [{ from: 'w/1', to: 'w/2', reason: 'draining', at_ms: 30 }, { from: 'w/2', to: 'w/3', reason: 'peer_lost', at_ms: 70 }];
  const calls = gone({ hops: [hop('chat-service', { moves }), hop('w/3')] }).map(({ call }) => call);
  assert.deepEqual(calls.map(({ name, at, to, reason }) => [name, at, to, reason]), [['w/1', 0, 30, 'draining'], ['w/2', 30, 70, 'peer_lost']]);
});

test('a worker that died before it answered is named by the reset', () => {
  const [{ call }] = gone({ hops: [hop('chat-service', { events: [down(1, 'send_header'), down(9, 'recv_rst', { reason: 'peer_lost', path: ['w/1'] })] })] });
  assert.deepEqual([call.name, call.at, call.to, call.reason], ['w/1', 1, 9, 'peer_lost']);
});

// A stream whose chat-service was killed after 30 ms. api-service knows chat-services by address.
const called = (...path) => [{ at_ms: 0, kind: 'recv_header', side: 'up', path }];
const at = (ms) => `2026-01-02T03:04:05.${String(ms).padStart(3, '0')}Z`;
const [dead, alive] = ['chat-service/10.0.0.1:8081', 'chat-service/10.0.0.2:8081'];
const killed = {
  reason: 'completed', path: ['engine', 'llm-worker/0', 'chat-service/0', 'api-service'], workers: ['llm-worker/1', 'llm-worker/0'], hops: [
    hop('api-service', {
      began: at(0), moves: [{ from: dead, to: alive, reason: 'peer_lost', at_ms: 31, tokens: 2 }],
      events: [
        ...called('client'), down(1, 'send_header'), down(3, 'recv_header', { path: [dead] }), down(4, 'recv', { index: 0 }),
        down(30, 'recv_rst', { code: 'LOST', reason: 'peer_lost', path: [dead] }), down(30, 'send_header'), down(31, 'recv_header', { path: [alive] }),
        down(99, 'recv_trailer', { reason: 'completed', path: ['engine', 'llm-worker/0', 'chat-service/0'] }),
      ],
    }),
    hop('chat-service/0', { began: at(30), took_ms: 69, events: [...called('api-service'), down(1, 'send_header'), down(2, 'recv_header', { path: ['llm-worker/0'] })] }),
    hop('llm-worker/0', { began: at(31), took_ms: 67, events: called('api-service', 'chat-service/0') }),
    hop('llm-worker/1', { began: at(3), took_ms: 28, reason: 'peer_lost', path: ['chat-service/1', 'llm-worker/1'], events: called('api-service', 'chat-service/1') }),
  ],
};

test('a hop that its caller knows by address has one lane, and its name', () => {
  const entries = tree(killed);
  assert.deepEqual(entries.map(({ name, caller }) => [name, caller?.name]), [
    ['api-service', undefined], ['chat-service/1', 'api-service'], ['llm-worker/1', 'chat-service/1'], ['chat-service/0', 'api-service'], ['llm-worker/0', 'chat-service/0'],
  ]);
  const named = renamer(entries);
  assert.deepEqual([dead, alive, 'else'].map(named), ['chat-service/1', 'chat-service/0', 'else']);
});

test('a hop begins after its caller, and not after the hops that the caller called before', () => {
  const { lanes: all, ending } = lanes(killed);
  const from = Object.fromEntries(all.map((lane) => [lane.name, [lane.state, lane.from, lane.to, lane.left]]));
  assert.deepEqual(from['chat-service/1'], ['gone', 1, 30, undefined]);
  assert.deepEqual(from['llm-worker/1'], ['ended', 3, 31, true]);
  assert.deepEqual(from['llm-worker/0'], ['ended', 31, 98, false]);
  assert.ok(ending[0] > 90, `the ending is not that of a hop that the stream had left: ${ending}`);
  assert.match(all[0].marks.find(({ kind }) => kind === 'move').text, /from chat-service\/1 to chat-service\/0/);
});

test('the ending of a hop without a record names it', () => {
  const ended = { hops: [{ ...killed.hops[0], moves: [], events: killed.hops[0].events.filter(({ at_ms }) => at_ms < 30 || at_ms > 90) }] };
  const entries = tree(ended);
  assert.deepEqual(entries.map(({ name }) => name), ['api-service', 'chat-service/0']);
  assert.equal(renamer(entries)(dead), 'chat-service/0');
});

test('a live stream has no lane for the address of its chat-service', () => {
  const live = { hops: [
    hop('api-service', { state: 'live', began: at(0), events: [...called('client'), down(1, 'send_header'), down(3, 'recv_header', { path: [alive] })] }),
    hop('chat-service/0', { state: 'live', began: at(2), events: called('api-service') }),
  ] };
  assert.deepEqual(tree(live).map(({ name }) => name), ['api-service', 'chat-service/0']);
});

test('a worker behind a dead chat-service has a lane, without times', () => {
  const lost = { ...killed, workers: ['llm-worker/1'], hops: [{ ...killed.hops[0], moves: [], events: killed.hops[0].events.slice(0, 5) }] };
  const [, chat, worker] = lanes(lost).lanes;
  assert.deepEqual([chat.name, chat.from, chat.to], [dead, 1, 30]);
  assert.deepEqual([worker.name, worker.state, worker.note], ['llm-worker/1', 'gone', 'no record; its times are not known']);
});

test('records that name each other as callers lose no lane', () => {
  const odd = { hops: [hop('a', { events: called('client') }), hop('b', { events: called('c') }), hop('c', { events: called('b') })] };
  assert.deepEqual(tree(odd).map(({ name }) => name), ['a', 'b', 'c']);
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

test('the engine is not blamed if the hops below have no record', () => {
  const alone = { hops: [hop('api-service', { ...pace(300, 301), events: [down(1, 'send_header')] })] };
  assert.match(slowest(alone).who, /^a hop below api-service without a record/);
});

test('a worker that the stream has left counts as a hop below the nearest hop with gaps', () => {
  const [api, chat, now, before] = killed.hops;
  const story = { hops: [{ ...api, ...pace(200, 200) }, { ...chat, ...pace(20, 20) }, { ...now, ...pace(20, 20) }, { ...before, ...pace(190, 195) }] };
  const slow = slowest(story);
  assert.deepEqual([slow.who, slow.added], ['the engine of llm-worker/1', 190]);
});

test('moves and stops are told in sentences', () => {
  const story = { hops: [hop('api-service', { sent_pace: { longest_ms: 104 } }), moved, hop('llm-worker/a')], reason: 'completed' };
  assert.deepEqual(happened(story), ['Moved from llm-worker/b to llm-worker/a after 40 ms and 2 tokens: the worker was lost; nothing was lost, and the longest gap between tokens was 104 ms.']);
  const stopped = (reason, message) => happened({ reason, message, hops: [hop('api-service', { stop_heard_ms: 2310, stop_confirmed_ms: 1.4 })] });
  assert.deepEqual(stopped('user_stop', 'a request from 127.0.0.1 asked for the stream to stop'), ['A request from 127.0.0.1 stopped the stream after 2.31 s; the engine had stopped 1.4 ms later.']);
  assert.deepEqual(stopped('user_stop', 'the client asked for the stream to stop'), ['The client stopped the stream after 2.31 s; the engine had stopped 1.4 ms later.']);
  assert.deepEqual(stopped('operator_stop'), ['An operator stopped the stream after 2.31 s; the engine had stopped 1.4 ms later.']);
  assert.deepEqual(stopped('client_gone'), ['The client left after 2.31 s; the engine had stopped 1.4 ms later.']);
  assert.deepEqual(stopped('deadline'), []);
});
