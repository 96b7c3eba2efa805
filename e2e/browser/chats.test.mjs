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
    const sent = at.asked();
    await at.ask('What is Whence?');
    await at.ending();
    assert.deepEqual((await sent).postDataJSON().messages.map(({ role }) => role), ['user', 'assistant', 'user']);
    assert.equal(at.page.url(), address);
  });

  test('a stream that the server has lost is cut off, with the text that has come', async () => {
    await at.ask(story);
    await at.answerOf(40);
    await at.page.route(/\/events\?/, (route) => route.fulfill({ status: 404, json: { error: { message: 'there is no stream', whence: { reason: 'not_found', path: ['api-service'] } } } }));
    await at.page.reload();
    await at.lastTurn().waitFor();
    assert.match(await at.ending(), /^cut off — api-service has lost the stream/);
    assert.ok((await at.answer()).length >= 40);
    await at.page.reload(); // which asks for it no more
    await at.lastTurn().waitFor();
    assert.match(await at.ending(), /^cut off — api-service has lost the stream/);
  });

  test('all chats are forgotten, and an answer of another chat is stopped', async () => {
    await at.ask(story);
    const id = await at.id();
    await at.page.getByRole('button', { name: 'New chat' }).click();
    await at.page.locator('#earlier', { hasText: 'answering' }).waitFor();
    await at.page.getByRole('button', { name: 'Forget all' }).click();
    await at.page.goto(`${base}/#/streams/${id}`);
    await at.page.locator('.told .chip', { hasText: 'user_stop' }).waitFor();
    assert.equal(await at.page.evaluate(() => localStorage.getItem('whence-chats')), null);
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

  test('an edited question replaces what followed it', async () => {
    await at.ask('What is 2 + 3?');
    await at.ending();
    await at.ask('What is Whence?');
    await at.ending();
    await at.page.getByRole('button', { name: 'Edit this question' }).first().click();
    assert.equal(await at.page.locator('#prompt').inputValue(), 'What is 2 + 3?');
    const sent = at.asked();
    await at.page.locator('#prompt').fill('What is the capital of Spain?');
    await at.page.locator('#prompt').press('Enter');
    assert.deepEqual((await sent).postDataJSON().messages, [{ role: 'user', content: 'What is the capital of Spain?' }]);
    await at.ending();
    assert.deepEqual(await at.page.locator('.question').allTextContents(), ['What is the capital of Spain?']);
    assert.ok(await at.page.locator('#editing').isHidden());
    await at.page.reload();
    await at.lastTurn().waitFor();
    assert.deepEqual(await at.page.locator('.question').allTextContents(), ['What is the capital of Spain?']);
  });

  test('Retry asks again, without the old answer', async () => {
    await at.ask(story);
    await at.answerOf(40);
    await at.page.getByRole('button', { name: 'Stop', exact: true }).click();
    await at.ending();
    const sent = at.asked();
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
