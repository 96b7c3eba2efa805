// Answers in Markdown, and what a hostile answer can do with it: nothing.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { inBrowser } from './console.mjs';

test('the copies of dependencies are the releases in the lock file', () => {
  const file = (path) => readFileSync(new URL(path, import.meta.url), 'utf8');
  const assets = '../../api-service/web/assets';
  assert.equal(file(`${assets}/marked.js`), file('node_modules/marked/lib/marked.esm.js'), 'copy lib/marked.esm.js of the package');
  const languages = readdirSync(new URL(`${assets}/highlight/languages`, import.meta.url)).map((name) => `languages/${name}`);
  assert.ok(languages.length >= 20);
  for (const name of ['tokenize.js', ...languages]) {
    assert.equal(file(`${assets}/highlight/${name}`), file(`node_modules/@speed-highlight/core/dist/${name}`), `copy dist/${name} of the package`);
  }
});

const document = [
  '# Heading', 'A *b* **c** ~~d~~ `e<f>` [link](https://example.com/x) www.example.com', 'first line\nsecond line', '- one\n- two\n  1. deep\n- [x] done',
  '```js\nconst a = "<b>";\n```', '| a | b |\n|---|--:|\n| 1 | 2 |', '> quote', '---', '    indented', 'Setext\n===', '<div>html</div>', 'The end.',
].join('\n\n');

const hostile = [
  '<script>window.hit = 1</script>', '<img src=x onerror="window.hit = 2">', '<svg onload="window.hit = 3"></svg>', '<iframe srcdoc="<script>parent.hit = 4</script>"></iframe>',
  '[a](javascript:window.hit=5)', '[b](<java&#115;cript:window.hit=6>)', '![c](https://tracker.example/pixel.png)', '![d](javascript:window.hit=7)',
  '<style>body { display: none }</style>', '<a href="javascript:window.hit=8" onclick="window.hit=9">e</a>', '[f](data:text/html,<script>window.hit=10</script>)',
  '[g]: javascript:window.hit=11\n\n[g]', '<javascript:window.hit=12>', '```"><script>window.hit=13</script>\nx\n```', '[h](https://example.com "\\" onmouseover=\\"window.hit=14")',
  '<base href="https://tracker.example/">', '<meta http-equiv="refresh" content="0;url=https://tracker.example/">', '<form action="https://tracker.example/"><button>i</button></form>',
  '| <img src=x onerror=window.hit=15> |\n|---|\n| [j](javascript:window.hit=16) |',
].join('\n\n');

inBrowser('answers in Markdown', (at) => {
  test('an answer is shown as its Markdown says', async () => {
    await at.answers(document);
    await at.ask('?');
    await at.ending();
    const answer = at.lastTurn().locator('.answer');
    assert.equal(await answer.locator('h3').first().textContent(), 'Heading');
    assert.deepEqual(await answer.locator('strong, em, del, :not(pre) > code').allTextContents(), ['b', 'c', 'd', 'e<f>']);
    assert.equal(await answer.locator('pre').first().textContent(), 'const a = "<b>";');
    await answer.locator('pre .hl-kwd', { hasText: 'const' }).waitFor();
    assert.equal(await answer.locator('pre').first().textContent(), 'const a = "<b>";', 'colours change the text');
    assert.deepEqual(await answer.locator('td').allTextContents(), ['1', '2']);
    assert.equal(await answer.locator('li li').textContent(), 'deep');
    assert.deepEqual(await answer.locator('a').evaluateAll((all) => all.map(({ href, rel }) => [href, rel])), [
      ['https://example.com/x', 'noopener noreferrer nofollow'], ['http://www.example.com/', 'noopener noreferrer nofollow'],
    ]);
    assert.match(await answer.textContent(), /<div>html<\/div>/);
    await at.fits('Markdown');
  });

  test('a text that arrives piece by piece looks like the whole text', async () => {
    const [pieces, whole] = await at.page.evaluate(async (text) => {
      const { Document } = await import('/assets/markdown.js');
      const show = (parts) => {
        const root = window.document.createElement('div');
        const shown = new Document(root);
        for (const part of parts) shown.add(part);
        shown.end();
        return root.outerHTML;
      };
      return [show([...text]), show([text])];
    }, document);
    assert.equal(pieces, whole);
  });

  test('a hostile answer runs nothing and loads nothing', async () => {
    for (const deltas of [[hostile], [...hostile]]) {
      await at.answers(...deltas); // a request to another host would fail the test, see inBrowser
      await at.ask('?');
      await at.ending();
      const answer = at.lastTurn().locator('.answer');
      for (const link of await answer.locator('a').all()) await link.hover();
      const found = await answer.evaluate((root) => ({
        tags: [...new Set([...root.querySelectorAll('*')].map(({ localName }) => localName))].sort(),
        attributes: [...new Set([...root.querySelectorAll('*')].flatMap((node) => node.getAttributeNames()))].sort(),
        links: [...root.querySelectorAll('a')].map(({ href }) => href),
        hit: window.hit,
      }));
      const allowed = ['a', 'br', 'button', 'code', 'div', 'p', 'pre', 'span', 'table', 'tbody', 'td', 'th', 'thead', 'tr'];
      assert.deepEqual(found.tags.filter((tag) => !allowed.includes(tag)), []);
      assert.deepEqual(found.attributes.filter((name) => !['aria-label', 'class', 'href', 'rel', 'role', 'scope', 'tabindex', 'target', 'type'].includes(name)), []);
      assert.deepEqual(found.links.filter((href) => !/^https:\/\/(example\.com|tracker\.example)\//.test(href)), []);
      assert.equal(found.hit, undefined);
      assert.ok(await answer.isVisible());
    }
  });

  test('an answer and a code block are copied as they were written', async () => {
    await at.open({ permissions: ['clipboard-read', 'clipboard-write'] });
    await at.answers(document);
    await at.ask('?');
    await at.ending();
    const copied = () => at.page.evaluate(() => navigator.clipboard.readText());
    await at.lastTurn().getByRole('button', { name: 'Copy the answer' }).press('Enter');
    await at.lastTurn().locator('.copy[data-copied]').waitFor();
    assert.equal(await copied(), document);
    await at.lastTurn().getByRole('button', { name: 'Copy the code' }).first().press('Enter');
    await at.lastTurn().locator('.code [data-copied]').waitFor();
    assert.equal(await copied(), 'const a = "<b>";');
  });
});
