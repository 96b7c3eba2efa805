// Where streams are made, found again and stopped.

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
    this.#base = String(baseURL).replace(/\/+$/, '').replace(/\/v1$/, ''); // SDKs of OpenAI want the /v1
    new URL(this.#base + '/v1', globalThis.location?.href); // which throws if it is none
    this.#key = key;
    this.#fetch = fetch ?? ((url, init) => globalThis.fetch(url, init)); // browsers want it called on their own object
    this.#patience = patience;
    this.#silence = silence;
    this.#report = report;
  }

  // stream makes a stream. An attempt whose answer is lost is repeated under the same key, and makes no second one.
  async stream({ leave, ...request }, { signal, idempotencyKey = unique() } = {}) {
    const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': idempotencyKey };
    if (leave !== undefined) headers['X-Leave'] = leave;
    const body = JSON.stringify(request);
    const made = await this.#ask('POST', '/v1/streams', { headers, body }, signal);
    if (typeof made?.id !== 'string') throw new WhenceError(failed('internal', 'the answer names no stream', ['api-service']));
    return this.resume(made.id, { token: made.read_token, signal });
  }

  // resume returns a stream that somebody has made. Nothing is sent until it is read.
  resume(id, { lastEventId = '', token, signal } = {}) {
    const path = `/v1/streams/${encodeURIComponent(id)}`;
    const query = token ? `?token=${encodeURIComponent(token)}` : '';
    return new Stream({
      id, lastEventId, token, signal,
      patience: () => new Patience(this.#patience),
      open: (exchange, cursor) => {
        const headers = { Accept: 'text/event-stream' };
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
      if (!(err instanceof WhenceError && err.reason === 'not_found')) throw err; // it has ended, which is what was wanted
    }
  }

  // tell sends what a reader saw of its stream, once, and nobody waits for it.
  async #tell(path, body) {
    if (body === undefined) return;
    const exchange = new Exchange(this.#silence);
    try {
      await this.#send(exchange, 'POST', path, { headers: { 'Content-Type': 'application/json' }, body, keepalive: true });
    } catch {
      // It is of use to those who run the service, not to the reader.
    } finally {
      exchange.close();
    }
  }

  // ask sends a request that may be repeated until it is answered, and returns the body.
  async #ask(method, path, init, signal) {
    const patience = new Patience(this.#patience);
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
    const all = new Headers(headers); // which throws here, where it is no broken connection
    if (this.#key !== undefined) all.set('Authorization', `Bearer ${this.#key}`);
    return exchange.send(this.#fetch, this.#base + path, { method, headers: all, body, keepalive });
  }
}

// unique returns an idempotency key. crypto.randomUUID is not there on pages that came over http.
function unique() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
