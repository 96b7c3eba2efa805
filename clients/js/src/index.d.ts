/** Why a stream is over: the same word on every hop. */
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
  /** The hop where the ending began: the first of the path, or "" where none is known. */
  readonly origin: string;
  /** The hops that the ending has crossed, origin first. */
  readonly path: readonly string[];
  /** For people. */
  readonly message: string;
  /** The field of the request at fault. */
  readonly param: string | null;
  /** What the server behind Whence calls the error, such as "context_length_exceeded"; null where it has no word of its own. */
  readonly code: string | null;
}

export interface Completed extends EndingOf<'completed'> {
  /** Why the model stopped; null where each of several choices has its own. */
  readonly finish: 'stop' | 'length' | 'tool_calls' | 'content_filter' | null;
  /** null if the stream was resumed after its usage event. */
  readonly usage: Usage | null;
}

export interface Failed extends EndingOf<Exclude<Reason, 'completed'>> {
  readonly finish: null;
  readonly usage: Usage | null;
}

export type Ending = Completed | Failed;

/** A token, and how likely it was. */
export interface TokenLogprob {
  readonly token: string;
  readonly logprob: number;
  /** What it adds to the text; null for nothing. */
  readonly bytes: readonly number[] | null;
  readonly top_logprobs: readonly Omit<TokenLogprob, 'top_logprobs'>[];
}

/** A piece of a call of a tool. The first of a call has its id and name; the arguments of all, joined, are its JSON. */
export interface CallPiece {
  /** Which call of the answer, from 0 on. */
  readonly index: number;
  readonly id?: string;
  readonly name?: string;
  readonly arguments: string;
}

/** What is new of one choice. */
export interface Piece {
  readonly index: number;
  readonly text: string;
  /** What the model thinks before it answers. */
  readonly reasoning?: string;
  readonly calls?: readonly CallPiece[];
  /** Of its tokens, if the request asks for them. */
  readonly logprobs?: readonly TokenLogprob[];
  /** Why the choice is complete, in its last piece; never of the only choice of a stream. */
  readonly finish?: NonNullable<Completed['finish']>;
}

/**
 * An event's id is the cursor after it. Text that a reader was late for comes in one event. Streams with several choices, or with
 * logprobs, have choices; text, reasoning and calls are then those of the first.
 */
export type StreamEvent =
  | {
      readonly type: 'delta';
      readonly id: string;
      readonly text: string;
      /** What the model thinks before it answers. */
      readonly reasoning?: string;
      readonly calls?: readonly CallPiece[];
      readonly choices?: readonly Piece[];
    }
  | { readonly type: 'usage'; readonly id: string; readonly usage: Usage }
  | { readonly type: 'ending'; readonly id: string; readonly ending: Completed };

/** The ending of a stream that did not complete, or a refusal to make or read one. */
export class WhenceError extends Error {
  private constructor();
  readonly name: 'WhenceError';
  readonly ending: Failed;
  readonly reason: Failed['reason'];
  /** The HTTP status of a refusal. */
  readonly status: number | undefined;
  /** When another attempt may be worth it, in ms, if the service said so. */
  readonly retryAfter: number | undefined;
}

export interface Message {
  role: 'system' | 'developer' | 'user' | 'assistant' | 'tool';
  content: string | readonly { type: 'text'; text: string }[] | null;
  [field: string]: unknown;
}

/**
 * A body of chat completions, or, with a prompt instead of messages, of completions; and how it may be left. The service refuses
 * fields that it cannot honour.
 */
export interface Request {
  model: string;
  messages?: readonly Message[];
  prompt?: string | readonly string[] | readonly number[] | readonly (readonly number[])[];
  /** What becomes of the stream when nobody reads it. Left out, the service decides. */
  leave?: 'cancel' | 'detach' | 'drain' | `linger:${string}`;
  [field: string]: unknown;
}

export interface Options {
  /** Such as "https://whence.example"; "" is the page's own. A trailing "/v1" is left out. */
  baseURL?: string;
  /** Sent as Authorization: Bearer. */
  key?: string;
  /** Instead of the global one. */
  fetch?: typeof globalThis.fetch;
  /** For how long, in ms, to try again after a break, without hearing anything new. 60,000 unless told; 0 is not at all. */
  patience?: number;
  /** After how long without a byte, in ms, a connection counts as broken. 45,000 unless told: three times what the service
   * leaves between two comments. */
  silence?: number;
  /** Has each reader that reaches an ending tell the service how its events came: counts of pauses, and the headers Server and Via
   * of the response. By that the service finds proxies that collect tokens. false unless told. */
  report?: boolean;
}

export class Whence {
  constructor(options?: Options);
  /** Makes a stream, and returns its first reader. Throws a WhenceError if it is refused. The signal is the reader's, too. */
  stream(request: Request, options?: { signal?: AbortSignal; idempotencyKey?: string }): Promise<Stream>;
  /** Returns another reader, from the event after lastEventId on, or from the first. It asks when it is read. */
  resume(id: string, options?: { lastEventId?: string; token?: string; signal?: AbortSignal }): Stream;
}

/**
 * One reader of one stream. It comes back by itself when its connection breaks, and neither loses nor repeats text.
 *
 * The loop ends without an error if, and only if, the stream completed. It throws a WhenceError for any other ending, and the
 * signal's reason when that is aborted, which leaves the stream, as breaking out of the loop does. After leaving it can be read
 * on, unless the signal was aborted.
 */
export class Stream implements AsyncIterable<StreamEvent> {
  private constructor();
  readonly id: string;
  /** Lets others read the stream, for a time. */
  readonly token: string | undefined;
  /** Where this reader is. */
  readonly lastEventId: string;
  /** undefined until the reader has it. */
  readonly ending: Ending | undefined;
  [Symbol.asyncIterator](): AsyncGenerator<StreamEvent, void, undefined>;
  /** Reads to the end, and returns all text that this reader has had, of several choices that of the first. Throws as the loop does. */
  text(): Promise<string>;
  /** Ends the stream, for all of its readers. Each, this one too, gets the ending user_stop by reading on. */
  stop(options?: { signal?: AbortSignal }): Promise<void>;
}
