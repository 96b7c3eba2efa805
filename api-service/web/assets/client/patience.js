// How long to wait before the next attempt, and when to give up.

import { WhenceError, lost } from './ending.js';
import { maxTimer } from './exchange.js';

// The longest delay, in ms, unless the service asks for a longer one. A connection that lasted
// longer than that resets the count of failures.
const longest = 10_000;

// The shortest delay, in ms, whatever the service asks for.
const shortest = 50;

export class Patience {
  #total;
  #since; // time of the first of the consecutive failures
  #failures = 0; // consecutive
  #onRetry;

  // The delay after the first failure, in ms: the service sets it with `retry:`.
  retry = 1000;

  // total is how long, in ms, to retry after the first of consecutive failures. onRetry, if any, is
  // called before each wait.
  constructor(total, onRetry) {
    this.#total = total;
    this.#onRetry = onRetry;
  }

  // calm resets the count of consecutive failures.
  calm() {
    this.#failures = 0;
    this.#since = undefined;
  }

  // held records how long, in ms, a broken connection had lasted.
  held(time) {
    if (time > longest) this.calm();
  }

  // wait waits after a failure, with an exponential backoff and jitter. It throws if patience is
  // over, or would be over after the wait.
  async wait(broken, signal) {
    const now = performance.now();
    this.#since ??= now;
    const least = Math.max(this.retry, shortest);
    const grown = Math.max(least, Math.min(least * 2 ** this.#failures++, longest));
    const delay = Math.max(grown, broken.refusal?.retryAfter ?? 0) * (1 + Math.random() / 2);
    if (now + delay - this.#since > this.#total) {
      const failure = broken.refusal ?? new WhenceError(lost(`${broken.message}; ${this.#failures} attempts in ${Math.round(now - this.#since)} ms`), { cause: broken.cause });
      failure.gaveUp = true;
      throw failure;
    }
    this.#onRetry?.(this.#failures + 1, broken.refusal ?? new WhenceError(lost(broken.message), { cause: broken.cause }));
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
