// A button that stops a stream.

import { stop } from './api.js';
import { node } from './node.js';

// halter returns a button that stops a stream. It asks back, unless the stream is this page's own. fail
// gets the error of a stop.
export function halter(id, { own, fail }) {
  const button = node('button', { type: 'button', class: 'stop', 'aria-label': `Stop ${id}` }, 'Stop');
  const ask = (asking) => {
    button.toggleAttribute('data-asking', asking);
    button.textContent = asking ? 'Really stop?' : 'Stop';
    button.setAttribute('aria-label', `${asking ? 'Really stop' : 'Stop'} ${id}`);
  };
  button.addEventListener('blur', () => ask(false));
  button.addEventListener('click', async () => {
    if (!own && !button.hasAttribute('data-asking')) {
      ask(true);
      return;
    }
    button.disabled = true;
    try {
      await stop(id);
    } catch (err) {
      fail(err);
    }
    button.disabled = false;
    ask(false);
  });
  return button;
}
