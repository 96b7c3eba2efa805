import assert from 'node:assert/strict';
import { test } from 'node:test';
import { address, blocks } from './assets/markdown.js';

test('only addresses of web pages and mails are links', () => {
  for (const href of ['https://example.com/a?b#c', 'http://example.com/', 'mailto:a@example.com']) assert.equal(address(href), href);
  for (const href of [
    'javascript:alert(1)', ' JaVaScRiPt:alert(1)', 'java\nscript:alert(1)', 'vbscript:x', 'data:text/html,<script>alert(1)</script>', 'file:///etc/passwd',
    'blob:https://example.com/1', '/v1/streams', '#/streams', '//example.com', '', 'https://',
  ]) assert.equal(address(href), null, href);
});

test('blocks join to the text', () => {
  const text = '# A\n\nb **c**\n\n- d\n- e\n\n```js\nf()\n```\n\n| g | h |\n|---|---|\n| 1 | 2 |\n';
  const read = blocks(text);
  assert.equal(read.map(({ raw }) => raw).join(''), text);
  assert.deepEqual(read.map(({ type }) => type).filter((type) => type !== 'space'), ['heading', 'paragraph', 'list', 'code', 'table']);
});

test('text that is too long or too deep is plain', () => {
  const types = (text) => blocks(text).map(({ type }) => type);
  assert.deepEqual(types('*a* '.repeat(5000)), ['plain']);
  assert.deepEqual(types(`${'*a* '.repeat(5000)}\n\n*b*`), ['plain', 'paragraph']);
  assert.deepEqual(types(`${'>'.repeat(10_000)} a`), ['plain']);
});
