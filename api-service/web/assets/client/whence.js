// The client: makes, resumes and stops streams.

import { Broken, Exchange } from './exchange.js';
import { Patience } from './patience.js';
import { Stream } from './stream.js';
import { WhenceError, failed, foreign } from './ending.js';

export class Whence {
  #base;
  #key;
  #fetch;
  #patience;
  #silence;
  #report;

  constructor({ baseURL = '', key, fetch, patience = 60_000, silence = 45_000, report = false } = {}) {
    this.#base = String(baseURL).replace(/\/+$/, '').replace(/\/v1$/, ''); // OpenAI's SDKs require the /v1
    new URL(this.#base + '/v1', globalThis.location?.href); // throws if the URL is not valid
    this.#key = key;
    this.#fetch = fetch ?? ((url, init) => globalThis.fetch(url, init)); // browsers require window as the receiver of fetch
    this.#patience = patience;
    this.#silence = silence;
    this.#report = report;
  }

  // stream makes a stream. If the answer is lost, the request is repeated under the same
  // idempotency key, so that it makes only one stream.
  async stream({ leave, ...request }, { signal, idempotencyKey = unique(), onRetry } = {}) {
    const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': idempotencyKey };
    if (leave !== undefined) headers['X-Leave'] = leave;
    const body = JSON.stringify(request);
    const made = await this.#ask('POST', '/v1/streams', { headers, body }, signal, onRetry);
    if (typeof made?.id !== 'string') throw new WhenceError(failed('internal', 'the answer has no stream id', ['api-service']));
    return this.resume(made.id, { token: made.read_token, signal, onRetry });
  }

  // resume returns a reader of an existing stream. It sends nothing until the stream is read.
  resume(id, { lastEventId = '', token, signal, onRetry } = {}) {
    const path = `/v1/streams/${encodeURIComponent(id)}`;
    const query = token ? `?token=${encodeURIComponent(token)}` : '';
    return new Stream({
      id, lastEventId, token, signal,
      patience: () => new Patience(this.#patience, onRetry),
      open: (exchange, cursor) => {
        const headers = { Accept: 'text/event-stream, application/json' };
        if (cursor !== '') headers['Last-Event-ID'] = cursor;
        return this.#send(exchange, 'GET', `${path}/events${query}`, { headers });
      },
      exchange: () => new Exchange(this.#silence, signal),
      stop: (stopSignal) => this.#stop(path, stopSignal),
      report: this.#report ? (seen) => this.#tell(`${path}/seen${query}`, seen) : undefined,
    });
  }

  async #stop(path, signal) {
    try {
      await this.#ask('DELETE', path, {}, signal);
    } catch (err) {
      if (!(err instanceof WhenceError && err.reason === 'not_found')) throw err; // the stream has ended already
    }
  }

  // tell sends a reader's report, once. The reader does not wait for it.
  async #tell(path, body) {
    if (body === undefined) return;
    const exchange = new Exchange(this.#silence);
    try {
      await this.#send(exchange, 'POST', path, { headers: { 'Content-Type': 'application/json' }, body, keepalive: true });
    } catch {
      // The report serves the operators of the service, so its failure is not the reader's.
    } finally {
      exchange.close();
    }
  }

  // ask sends an idempotent request, with retries, until it is answered, and returns the body.
  async #ask(method, path, init, signal, onRetry) {
    const patience = new Patience(this.#patience, onRetry);
    for (;;) {
      const exchange = new Exchange(this.#silence, signal);
      try {
        await this.#send(exchange, method, path, init);
        return await exchange.json();
      } catch (err) {
        if (!(err instanceof Broken)) throw foreign(err);
        await patience.wait(err, signal);
      } finally {
        exchange.close();
      }
    }
  }

  #send(exchange, method, path, { headers, body, keepalive }) {
    const all = new Headers(headers); // throws here, so that it does not look like a broken connection
    if (this.#key !== undefined) all.set('Authorization', `Bearer ${this.#key}`);
    return exchange.send(this.#fetch, this.#base + path, { method, headers: all, body, keepalive });
  }
}

// unique returns an idempotency key. crypto.randomUUID is missing on pages loaded over http.
function unique() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
