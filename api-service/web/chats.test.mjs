import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Chats, fit, messagesOf } from './assets/chats.js';

const turn = (question, answer, more) => ({ question, answer, ...more });

class Storage {
  #all = new Map();
  getItem = (name) => this.#all.get(name) ?? null;
  setItem = (name, value) => this.#all.set(name, value);
  removeItem = (name) => this.#all.delete(name);
}

test('chats are kept, the last one first, and cleared', () => {
  const storage = new Storage();
  const chats = new Chats(() => storage);
  chats.keep({ id: 'a', turns: [turn('1', 'one')] });
  chats.keep({ id: 'b', turns: [turn('2', 'two')] });
  chats.keep({ id: 'empty', turns: [] });
  chats.keep({ id: 'a', turns: [turn('1', 'one'), turn('3', 'three')] });
  const again = new Chats(() => storage);
  assert.deepEqual(again.list().map(({ id }) => id), ['a', 'b']);
  assert.equal(again.find('a').turns.length, 2);
  assert.equal(again.find('c'), undefined);
  again.clear();
  assert.deepEqual(chats.list(), []);
});

test('storage that is blocked, full or damaged keeps nothing and breaks nothing', () => {
  const fails = () => {
    throw new Error('blocked');
  };
  const full = new Storage();
  full.setItem = fails;
  for (const storage of [fails, () => full]) {
    const chats = new Chats(storage);
    chats.keep({ id: 'a', turns: [turn('1', 'one')] });
    chats.clear();
    assert.deepEqual(chats.list(), []);
  }
  for (const text of ['{', '3', 'null', '[null,{"id":1},{"id":"x"}]']) {
    const damaged = new Storage();
    damaged.setItem('whence-chats', text);
    assert.deepEqual(new Chats(() => damaged).list(), [], text);
  }
});

test('chats are bounded: old chats are dropped first, then old turns', () => {
  const chat = (id, n, size) => ({ id, turns: Array.from({ length: n }, (_, i) => turn(String(i), 'x'.repeat(size))) });
  assert.equal(fit(Array.from({ length: 50 }, (_, i) => chat(String(i), 1, 10))).length, 20);
  const kept = fit([chat('new', 2, 50_000), chat('old', 2, 100_000), chat('older', 1, 10)]);
  assert.deepEqual(kept.map(({ id }) => id), ['new']);
  const [long] = fit([chat('long', 10, 50_000)]);
  assert.deepEqual(long.turns.map(({ question }) => question), ['5', '6', '7', '8', '9']);
  assert.deepEqual(fit([chat('huge', 1, 1_000_000)]), []);
});

test('turns without an answer and retried turns are not sent', () => {
  const chat = { turns: [turn('1', 'old', { retried: true }), turn('1', 'new'), turn('2', '')] };
  assert.deepEqual(messagesOf(chat), [{ role: 'user', content: '1' }, { role: 'assistant', content: 'new' }]);
});
