// One chat completion: the request, the answer as it arrives, and the ending.

import { authorization } from './api.js';
import { failure, refusal } from './ending.js';
import { Parser } from './sse.js';

const completions = '/v1/chat/completions';

// mint returns an id for a stream. The page chooses the ids of its streams, so that it can stop a
// stream before the response has arrived.
export function mint() {
  return `web-${Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}

// ask sends a chat completion request under an id and returns its ending; it never throws. onOpen
// gets the start of the stream and the response headers, onFrame the time of each frame with text,
// onText the text, onAside the reasoning and the tool calls. Aborting the signal closes the
// connection, and so stops the engine, too.
export async function ask(request, { id, signal, onOpen, onFrame, onText, onAside = () => {} }) {
  const answer = new Answer(performance.now());
  let response, reader;
  try {
    response = await fetch(completions, {
      method: 'POST',
      headers: { ...authorization(), 'Content-Type': 'application/json', Accept: 'text/event-stream', 'X-Request-Id': id },
      body: JSON.stringify(request),
      cache: 'no-store',
      signal,
    });
    if (!response.ok || !/^text\/event-stream\b/i.test(response.headers.get('Content-Type') ?? '')) {
      return refusal(response.status, response.headers.get('Retry-After'), await response.text());
    }
    onOpen(performance.now(), response.headers);
    reader = response.body.getReader();
    const parser = new Parser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return answer.close();
      const now = performance.now();
      let text = '';
      for (const { data } of parser.push(value)) {
        const more = answer.take(data, now);
        if (more || answer.aside) onFrame(now);
        if (answer.aside) onAside(answer.aside);
        text += more;
      }
      if (text) onText(text);
      if (answer.ending) {
        if (answer.ending.kind === 'completed') drain(reader);
        else reader.cancel().catch(() => {}); // the body of a failed stream has no end
        return answer.ending;
      }
    }
  } catch (err) {
    reader?.cancel().catch(() => {});
    if (signal.aborted) return { kind: 'stopped' };
    if (!response) return { kind: 'unreachable' };
    return { kind: 'cut', message: err instanceof TypeError ? 'the connection broke' : err.message };
  }
}

// An Answer joins the data frames of one stream to a text and an ending.
export class Answer {
  ending = null;
  aside = null; // the other parts of the last frame: {thought, called}
  #start;
  #first; // when the first text arrived
  #last; // when the finish reason arrived: the token that ends an answer takes time as well
  #finish = '';
  #tokens;

  constructor(start) {
    this.#start = start;
  }

  // take returns the text that a frame adds. It throws if the frame cannot be read.
  take(data, now) {
    this.aside = null;
    if (this.ending) return '';
    if (data === '[DONE]') {
      this.ending = this.#finish ? this.#completed() : { kind: 'cut', message: '[DONE] came without a finish_reason' };
      return '';
    }
    let chunk;
    try {
      chunk = JSON.parse(data);
    } catch {
      throw new Error('a frame could not be read');
    }
    if (chunk.error) {
      this.ending = failure(chunk.error);
      return '';
    }
    this.#tokens = chunk.usage?.completion_tokens ?? this.#tokens;
    const choice = chunk.choices?.[0];
    const text = choice?.delta?.content ?? '';
    const thought = choice?.delta?.reasoning_content ?? '';
    const called = (choice?.delta?.tool_calls ?? []).map(({ index, function: { name, arguments: args } }) => (name ? `${index ? '\n' : ''}${name} ${args}` : args)).join('');
    if (thought || called) this.aside = { thought, called };
    if (text || this.aside) this.#first ??= now;
    if (choice?.finish_reason) {
      this.#finish = choice.finish_reason;
      this.#last = now;
    }
    return text;
  }

  // close returns the ending when no more frames follow.
  close() {
    return this.ending ?? {
      kind: 'cut',
      message: `the stream ended without ${this.#finish ? '[DONE]' : 'a finish_reason or [DONE]'}`,
    };
  }

  #completed() {
    const ending = { kind: 'completed', finish: this.#finish, tokens: this.#tokens };
    if (this.#first !== undefined) ending.ttft = this.#first - this.#start;
    const seconds = (this.#last - this.#first) / 1000;
    if (seconds > 0 && this.#tokens > 1) ending.rate = (this.#tokens - 1) / seconds;
    return ending;
  }
}

// drain reads the rest after the last frame, which is normally empty: to the server, leaving early
// would look like a client that has gone. After a second drain gives up.
async function drain(reader) {
  const timer = setTimeout(() => reader.cancel().catch(() => {}), 1000);
  try {
    while (!(await reader.read()).done);
  } catch {
    // The ending is known, so it does not matter how the connection closes.
  } finally {
    clearTimeout(timer);
  }
}
