import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { ended, settled, stop } from './assets/api.js';
import { bands, lanes, scale, threads } from './assets/lanes.js';
import { latency, recall, remember, Seen } from './assets/seen.js';
import { count, duration, handed, left, mood, wall } from './assets/words.js';

const realFetch = globalThis.fetch;
afterEach(() => (globalThis.fetch = realFetch));

const answer = (body, status = 200) => new Response(typeof body === 'string' ? body : JSON.stringify(body), { status });
const hop = (name, began, more = {}) => ({
  hop: name, state: 'ended', reason: 'user_stop', path: [], began: `2026-01-02T03:04:05.${began}Z`, took_ms: 100, tokens_in: 3, tokens_out: 2,
  stop_heard_ms: null, stop_confirmed_ms: null, ...more,
});
const stopped = {
  state: 'ended', reason: 'user_stop', hops: [
    hop('api-service', '000000000', { stop_heard_ms: 90, stop_confirmed_ms: 1.5 }),
    hop('chat-service', '000500000', { stop_heard_ms: 90.2, stop_confirmed_ms: 1, took_ms: 98 }),
    hop('llm-worker/0', '001250000', { stop_heard_ms: 90, stop_confirmed_ms: 0.5, took_ms: 96 }),
  ],
};

test('durations have the digits that matter', () => {
  const said = [0, 0.84, 9.96, 31.4, 999.6, 9940, 12_345, 59_960, 125_000, 7_260_000, undefined, null].map(duration);
  assert.deepEqual(said, ['0.0 ms', '0.8 ms', '10 ms', '31 ms', '1.00 s', '9.94 s', '12.3 s', '1 min 0 s', '2 min 5 s', '2 h 1 min', '–', '–']);
  assert.deepEqual([count(0, 'token'), count(1, 'token'), count(2, 'token')], ['no tokens', '1 token', '2 tokens']);
});

test('times keep what is finer than a millisecond', () => {
  const close = (text, want) => assert.ok(Math.abs(wall(text) - Date.parse('2026-01-02T03:04:05Z') - want) < 1e-3, text);
  close('2026-01-02T03:04:05Z', 0);
  close('2026-01-02T03:04:05.1Z', 100);
  close('2026-01-02T03:04:05.0015Z', 1.5);
  close('2026-01-02T03:04:05.001250000Z', 1.25);
});

test('reasons have a mood', () => {
  assert.deepEqual(['completed', 'client_gone', 'peer_lost', 'reason_57'].map((reason) => mood(reason)), ['good', 'mild', 'bad', 'bad']);
  assert.equal(mood(undefined, 'live'), 'live');
});

test('a gap is as long as it is against the others', () => {
  const at = [0, 10, 20, 30, 60, 130, 330].map((time) => ({ at: time }));
  assert.deepEqual(bands(at).map(({ level }) => level), [0, 0, 0, 1, 2, 3]);
  assert.deepEqual(bands([0, 0.1, 0.9].map((time) => ({ at: time }))).map(({ level }) => level), [0, 0], 'what timers cannot tell is no gap');
  assert.deepEqual(bands([{ at: 0, index: 0 }, { at: 9, index: 1 }, { at: 400, index: 70 }]).map(({ level }) => level), [0, -1], 'what is not told is not judged');
  assert.deepEqual(bands([]), []);
});

test('lanes share one scale, and hops begin where they did', () => {
  const { lanes: all, to, ending } = lanes(stopped, undefined);
  assert.deepEqual(all.map(({ name, from }) => [name, Math.round(from * 100) / 100]), [['api-service', 0], ['chat-service', 0.5], ['llm-worker/0', 1.25]]);
  assert.equal(to, 100);
  assert.ok(ending[0] < 90 && ending[0] > 85 && ending[1] > 100 && ending[1] < 103, String(ending));
  const { down, up } = threads(all);
  assert.deepEqual(down.map(([lane]) => lane), [0, 1, 2]);
  assert.deepEqual(up.map(([lane]) => lane), [2, 1, 0]);
});

test('a clock that is wrong does not put a hop before the one above', () => {
  const late = { ...stopped, hops: [stopped.hops[1], stopped.hops[0]] };
  const [first, second] = lanes(late).lanes;
  assert.equal(second.from, first.from);
  const seen = new Seen('x', 1000);
  seen.wall = Date.parse('2026-01-01T00:00:00Z'); // a day off
  seen.opened = 20;
  assert.equal(lanes(stopped, seen, 150).lanes[1].from, 20, 'not after its header');
  seen.wall += 2 * 86_400_000;
  assert.equal(lanes(stopped, seen, 150).lanes[1].from, 0, 'not before its request');
});

