import assert from 'node:assert/strict';
import { test } from 'node:test';
import { overview, quantile, slots } from './assets/overview.js';

const zero = Date.parse('2026-01-02T03:04:00Z');
const stream = (after, took, more = {}) => ({
  state: 'ended', reason: 'completed', origin: 'engine', tokens: { delivered: 60 }, ...more,
  hops: [{ began: new Date(zero + after).toISOString(), took_ms: took, sent_pace: { first_ms: 0, p50_ms: 20, p95_ms: 40, longest_ms: 90 }, ...more.hop }],
});
const over = (ended, live = [], cut = false) => overview({ ended, live, cut }, zero, zero + 60_000);

test('rates count streams where they ended, and tokens where they were sent', () => {
  const { points, total, endings } = over([stream(10_500, 0), stream(20_500, 5000), stream(21_500, 4000, { reason: 'deadline', origin: 'api-service' })]);
  assert.equal(points.length, slots);
  assert.equal(points[10].streams, 1);
  assert.equal(points[25].streams, 2);
  assert.equal(points[10].tokens, 60);
  assert.equal(points[20].tokens, 10, 'the tokens of a stream are spread over the time in which it sent them');
  assert.ok(Math.abs(total.tokens - 3) < 1e-9 && Math.abs(total.streams - 3 / 60) < 1e-9);
  assert.deepEqual(endings, [{ reason: 'completed', origin: 'engine', count: 2 }, { reason: 'deadline', origin: 'api-service', count: 1 }]);
});

test('a live stream counts its tokens and no ending', () => {
  const { points, total, endings } = over([], [stream(58_000, 2000, { state: 'live', reason: undefined })]);
  assert.equal(total.streams, 0);
  assert.ok(points[59].tokens > 0);
  assert.deepEqual(endings, []);
});

test('streams before the window count no ending, and only the tokens inside', () => {
  const { total, endings } = over([stream(-30_000, 20_000), stream(-10_000, 19_900)]);
  assert.equal(endings.length, 1);
  assert.ok(total.tokens > 0 && total.tokens < 1);
});

test('percentiles are those of the streams of a slot, or null', () => {
  const pace = (first, gap) => ({ hop: { sent_pace: { first_ms: first, p50_ms: gap, p95_ms: 2 * gap, longest_ms: 3 * gap } } });
  const { points, total } = over([stream(5100, 0, pace(100, 10)), stream(5200, 0, pace(300, 30)), stream(5300, 0, pace(200, 20))]);
  assert.deepEqual([points[5].ttft50, points[5].ttft95, points[5].gap50, points[5].gap95], [200, 300, 20, 60]);
  assert.equal(points[6].ttft50, null);
  assert.equal(total.gap50, 20);
  assert.equal(over([stream(5000, 0, { hop: { sent_pace: undefined } })]).total.ttft50, null);
  assert.equal(quantile([], 0.5), null);
});

test('a list that was cut says where it begins, and rates are over that time only', () => {
  const { since, total } = over([stream(30_000, 0), stream(50_000, 0)], [], true);
  assert.equal(since, zero + 30_000);
  assert.ok(Math.abs(total.streams - 2 / 30) < 1e-9);
});
