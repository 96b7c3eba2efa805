import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Gaps } from '../src/gaps.js';

const headers = new Headers({ Server: 'nginx/1.22.1', Via: 'x'.repeat(1000) });

test('pauses are counted by length, and headers name the server', () => {
  const gaps = new Gaps();
  let now = 1000.5;
  for (const pause of [0, 0, 0.9, 1, 7, 12, 25, 60, 200, 400, 999, 1000, 60_000]) gaps.take((now += pause));
  assert.deepEqual(JSON.parse(gaps.report(headers)), { gaps: [2, 1, 1, 1, 1, 1, 1, 1, 1, 2], server: 'nginx/1.22.1', via: 'x'.repeat(256) });
});

test('a reader of fewer than two events has nothing to report', () => {
  const gaps = new Gaps();
  assert.equal(gaps.report(headers), undefined);
  gaps.take(1);
  assert.equal(gaps.report(headers), undefined);
  gaps.take(2);
  assert.deepEqual(Object.keys(JSON.parse(gaps.report(new Headers()))), ['gaps']);
});
