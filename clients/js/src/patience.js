// How long to wait before the next attempt, and when to give up.

import { WhenceError, lost } from './ending.js';
import { maxTimer } from './exchange.js';

// The longest wait, in ms, unless the service asks for a longer one. A connection that held for longer was none of trouble.
const longest = 10_000;

// The shortest, in ms, whatever the service asks for.
const shortest = 50;

export class Patience {
  #total;
  #since; // when the trouble began
  #failures = 0; // in a row

  // How long to wait after the first failure, in ms: what the service says in `retry:`.
  retry = 1000;

  // total is how long, in ms, to go on after the first failure of a row.
  constructor(total) {
    this.#total = total;
  }

  // calm ends a row of failures.
  calm() {
    this.#failures = 0;
    this.#since = undefined;
  }

  // held notes how long a connection that broke had been there, in ms.
  held(time) {
    if (time > longest) this.calm();
  }

  // wait waits after a failure, ever longer, and never as long as others that wait for the same. It throws when patience is
  // at its end, or would be after the wait.
  async wait(broken, signal) {
    const now = performance.now();
    this.#since ??= now;
    const least = Math.max(this.retry, shortest);
    const grown = Math.max(least, Math.min(least * 2 ** this.#failures++, longest));
    const delay = Math.max(grown, broken.refusal?.retryAfter ?? 0) * (1 + Math.random() / 2);
    if (now + delay - this.#since > this.#total) {
      if (broken.refusal) throw broken.refusal;
      throw new WhenceError(lost(`${broken.message}; ${this.#failures} attempts in ${Math.round(now - this.#since)} ms`), { cause: broken.cause });
    }
    await sleep(Math.min(delay, maxTimer), signal);
  }
}

function sleep(delay, signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const leave = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', leave);
      resolve();
    }, delay);
    signal?.addEventListener('abort', leave, { once: true });
  });
}