test('the events of a hop become ticks and marks', () => {
  const events = [
    { at_ms: 1, kind: 'recv_header', side: 'down', index: 0 }, { at_ms: 2, kind: 'recv', side: 'down', index: 0 }, { at_ms: 2.5, kind: 'send', side: 'up', index: 0 },
    { at_ms: 3, kind: 'recv', side: 'down', index: 1 }, { at_ms: 80, kind: 'recv', side: 'down', index: 40 }, { at_ms: 91, kind: 'send_rst', side: 'down', code: 'CANCEL' },
    { at_ms: 92, kind: 'send_trailer', side: 'up', reason: 'user_stop', path: ['client', 'api-service'] }, { at_ms: 93, kind: 'of the future', side: 'up' },
  ];
  const [lane] = lanes({ hops: [hop('api-service', '0', { events, handovers: [{ from: 'p', to: 'a', at_ms: 9, took_ms: 8, reason: 'completed' }], moves: [{ from: 'a', to: 'b', at_ms: 50, reason: 'peer_lost' }] })] }).lanes;
  assert.deepEqual(lane.ticks.map(({ at, side }) => [at, side]), [[2, 'down'], [2.5, 'up'], [3, 'down'], [80, 'down']]);
  assert.deepEqual(lane.bands.map(({ level }) => level), [0, -1]);
  assert.deepEqual(lane.marks.map(({ kind }) => kind), ['header', 'rst', 'trailer', 'handover', 'move', 'end']);
  assert.match(lane.marks[1].text, /sends RST_STREAM down: CANCEL/);
  assert.match(lane.marks[2].text, /user_stop, client > api-service/);
  assert.match(lane.marks[3].text, /^prompt read by p for a in 8(\.0)? ms$/);
});

test('a stream that runs has no ending to look at, and one that nobody knows no lanes', () => {
  const running = { hops: [hop('api-service', '0', { state: 'live', reason: undefined })] };
  assert.equal(lanes(running).ending, null);
  assert.deepEqual(lanes(null), { lanes: [], to: 1, ending: null });
});

test('the axis has round numbers', () => {
  assert.deepEqual(scale(0, 100, 5), { marks: [0, 20, 40, 60, 80, 100], step: 20 });
  assert.deepEqual(scale(95, 103, 4).marks, [96, 98, 100, 102]);
  assert.equal(scale(0, 0.9, 5).step, 0.2);
});

test('latency is the first frame, and the gaps between the others', () => {
  assert.equal(latency([]), null);
  assert.equal(latency([5]).p50, undefined);
  const { ttft, gaps, p50, p95, max, rate } = latency([20, 30, 40, 50, 120]);
  assert.deepEqual([ttft, gaps, p50, p95, max, rate], [20, [10, 10, 10, 70], 10, 70, 70, 40]);
});

test('what was seen is remembered of the last streams only', () => {
  for (let i = 0; i < 40; i++) remember(new Seen(`s${i}`, 0));
  assert.equal(recall('s0'), undefined);
  assert.equal(recall('s39').id, 's39');
  const seen = new Seen('many', 100);
  for (let i = 0; i < 40_000; i++) seen.frame(100 + i);
  assert.equal(seen.count, 40_000);
  assert.equal(seen.frames.length, 1 << 15);
  assert.equal(seen.frames[7], 7);
});

test('a story is settled when every hop has ended it, or when it takes too long', async () => {
  let asked = 0;
  globalThis.fetch = async () => answer({ hops: [{ state: 'ended' }, { state: asked++ < 3 ? 'live' : 'ended' }] });
  const wait = async () => {};
  assert.equal((await settled('x', { wait })).hops[1].state, 'ended');
  assert.equal(asked, 4);
  globalThis.fetch = async () => answer({ hops: [{ state: 'live' }] });
  assert.equal((await settled('x', { tries: 3, wait })).hops[0].state, 'live');
});

test('an extent is told in words, also one that is new', () => {
  assert.equal(left('tool_call'), 'the client left with a whole tool call');
  assert.equal(left('more'), 'the client left with: more');
});

test('requests name what they want, and failures say why', async () => {
  const asked = [];
  globalThis.fetch = async (path, { method }) => {
    asked.push(`${method} ${path}`);
    return answer({ streams: [] });
  };
  await ended({ reason: 'user_stop', hop: 'llm-worker/0', limit: '' });
  await stop('a/b');
  assert.deepEqual(asked, ['GET /v1/streams?state=ended&reason=user_stop&hop=llm-worker%2F0', 'DELETE /v1/streams/a%2Fb']);
  globalThis.fetch = async () => answer({ error: { message: 'no such stream', whence: { reason: 'not_found' } } }, 404);
  await assert.rejects(stop('x'), { message: 'no such stream', status: 404 });
  globalThis.fetch = async () => answer('', 502);
  await assert.rejects(stop('x'), /the server answered 502/);
  globalThis.fetch = async () => { throw new TypeError('Failed to fetch'); };
  await assert.rejects(stop('x'), /could not be reached/);
});

test('a handover says which worker read the prompt, and for which', () => {
  assert.equal(handed({ from: 'p', to: 'a', reason: 'completed', took_ms: 8 }), 'prompt read by p for a in 8.0 ms');
  assert.equal(handed({ from: 'p', to: '', reason: 'client_gone', took_ms: 8 }), 'prompt read by p in 8.0 ms, handover abandoned (client_gone)');
});
