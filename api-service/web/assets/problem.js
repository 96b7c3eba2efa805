// What a page shows when the server refuses it: the reason and, if a key is missing or wrong, a field
// for one.

import { anotherKey, apiKey, useKey } from './api.js';
import { node } from './node.js';

export class Problem {
  #text = node('p', { class: 'problem', role: 'alert' });
  #key = node('input', { type: 'password', name: 'key', required: true, autocomplete: 'off' });
  #form = node('form', { class: 'filters key', 'aria-label': 'Key', hidden: true },
    node('label', {}, node('span', {}, 'API key, or the operator’s key'), this.#key), node('button', {}, 'Use this key'),
    node('p', { class: 'hint' }, 'Kept until this tab closes.'));

  node = node('div', { class: 'refused', hidden: true }, this.#text, this.#form);

  constructor() {
    this.#form.addEventListener('submit', (event) => {
      event.preventDefault();
      useKey(this.#key.value);
    });
  }

  // tell shows a problem, and returns whether to ask again at once. If the server wants a key, tell
  // asks the reader for one and waits until there is another key, so that a page does not poll a
  // server that refuses it.
  async tell(text, { status } = {}) {
    if (this.#text.textContent !== text) this.#text.textContent = text;
    this.node.hidden = false;
    this.#form.hidden = status !== 401 && status !== 403;
    if (this.#form.hidden) return false;
    this.#key.value = apiKey();
    await anotherKey();
    return this.node.isConnected; // or the page has been left
  }

  clear() {
    this.node.hidden = true;
    this.#text.textContent = '';
  }
}
