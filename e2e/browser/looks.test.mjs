// What the pages look like, compared with goldens/NAME.png: screenshots with one pixel for each
// square of 16 or 32 pixels a side, so that fonts hardly matter, and layout and colours do.
//
//   REWRITE=1 WHENCE_URL=http://127.0.0.1:8080 node --test looks.test.mjs     # then look at the goldens

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { base, inBrowser } from './console.mjs';
import { killed, now, streams, workers } from './fixtures.mjs';

const squareOf = (width) => (width > 1000 ? 32 : 16);
const mean = 4; // of 255: the most that a page may differ on average
const lot = 14; // of 255: a square that differs by more differs by a lot
const partsOf = (width) => (width > 1000 ? 0.02 : 0.06); // of the squares: how many may; lines of text break elsewhere on a phone with other fonts

const pages = {
  chat: ['', '#empty'], chats: ['chats/kept', '.turn .code'], stream: ['streams/killed', '.life.gone'], streams: ['streams', '.streams'], overview: ['overview', '.endings'],
  workers: ['workers', '.card'], compare: ['streams/killed?with=killed', '.life.gone'],
};
const sizes = [[320, 640, 'light'], [768, 900, 'dark'], [1024, 768, 'light'], [1440, 900, 'dark'], [2560, 1300, 'light']];

const answer = 'Three steps:\n\n1. Start it.\n2. Stop it.\n\n```sh\nwhence run\nwhence why ID\n```\n\n> It ends **once**.';
const kept = [{ id: 'kept', began: now, turns: [{ question: 'How do I try it?', answer, model: 'whence-tiny', id: 'request-1', kind: 'completed', line: 'completed · stop · 30 tokens' }] }];

inBrowser('the looks', (at) => {
  for (const [width, height, colorScheme] of sizes) {
    test(`at ${width} pixels, ${colorScheme}`, async () => {
      await at.open({ viewport: { width, height }, colorScheme, timezoneId: 'UTC', locale: 'en-US', reducedMotion: 'reduce' });
      await at.page.clock.setFixedTime(now);
      await at.page.route('**/v1/streams**', (route) => {
        const url = new URL(route.request().url());
        return route.fulfill({ json: url.pathname.endsWith('/killed') ? killed : { streams: url.searchParams.has('state') ? streams : [] } });
      });
      await at.page.route('**/v1/workers', (route) => route.fulfill({ json: { workers } }));
      await at.page.evaluate((all) => localStorage.setItem('whence-chats', JSON.stringify(all)), kept);
      const different = [];
      for (const [name, [hash, there]] of Object.entries(pages)) {
        await at.page.goto(`${base}/#/${hash}`);
        await at.page.reload();
        await at.page.waitForFunction(() => document.getElementById('model').value !== '');
        await at.page.locator(there).first().waitFor();
        const { golden, off, much } = await compare(await at.page.screenshot({ caret: 'hide' }), `${name}-${width}`, squareOf(width));
        if (off > mean || much > partsOf(width)) different.push(`${name}-${width}: differs by ${off.toFixed(1)} on average, and by a lot in ${(100 * much).toFixed(1)}% of ${golden} squares`);
      }
      assert.deepEqual(different, [], 'if the change is right, run this test with REWRITE=1');
    });
  }

  async function compare(screenshot, name, square) {
    const file = new URL(`goldens/${name}.png`, import.meta.url);
    const rewrite = Boolean(process.env.REWRITE);
    const old = rewrite ? null : readFileSync(file).toString('base64');
    const { png, ...result } = await at.page.evaluate(compareInPage, [screenshot.toString('base64'), old, square, lot]);
    if (rewrite) {
      mkdirSync(new URL('.', file), { recursive: true });
      writeFileSync(file, Buffer.from(png, 'base64'));
    }
    return result;
  }
}, { opened: false });

// compareInPage returns the means of the squares of a screenshot as a PNG, and how they differ from a
// golden. It runs in the page.
async function compareInPage([screenshot, golden, square, lot]) {
  const pixels = async (base64) => {
    const image = await createImageBitmap(new Blob([Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))], { type: 'image/png' }));
    const context = new OffscreenCanvas(image.width, image.height).getContext('2d', { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  };
  const large = await pixels(screenshot);
  const [width, height] = [large.width, large.height].map((length) => Math.floor(length / square));
  const small = new ImageData(width, height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      for (let channel = 0; channel < 4; channel++) {
        let sum = 0;
        for (let row = 0; row < square; row++) {
          for (let column = 0; column < square; column++) sum += large.data[4 * ((y * square + row) * large.width + x * square + column) + channel];
        }
        small.data[4 * (y * width + x) + channel] = Math.round(sum / square ** 2);
      }
    }
  }
  if (!golden) {
    const canvas = new OffscreenCanvas(width, height);
    canvas.getContext('2d').putImageData(small, 0, 0);
    const bytes = new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer());
    return { png: btoa(String.fromCharCode(...bytes)), golden: 0, off: 0, much: 0 };
  }
  const want = await pixels(golden);
  if (want.width !== width || want.height !== height) return { golden: 0, off: 255, much: 1 };
  let off = 0;
  let much = 0;
  for (let i = 0; i < want.data.length; i += 4) {
    const most = Math.max(...[0, 1, 2].map((channel) => Math.abs(want.data[i + channel] - small.data[i + channel])));
    off += most;
    if (most > lot) much++;
  }
  return { golden: width * height, off: off / (width * height), much: much / (width * height) };
}
