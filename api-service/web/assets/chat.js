// One answer: a kept stream, which clients/js makes and reads to its ending. A break of the
// connection does not end the stream, and neither does the end of the page: any page of this browser
// reads on where the last one was.

import { apiKey } from './api.js';
import { Whence, WhenceError } from './client/index.js';

// unique returns a name that no other chat or request has.
export function unique() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

// begin returns the state of a stream that is still to be made, for a record of a chat. A record
// keeps it as open until the stream has ended.
export function begin(request) {
  const { stream: _, stream_options: __, ...body } = request; // a kept stream implies both
  return { key: unique(), body, last: '' };
}

// follow reads the stream of an open record to its ending, and returns the ending; it never throws.
// It makes the stream if that is still to be done: a page that ended before the answer to its
// request repeats the request under the same key, which makes one stream. Then onMade gets the
// stream's id. onOpen gets the time and the headers of each connection, onFrame the time of each
// event with text, onText the text, onAside the reasoning and the tool calls, and onBreak the number
// of the next attempt and the failure before it. Aborting the signal leaves the stream. patience is
// that of the client.
export async function follow(open, { signal, asked, patience, onMade = () => {}, onOpen, onFrame, onText, onAside = () => {}, onBreak = () => {} }) {
  const answer = new Answer(asked);
  let refused = ''; // the id of the refusal
  const whence = new Whence({
    key: apiKey() || undefined, patience,
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      if (response.ok && init.method === 'GET') onOpen(performance.now(), response.headers);
      else if (!response.ok) refused = response.headers.get('X-Request-Id') ?? '';
      return response;
    },
  });
  let stream;
  try {
    if (open.id) stream = whence.resume(open.id, { token: open.token, lastEventId: open.last, signal, onRetry: onBreak });
    else {
      stream = await whence.stream(open.body, { idempotencyKey: open.key, signal, onRetry: onBreak });
      open.id = stream.id;
      open.token = stream.token;
      delete open.body;
      onMade(stream.id);
    }
    for await (const event of stream) {
      const now = performance.now();
      open.last = event.id;
      const { text, aside } = answer.take(event, now);
      if (text || aside) onFrame(now);
      if (aside) onAside(aside);
      if (text) onText(text);
    }
    return answer.completed(stream.ending);
  } catch (err) {
    if (signal.aborted) return { kind: 'stopped' };
    return { ...failed(err, Boolean(stream)), id: refused };
  }
}

// failed reads the error of a stream, or of a request that made none.
function failed(err, made) {
  if (!(err instanceof WhenceError)) return { kind: 'cut', message: err.message };
  const { ending, status, retryAfter } = err;
  const told = { code: ending.reason, message: ending.message, param: ending.param ?? '', path: ending.path.join(' > ') };
  if (made && err.gaveUp) return { kind: 'lost', message: ending.message };
  if (made && (status === 404 || (status === 410 && ending.reason === 'not_found'))) {
    return { kind: 'cut', message: 'api-service has lost the stream: it has restarted, or the stream ended long ago' };
  }
  if (!made && err.gaveUp && status === undefined) return { kind: 'unreachable' };
  if (status === undefined || status === 410) return { ...told, kind: 'failed' }; // 410 has the stream's own ending
  return { ...told, kind: 'refused', status, retryAfter: retryAfter === undefined ? '' : String(retryAfter / 1000) };
}

// An Answer measures the events of one stream.
export class Answer {
  #asked;
  #first; // when the first text arrived
  #last; // when the usage arrived: the token that ends an answer takes time as well
  #tokens;

  // asked is when the stream was requested, or null for a reader that begins in its middle.
  constructor(asked) {
    this.#asked = asked;
  }

  // take returns the text that an event adds, and the other parts of the answer, {thought, called},
  // if it has any.
  take(event, now) {
    if (event.type !== 'delta') {
      this.#last ??= now;
      this.#tokens = event.usage?.completion_tokens ?? this.#tokens;
      return { text: '' };
    }
    const thought = event.reasoning ?? '';
    const called = (event.calls ?? []).map(({ index, name, arguments: args }) => (name ? `${index ? '\n' : ''}${name} ${args}` : args)).join('');
    if (event.text || thought || called) this.#first ??= now;
    return { text: event.text, aside: thought || called ? { thought, called } : undefined };
  }

  // completed returns the ending of a stream that completed.
  completed({ finish }) {
    const ending = { kind: 'completed', finish: finish ?? '', tokens: this.#tokens };
    if (this.#asked === null) return ending;
    if (this.#first !== undefined) ending.ttft = this.#first - this.#asked;
    const seconds = (this.#last - this.#first) / 1000;
    if (seconds > 0 && this.#tokens > 1) ending.rate = (this.#tokens - 1) / seconds;
    return ending;
  }
}
