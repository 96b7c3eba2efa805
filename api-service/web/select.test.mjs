import assert from 'node:assert/strict';
import { test } from 'node:test';
import { choose, pageOf } from './assets/select.js';

const stream = (id, more = {}) => ({ id, state: 'ended', reason: 'completed', model: 'whence-tiny', tokens: { delivered: 1 }, hops: [{ began: '2026-01-02T03:04:05Z', took_ms: 5, peer: '10.0.0.1:9' }], ...more });
const all = [
  stream('b', { tokens: { delivered: 9 } }), stream('a', { reason: 'deadline', hops: [{ began: '2026-01-02T03:04:07Z', took_ms: 1 }] }), stream('c', { model: 'Other', hops: [{ began: '2026-01-02T03:04:06Z', took_ms: 90 }] }),
];
const ids = (chosen) => choose(all, chosen).map(({ id }) => id).join('');

test('streams are ordered by a key, newest first unless chosen otherwise', () => {
  assert.deepEqual([ids(), ids({ descending: false }), ids({ sort: 'tokens' })[0], ids({ sort: 'took' }), ids({ sort: 'id', descending: false }), ids({ sort: 'unknown' })], ['acb', 'bca', 'b', 'cba', 'abc', 'acb']);
  assert.equal(all[0].id, 'b', 'the list itself was sorted');
});

test('a search finds streams that contain every word', () => {
  assert.deepEqual([ids({ search: 'DEADLINE' }), ids({ search: 'other' }), ids({ search: 'whence completed' }), ids({ search: '10.0.0.1' }), ids({ search: 'nothing' })], ['a', 'c', 'b', 'b', '']);
});

test('a page that does not exist becomes the last one', () => {
  assert.deepEqual(pageOf([1, 2, 3, 4, 5], 2, 2), { rows: [3, 4], at: 2, pages: 3 });
  assert.deepEqual(pageOf([1, 2, 3, 4, 5], 9, 2), { rows: [5], at: 3, pages: 3 });
  assert.deepEqual(pageOf([], -1, 2), { rows: [], at: 1, pages: 1 });
});
