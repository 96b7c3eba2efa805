// The layout of the chat: the growing end of an answer stays in sight at every width.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inBrowser, story } from './console.mjs';

// textIsInSight reports whether the last line of the last answer is inside the conversation's view.
// It runs in the page.
function textIsInSight() {
  const text = document.createRange();
  text.selectNodeContents([...document.querySelectorAll('.answer')].at(-1));
  const line = [...text.getClientRects()].at(-1);
  const view = document.getElementById('log').getBoundingClientRect();
  return Boolean(line) && line.top >= view.top && line.bottom <= view.bottom && view.bottom <= innerHeight;
}

inBrowser('the layout of the chat', (at) => {
  for (const [width, height, colorScheme] of [[320, 568, 'light'], [768, 600, 'dark'], [1024, 600, 'light'], [1280, 640, 'dark'], [1440, 800, 'light'], [2560, 700, 'dark']]) {
    test(`the end of the answer is in sight at ${width} pixels`, async () => {
      await at.open({ viewport: { width, height }, colorScheme });
      await at.ask(story);
      for (const length of [40, 200]) {
        await at.answerOf(length);
        await at.page.waitForFunction(textIsInSight);
      }
      await at.fits('while the answer streams');
      const timeline = at.page.locator('.place summary');
      if (await timeline.isVisible()) { // below 960 pixels the picture is folded
        await timeline.focus();
        await at.page.keyboard.press('Enter');
        await at.page.locator('.timeline .hop').first().waitFor();
        await at.answerOf((await at.answer()).length + 40);
        await at.page.waitForFunction(textIsInSight);
      } else {
        assert.ok(await at.page.locator('#beside .hop').first().isVisible(), 'the picture is not beside the conversation');
      }
      await at.page.keyboard.press('Escape');
      await at.ending();
      await at.page.waitForFunction(textIsInSight);
      await at.fits('after the ending');
    });
  }

  test('at 1,024 pixels the settings take the place of the picture', async () => {
    await at.open({ viewport: { width: 1024, height: 700 } });
    assert.ok(await at.page.locator('#panel').isHidden());
    await at.ask(story);
    await at.page.locator('#beside .hop').first().waitFor();
    await at.page.getByRole('button', { name: 'Request', exact: true }).press('Enter');
    await at.page.locator('#model').waitFor();
    assert.ok(await at.page.locator('#beside').isHidden());
    await at.answerOf(100);
    await at.page.waitForFunction(textIsInSight);
    await at.fits('with the settings');
  });
}, { opened: false });
