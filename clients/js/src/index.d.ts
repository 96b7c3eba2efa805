/** Why a stream is over. The word is the same on every hop. */
export type Reason =
  | 'completed'
  | 'client_gone'
  | 'user_stop'
  | 'operator_stop'
  | 'slow_reader'
  | 'deadline'
  | 'draining'
  | 'peer_reset'
  | 'peer_lost'
  | 'overloaded'
  | 'unavailable'
  | 'invalid'
  | 'not_found'
  | 'unauthenticated'
  | 'forbidden'
  | 'engine_failed'
  | 'internal';

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details?: { cached_tokens?: number };
  completion_tokens_details?: { reasoning_tokens?: number };
}

interface EndingOf<R extends Reason> {
  readonly reason: R;
  /** The hop where the ending began: the first of the path, or "" if unknown. */
  readonly origin: string;
  /** The hops that the ending has crossed, origin first. */
  readonly path: readonly string[];
  /** A text for people. */
  readonly message: string;
  /** The field of the request at fault. */
  readonly param: string | null;
  /**
   * The error code of OpenAI's API, such as "context_length_exceeded", or the code of the server
   * behind Whence; null if the error has none.
   */
  readonly code: string | null;
}

export interface Completed extends EndingOf<'completed'> {
  /** Why the model stopped; null if each of several choices has its own. */
  readonly finish: 'stop' | 'length' | 'tool_calls' | 'content_filter' | null;
  /** null if the stream was resumed after its usage event. */
  readonly usage: Usage | null;
}

export interface Failed extends EndingOf<Exclude<Reason, 'completed'>> {
  readonly finish: null;
  readonly usage: Usage | null;
}

export type Ending = Completed | Failed;

/** A token and its log-probability. */
export interface TokenLogprob {
  readonly token: string;
  readonly logprob: number;
  /** The bytes that the token adds to the text; null for none. */
  readonly bytes: readonly number[] | null;
  readonly top_logprobs: readonly Omit<TokenLogprob, 'top_logprobs'>[];
}

/**
 * A piece of a tool call. The first piece has the call's id and name; the arguments of all pieces,
 * concatenated, are JSON.
 */
export interface CallPiece {
  /** Index of the call within the answer, from 0. */
  readonly index: number;
  readonly id?: string;
  readonly name?: string;
  readonly arguments: string;
}

/** The new part of one choice. */
export interface Piece {
  readonly index: number;
  readonly text: string;
  /** The text that the model thinks before it answers. */
  readonly reasoning?: string;
  readonly calls?: readonly CallPiece[];
  /** Of its tokens, if the request asks for logprobs. */
  readonly logprobs?: readonly TokenLogprob[];
  /** Why the choice is complete, in its last piece; never set on the only choice of a stream. */
  readonly finish?: NonNullable<Completed['finish']>;
}

/**
 * An event's id is the cursor after it. Deltas that a slow reader has not yet read are merged into
 * one event. Streams with several choices, or with logprobs, have choices; text, reasoning and
 * calls are then those of the first choice.
 */
export type StreamEvent =
  | {
      readonly type: 'delta';
      readonly id: string;
      readonly text: string;
      /** The text that the model thinks before it answers. */
      readonly reasoning?: string;
      readonly calls?: readonly CallPiece[];
      readonly choices?: readonly Piece[];
    }
  | { readonly type: 'usage'; readonly id: string; readonly usage: Usage }
  | { readonly type: 'ending'; readonly id: string; readonly ending: Completed };

/** The ending of a stream that did not complete, or a refusal to make or read a stream. */
export class WhenceError extends Error {
  private constructor();
  readonly name: 'WhenceError';
  readonly ending: Failed;
  readonly reason: Failed['reason'];
  /** The HTTP status of a refusal. */
  readonly status: number | undefined;
  /** When to try again, in ms, if the service sent a time. */
  readonly retryAfter: number | undefined;
  /**
   * Whether this is the last failure of a client whose patience was over. The stream may still run,
   * and resume() may find it.
   */
  readonly gaveUp: boolean;
}

export interface Message {
  role: 'system' | 'developer' | 'user' | 'assistant' | 'tool';
  content: string | readonly { type: 'text'; text: string }[] | null;
  [field: string]: unknown;
}

/**
 * A body of chat completions or, with a prompt instead of messages, of completions; plus the policy
 * for a stream without readers. The service refuses fields that it cannot honour.
 */
export interface Request {
  model: string;
  messages?: readonly Message[];
  prompt?: string | readonly string[] | readonly number[] | readonly (readonly number[])[];
  /** What happens to the stream without a reader. The service has a default. */
  leave?: 'cancel' | 'detach' | 'drain' | `linger:${string}`;
  [field: string]: unknown;
}

export interface Options {
  /** Such as "https://whence.example"; "" means the page's origin. A trailing "/v1" is ignored. */
  baseURL?: string;
  /** Sent as Authorization: Bearer. */
  key?: string;
  /** A replacement for the global fetch. */
  fetch?: typeof globalThis.fetch;
  /**
   * How long, in ms, to retry without progress after a break. Default 60,000; 0 means no retries.
   */
  patience?: number;
  /**
   * Time without a byte, in ms, after which a connection counts as broken. Default 45,000: three
   * times the service's interval between comments.
   */
  silence?: number;
  /**
   * Makes each reader that reaches an ending report to the service how its events arrived: a
   * histogram of pauses, and the headers Server and Via of the response. The service uses it to
   * detect proxies that collect tokens. Default false.
   */
  report?: boolean;
}

/**
 * Is called after each failure, before the client waits for the next attempt. attempt is the number
 * of that attempt: 2 after the first failure in a row.
 */
export type OnRetry = (attempt: number, failure: WhenceError) => void;

export class Whence {
  constructor(options?: Options);
  /**
   * Makes a stream, and returns its first reader. Throws a WhenceError if the service refuses. The
   * signal and onRetry also apply to the reader.
   */
  stream(request: Request, options?: { signal?: AbortSignal; idempotencyKey?: string; onRetry?: OnRetry }): Promise<Stream>;
  /**
   * Returns another reader, from the event after lastEventId on, or from the first event. It sends
   * nothing until it is read.
   */
  resume(id: string, options?: { lastEventId?: string; token?: string; signal?: AbortSignal; onRetry?: OnRetry }): Stream;
}

/**
 * One reader of one stream. It reconnects by itself when its connection breaks, and neither loses
 * nor repeats text.
 *
 * The loop ends without an error if, and only if, the stream completed. It throws a WhenceError for
 * any other ending. If the signal is aborted, the loop throws its reason and leaves the stream;
 * breaking out of the loop leaves the stream, too. A stream that was left can be read on, unless
 * the signal was aborted.
 */
export interface Stream extends AsyncIterable<StreamEvent> {
  readonly id: string;
  /** Allows others to read the stream, for a limited time. */
  readonly token: string | undefined;
  /** The position of this reader. */
  readonly lastEventId: string;
  /** undefined until the reader has received the ending. */
  readonly ending: Ending | undefined;
  [Symbol.asyncIterator](): AsyncGenerator<StreamEvent, void, undefined>;
  /**
   * Reads to the end, and returns all text that this reader has received; with several choices,
   * that of the first. Throws like the loop.
   */
  text(): Promise<string>;
  /**
   * Ends the stream for all of its readers. Each reader, including this one, gets the ending
   * user_stop when it reads on.
   */
  stop(options?: { signal?: AbortSignal }): Promise<void>;
}
