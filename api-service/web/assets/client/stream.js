// One reader of one stream: its cursor, and the loop that reconnects after every break.

import { Broken } from './exchange.js';
import { Gaps } from './gaps.js';
import { Parser } from './sse.js';
import { WhenceError, completed, errorObject, foreign } from './ending.js';

export class Stream {
  #source; // the service's side of the stream
  #lastEventId;
  #text = '';
  #usage = null;
  #ending;
  #error; // the error of an ending other than completed
  #reading = false;

  constructor(source) {
    this.#source = source;
    this.#lastEventId = source.lastEventId;
  }

  get id() { return this.#source.id; }
  get token() { return this.#source.token; }
  get lastEventId() { return this.#lastEventId; }
  get ending() { return this.#ending; }

  // stop ends the stream for all of its readers.
  stop({ signal } = {}) { return this.#source.stop(signal); }

  // text reads to the end, and returns all text since the stream was made or resumed.
  async text() {
    for await (const _ of this);
    return this.#text;
  }

  // Leaving the loop leaves the stream; another loop continues at the same position.
  async *[Symbol.asyncIterator]() {
    if (this.#reading) throw new TypeError('the stream is being read; resume() makes another reader');
    this.#reading = true;
    try {
      yield* this.#events();
    } finally {
      this.#reading = false;
    }
    if (this.#error) throw this.#error;
  }

  async *#events() {
    const patience = this.#source.patience();
    let skip = false;
    while (this.#ending === undefined) {
      const exchange = this.#source.exchange();
      let opened;
      try {
        const status = await this.#source.open(exchange, skip ? '' : this.#lastEventId);
        if (status === 204 && !skip) { // the previous owner of the cursor has read the ending; read it again from the log
          skip = true;
          continue;
        }
        if (exchange.type() !== 'text/event-stream') throw new SyntaxError('its type is not text/event-stream');
        opened = performance.now();
        const parser = new Parser();
        const gaps = new Gaps();
        for (let bytes; this.#ending === undefined && (bytes = await exchange.read()) !== undefined;) {
          const now = performance.now();
          const frames = parser.push(bytes);
          patience.retry = parser.retry ?? patience.retry;
          for (const frame of frames) {
            if (this.#ending !== undefined) break;
            this.#source.signal?.throwIfAborted();
            patience.calm();
            if (frame.event === 'delta') gaps.take(now);
            const event = this.#take(frame, skip);
            if (event) yield event;
          }
        }
        if (this.#ending === undefined) throw new Broken('the connection ended before the stream');
        this.#source.report?.(gaps.report(exchange.headers()));
      } catch (err) {
        exchange.close();
        await this.#mend(err, patience, opened);
      } finally {
        exchange.close();
      }
    }
  }

  // mend waits until the next attempt. An error that cannot be retried becomes the ending, unless
  // the reader itself caused it.
  async #mend(err, patience, opened) {
    try {
      if (!(err instanceof Broken)) throw err;
      if (opened !== undefined) patience.held(performance.now() - opened);
      await patience.wait(err, this.#source.signal);
    } catch (last) {
      this.#source.signal?.throwIfAborted(); // the reader itself has left, whatever its reason
      const failure = foreign(last);
      if (!(failure instanceof WhenceError)) throw failure;
      this.#fail(failure);
    }
  }

  #fail(error) {
    this.#error = error;
    this.#ending = error.ending;
  }

  // delta returns the event of text, or of pieces of choices, in which case the text is that of the
  // first.
  #delta(id, value) {
    const { choices } = value;
    const { text = '', reasoning, calls } = choices ? (choices.find(({ index }) => index === 0) ?? {}) : value;
    this.#text += text;
    return { type: 'delta', id, text, ...(reasoning && { reasoning }), ...(calls && { calls }), ...(choices && { choices }) };
  }

  // take returns the event of a frame, if the frame has one. With skip, the reader has read all
  // text already.
  #take({ id, event, data }, skip) {
    if (!known.has(event)) return undefined; // of a later version
    const value = parse(event, data);
    if (!skip) this.#lastEventId = id;
    switch (event) {
      case 'delta':
        if (skip) return undefined;
        return this.#delta(id, value);
      case 'usage':
        this.#usage = value;
        return skip ? undefined : { type: 'usage', id, usage: value };
      case 'ending':
        this.#ending = completed(value, this.#usage);
        return { type: 'ending', id, ending: this.#ending };
      case 'error':
        this.#fail(new WhenceError({ ...value, usage: this.#usage }));
    }
    return undefined; // the loop throws the error once the connection is closed
  }
}

const known = new Set(['delta', 'usage', 'ending', 'error']);

// parse reads the data of an event, and checks the fields that the reader needs.
function parse(event, data) {
  let value = JSON.parse(data);
  if (event === 'error') value = errorObject(value);
  const good = event === 'delta' ? typeof value?.text === 'string' || pieces(value?.choices) : typeof value === 'object' && value !== null;
  if (!good) throw new SyntaxError(`an event ${event} has other data`);
  return value;
}

const pieces = (choices) => Array.isArray(choices) && choices.every((piece) => Number.isInteger(piece?.index) && typeof piece.text === 'string');
