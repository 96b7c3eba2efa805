// The chats that the browser keeps: over a reload, by their addresses, and until they are forgotten.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { base, inBrowser, story } from './console.mjs';

inBrowser('kept chats', (at) => {
  test('a chat survives a reload, and goes on', async () => {
    await at.ask('What is 2 + 3?');
    const line = await at.ending();
    const answer = await at.answer();
    const address = at.page.url();
    assert.match(new URL(address).hash, /^#\/chats\/\w+$/);
    await at.page.reload();
    await at.lastTurn().waitFor();
    assert.equal(await at.page.locator('.question').textContent(), 'What is 2 + 3?');
    assert.equal(await at.answer(), answer);
    assert.equal(await at.ending(), line);
    assert.ok(await at.page.locator('#empty').isHidden());
    const sent = at.page.waitForRequest((request) => request.method() === 'POST' && request.url().endsWith('/completions'));
    await at.ask('What is Whence?');
    await at.ending();
    assert.deepEqual((await sent).postDataJSON().messages.map(({ role }) => role), ['user', 'assistant', 'user']);
    assert.equal(at.page.url(), address);
  });

  test('a reload in the middle of an answer keeps what has come', async () => {
    await at.ask(story);
    await at.answerOf(40);
    await at.page.reload();
    await at.lastTurn().waitFor();
    assert.match(await at.ending(), /^cut off — (the page was closed|the connection broke)$/);
    assert.ok((await at.answer()).length >= 40);
  });

  test('chats are listed, opened, left by the browser\'s button, and forgotten', async () => {
    await at.ask('What is 2 + 3?');
    await at.ending();
    const address = at.page.url();
    await at.page.getByRole('button', { name: 'New chat' }).click();
    await at.ask('What is Whence?');
    await at.ending();
    await at.page.getByRole('button', { name: 'New chat' }).click();
    const listed = at.page.locator('#earlier a');
    assert.deepEqual(await listed.allTextContents(), ['What is Whence?', 'What is 2 + 3?']);
    await listed.last().press('Enter');
    await at.page.locator('.question', { hasText: '2 + 3' }).waitFor();
    assert.equal(at.page.url(), address);
    await at.page.getByRole('link', { name: 'Workers' }).click();
    await at.page.getByRole('link', { name: 'Chat', exact: true }).click();
    assert.equal(at.page.url(), address, 'the link leaves the chat');
    await at.page.getByRole('button', { name: 'New chat' }).click();
    await at.page.goBack();
    await at.page.locator('.question', { hasText: '2 + 3' }).waitFor();
    await at.page.goForward();
    await at.page.getByRole('button', { name: 'Forget all' }).press('Enter');
    await listed.first().waitFor({ state: 'detached' });
    assert.equal(await at.page.evaluate(() => localStorage.getItem('whence-chats')), null);
    await at.page.goto(address);
    await at.page.getByText('This browser does not have this chat').waitFor();
    await at.page.goto(`${base}/#/chats/nobody`);
    await at.page.getByText('This browser does not have this chat').waitFor();
  });

  test('Retry asks again, without the old answer', async () => {
    await at.ask(story);
    await at.answerOf(40);
    await at.page.getByRole('button', { name: 'Stop', exact: true }).click();
    await at.ending();
    const sent = at.page.waitForRequest((request) => request.method() === 'POST' && request.url().endsWith('/completions'));
    await at.lastTurn().getByRole('button', { name: 'Retry this question' }).press('Enter');
    await at.page.locator('.turn').nth(1).waitFor();
    assert.deepEqual((await sent).postDataJSON().messages, [{ role: 'user', content: story }]);
    await at.answerOf(40);
    await at.page.keyboard.press('Escape');
    assert.equal(await at.ending(), 'stopped by you');
    assert.match(await at.page.locator('.ending').first().textContent(), /asked again below$/);
    assert.equal(await at.page.getByRole('button', { name: 'Retry this question' }).count(), 1);
  });
});
