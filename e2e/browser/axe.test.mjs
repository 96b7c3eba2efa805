// Accessibility: axe finds no violation on any page, on a dark phone and on a light laptop.
//
// axe is in ../axe, a directory of its own, because of its license.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { base, inBrowser, story } from './console.mjs';

inBrowser('axe finds no violation', (at) => {
  const check = async (page) => {
    await at.page.evaluate(axe());
    const { violations, passes } = await at.page.evaluate(() => window.axe.run());
    assert.ok(passes.length > 10, `axe has checked only ${passes.length} rules of ${page}`);
    assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, any }) => `${html} ${any.map(({ message }) => message)}`).join('\n')}`), [], page);
  };

  // Each width and each color scheme once: axe takes most of the time of the browser tests.
  for (const [width, colorScheme] of [[320, 'dark'], [1440, 'light']]) {
    test(`at ${width} pixels, ${colorScheme}`, async () => {
      await at.open({ viewport: { width, height: 800 }, colorScheme });
      await check('the empty chat');
      await at.ask(story);
      await at.answerOf(40);
      await check('an answer that streams');
      await at.page.getByRole('button', { name: 'Stop', exact: true }).click();
      await at.lastTurn().locator('.told .path').waitFor();
      await check('a stopped answer');
      const id = await at.id();
      for (const [hash, there] of [[`streams/${id}`, 'table.hops'], [`streams/${id}?with=${id}`, 'table.pace'], ['streams', '.streams'], ['overview', '.endings'], ['workers', '.card'], ['streams/nobody', '.problem']]) {
        await at.page.goto(`${base}/#/${hash}`);
        await at.page.locator(`#page ${there}`).first().waitFor();
        await check(`#/${hash}`);
      }
      await at.page.goto(`${base}/#/chats/none`);
      await at.page.locator('#earlier a').waitFor();
      await check('the list of chats');
      await at.answers('# A\n\n### B\n\n1. c\n2. d\n\n> e\n\n- [x] f\n\n```\ng\n```\n\n| h | i |\n|---|--:|\n| 1 | 2 |\n\n[j](https://example.com) `k`');
      await at.ask('Markdown');
      await at.ending();
      await check('an answer in Markdown');
    });
  }
}, { opened: false });

let source;

function axe() {
  return (source ??= readFileSync(new URL('../axe/node_modules/axe-core/axe.min.js', import.meta.url), 'utf8'));
}
