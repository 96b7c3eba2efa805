// One request and its response, with bounds. A broken or silent connection is Broken, and can be
// retried.

import { WhenceError, errorObject, mayPass, refused } from './ending.js';

// A Broken exchange does not end the stream: it can be retried.
export class Broken extends Error {
  // refusal is the WhenceError of the service's response, if there was one.
  constructor(message, { refusal, cause } = {}) {
    super(message, { cause });
    this.refusal = refusal;
  }
}

// maxTimer is the longest delay of setTimeout, in ms; a longer one would fire at once.
export const maxTimer = 2 ** 31 - 1;

// maxBody bounds the characters read of a body that is not a stream.
const maxBody = 1 << 20;

export class Exchange {
  #controller = new AbortController();
  #silence;
  #signal;
  #silent = false;
  #response;
  #reader;
  #leave = () => this.#controller.abort(this.#signal.reason);

  // silence is how long, in ms, the service may send nothing; signal, if any, ends the exchange.
  constructor(silence, signal) {
    signal?.throwIfAborted();
    this.#silence = Math.min(silence, maxTimer);
    this.#signal = signal;
    signal?.addEventListener('abort', this.#leave, { once: true });
  }

  // send returns the status. It throws unless the status is 2xx.
  async send(fetch, url, init) {
    this.#response = await this.#bounded(() => fetch(url, { ...init, cache: 'no-store', signal: this.#controller.signal }));
    this.#reader = this.#response.body?.getReader();
    if (!this.#response.ok) throw await this.#refusal();
    return this.#response.status;
  }

  // type returns the media type of the body.
  type() { return (this.#response.headers.get('Content-Type') ?? '').split(';')[0].trim().toLowerCase(); }

  headers() { return this.#response.headers; }

  // read returns the next bytes, or undefined at the end.
  async read() {
    if (!this.#reader) return undefined;
    const { value, done } = await this.#bounded(() => this.#reader.read());
    return done ? undefined : value;
  }

  // json returns the parsed body. A SyntaxError or RangeError means that the response is not
  // Whence's.
  async json() {
    const decoder = new TextDecoder();
    let text = '';
    for (let bytes; (bytes = await this.read()) !== undefined;) {
      text += decoder.decode(bytes, { stream: true });
      if (text.length > maxBody) throw new RangeError(`the body of the answer has more than ${maxBody} characters`);
    }
    return JSON.parse(text + decoder.decode());
  }

  // close ends the exchange if it is still open.
  close() {
    this.#signal?.removeEventListener('abort', this.#leave);
    this.#controller.abort();
    this.#reader?.cancel().catch(() => {}); // the connection may be gone already
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
      throw new Broken(this.#silent ? `the service sent nothing for ${this.#silence} ms` : 'the connection broke, or could not be made', { cause });
    } finally {
      clearTimeout(timer);
    }
  }

  async #refusal() {
    const { status, headers } = this.#response;
    const seconds = Number(headers.get('Retry-After') ?? NaN);
    const body = await this.json().catch(() => undefined); // a proxy's, or truncated: the status has been read
    this.#signal?.throwIfAborted();
    const ending = errorObject(body) ?? refused(status);
    const refusal = new WhenceError(ending, { status, retryAfter: seconds >= 0 ? seconds * 1000 : undefined });
    const gone = status === 410; // the stream has ended with this ending
    return mayPass(ending) && !gone ? new Broken(ending.message, { refusal }) : refusal;
  }
}
