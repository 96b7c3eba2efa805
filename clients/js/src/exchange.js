// One request and its response, with bounds: what breaks, or says nothing for too long, is Broken, and can be tried again.

import { WhenceError, errorObject, mayPass, refused } from './ending.js';

// A Broken exchange says nothing of the stream: it may be tried again.
export class Broken extends Error {
  // refusal is the WhenceError that the service answered with, if it did.
  constructor(message, { refusal, cause } = {}) {
    super(message, { cause });
    this.refusal = refusal;
  }
}

// maxTimer is what setTimeout can wait, in ms; with more it would not wait at all.
export const maxTimer = 2 ** 31 - 1;

// maxBody bounds what is read of a body that is no stream, in characters.
const maxBody = 1 << 20;

export class Exchange {
  #controller = new AbortController();
  #silence;
  #signal;
  #silent = false;
  #response;
  #reader;
  #leave = () => this.#controller.abort(this.#signal.reason);

  // silence is how long, in ms, the other side may say nothing; signal, if any, ends the exchange.
  constructor(silence, signal) {
    signal?.throwIfAborted();
    this.#silence = Math.min(silence, maxTimer);
    this.#signal = signal;
    signal?.addEventListener('abort', this.#leave, { once: true });
  }

  // send returns the status. Any but those of 2xx throws.
  async send(fetch, url, init) {
    this.#response = await this.#bounded(() => fetch(url, { ...init, cache: 'no-store', signal: this.#controller.signal }));
    this.#reader = this.#response.body?.getReader();
    if (!this.#response.ok) throw await this.#refusal();
    return this.#response.status;
  }

  // type returns the media type of the body.
  type() { return (this.#response.headers.get('Content-Type') ?? '').split(';')[0].trim().toLowerCase(); }

  headers() { return this.#response.headers; }

  // read returns the next bytes; undefined is the end.
  async read() {
    if (!this.#reader) return undefined;
    const { value, done } = await this.#bounded(() => this.#reader.read());
    return done ? undefined : value;
  }

  // json returns the body. A SyntaxError or RangeError says that it is no answer of Whence's.
  async json() {
    const decoder = new TextDecoder();
    let text = '';
    for (let bytes; (bytes = await this.read()) !== undefined;) {
      text += decoder.decode(bytes, { stream: true });
      if (text.length > maxBody) throw new RangeError(`the body of the answer has more than ${maxBody} characters`);
    }
    return JSON.parse(text + decoder.decode());
  }

  // close ends what has not ended.
  close() {
    this.#signal?.removeEventListener('abort', this.#leave);
    this.#controller.abort();
    this.#reader?.cancel().catch(() => {}); // of a connection that is gone
  }

  async #bounded(wait) {
    const timer = setTimeout(() => {
      this.#silent = true;
      this.#controller.abort();
    }, this.#silence);
    try {
      return await wait();
    } catch (cause) {
      this.#signal?.throwIfAborted();
      throw new Broken(this.#silent ? `nothing was heard for ${this.#silence} ms` : 'the connection broke, or could not be made', { cause });
    } finally {
      clearTimeout(timer);
    }
  }

  async #refusal() {
    const { status, headers } = this.#response;
    const seconds = Number(headers.get('Retry-After') ?? NaN);
    const body = await this.json().catch(() => undefined); // a proxy's, or cut: the status has been read
    this.#signal?.throwIfAborted();
    const ending = errorObject(body) ?? refused(status);
    const refusal = new WhenceError(ending, { status, retryAfter: seconds >= 0 ? seconds * 1000 : undefined });
    const gone = status === 410; // the stream has ended with this ending
    return mayPass(ending) && !gone ? new Broken(ending.message, { refusal }) : refusal;
  }
}
