// Made of whence/stream/v1/stream.proto by scripts/gen. Do not edit.
namespace go streamv1

include "duration.thrift"
include "timestamp.thrift"

// State is the progress of a stream.
enum State {
  // Not known.
  STATE_UNSPECIFIED = 0
  // The stream runs.
  STATE_LIVE = 1
  // The stream was asked to stop, and has not ended yet.
  STATE_STOPPED = 2
  // The stream has ended.
  STATE_ENDED = 3
}

// Extent is how much of an answer a client has received. What the kernel of the client's hop has
// accepted counts as received.
enum Extent {
  // The client has not left, or it is not known.
  EXTENT_UNSPECIFIED = 0
  // No token.
  EXTENT_NOTHING = 1
  // A part of the answer.
  EXTENT_PART = 2
  // A part of the answer with a whole tool call in it.
  EXTENT_TOOL_CALL = 3
  // Everything but the terminator of the stream.
  EXTENT_ANSWER = 4
}

// Verdict says what sets the pace at which a client receives a stream.
enum Verdict {
  // Not known.
  VERDICT_UNSPECIFIED = 0
  // The stream arrived as it was sent.
  VERDICT_FLOWING = 1
  // A proxy collects events and passes them on in bursts.
  VERDICT_BUFFERED = 2
  // The hop itself sent few events for many tokens: the engine makes several at once, or the reader
  // is slow.
  VERDICT_MERGED = 3
  // There were too few events to tell, or they were too fast.
  VERDICT_UNCLEAR = 4
}

// EventKind is the kind of an event. SEND events are actions of this hop, RECV events actions of
// its neighbour.
enum EventKind {
  // Not known.
  EVENT_KIND_UNSPECIFIED = 0
  // A call to the callee (down), or the header of the answer to the caller (up).
  EVENT_KIND_SEND_HEADER = 1
  // A call of the caller (up), or the header of the callee's answer (down).
  EVENT_KIND_RECV_HEADER = 2
  // This hop sent the callee a Stop, or reset the call.
  EVENT_KIND_SEND_RST = 3
  // The neighbour sent this hop a Stop, reset the call, or is lost.
  EVENT_KIND_RECV_RST = 4
  // This hop sent the ending to its caller.
  EVENT_KIND_SEND_TRAILER = 5
  // The callee sent its ending.
  EVENT_KIND_RECV_TRAILER = 6
  // A message to the caller.
  EVENT_KIND_SEND = 7
  // A message from the callee.
  EVENT_KIND_RECV = 8
  // The stream continues on another callee. The path is the callee before, then the callee after.
  EVENT_KIND_MOVE = 9
  // A handover of a prompt, complete, failed or abandoned. The path is the worker that read the
  // prompt, if there was one, then the worker that answers, if there is one.
  EVENT_KIND_HANDOVER = 10
}

// Side is the direction of a neighbour.
enum Side {
  // Not known.
  SIDE_UNSPECIFIED = 0
  // Towards the caller.
  SIDE_UP = 1
  // Towards the callee, or the engine.
  SIDE_DOWN = 2
}

// Reason is why a stream ended. Logs, metric labels, gRPC trailers and SSE error codes use the same
// words, in lower case and without the prefix.
enum Reason {
  // Not known.
  REASON_UNSPECIFIED = 0
  // The engine finished the answer.
  REASON_COMPLETED = 1
  // The client closed its connection.
  REASON_CLIENT_GONE = 2
  // The client asked for the stream to stop.
  REASON_USER_STOP = 3
  // An operator asked for the stream to stop.
  REASON_OPERATOR_STOP = 4
  // A reader did not keep up and the buffer of a hop is full.
  REASON_SLOW_READER = 5
  // A timer of a hop fired.
  REASON_DEADLINE = 6
  // A hop is shutting down.
  REASON_DRAINING = 7
  // A peer sent a bare RST_STREAM, without a reason.
  REASON_PEER_RESET = 8
  // The connection to a peer broke.
  REASON_PEER_LOST = 9
  // A hop has no room for the stream.
  REASON_OVERLOADED = 10
  // No healthy peer can take the stream.
  REASON_UNAVAILABLE = 11
  // The request is not valid, or the path cannot honour it.
  REASON_INVALID = 12
  // The named model or stream does not exist.
  REASON_NOT_FOUND = 13
  // The caller sent no valid credentials.
  REASON_UNAUTHENTICATED = 14
  // The caller may not do this.
  REASON_FORBIDDEN = 15
  // The engine failed.
  REASON_ENGINE_FAILED = 16
  // A bug: a panic, or an error without a reason.
  REASON_INTERNAL = 17
}

// Record is one hop's data about one stream. Only hops of language models set the fields about a
// model, its prompt and its readers.
struct Record {
  // The stream's id.
  1: string stream_id
  // The hop that wrote this record.
  2: string hop
  // The progress of the stream on this hop.
  3: State state
  // The address of the caller.
  4: string peer
  // The requested model.
  5: string model
  // When the stream reached this hop.
  6: optional timestamp.Timestamp began
  // When this hop was asked to stop the stream; not set if it was not.
  7: optional timestamp.Timestamp stop_heard
  // When the callee, on the last hop the engine, had stopped; not set if it did not stop within the
  // grace.
  8: optional timestamp.Timestamp stop_confirmed
  // When the stream ended on this hop; not set while it runs.
  9: optional timestamp.Timestamp ended
  // Why the stream ended or is being stopped.
  10: Reason reason
  // The path of the ending up to this hop, origin first.
  11: list<string> path
  // A text for people about the ending.
  12: string message
  // Tokens of the prompt, as reported by the hops below; with several prompts, the sum.
  13: i64 prompt_tokens
  // Tokens that engines generated for the stream, as far as this hop knows: received tokens, and
  // those that the callee reported in its trailers beyond these. On the last hop, the tokens that
  // the engine generated.
  14: i64 tokens_in
  // Tokens of the answer that this hop sent to its caller, including the token that ended the
  // answer. Generated tokens beyond these are wasted.
  15: i64 tokens_out
  // The stream's moves from one callee to another, oldest first.
  16: list<Move> moves
  // What happens to the stream when its last reader leaves, on the hop that knows its readers:
  // "cancel", "linger:30s", "detach" or "drain".
  17: string leave
  // The stream's events by time: every header, reset, trailer and move, and the first and the last
  // message in each direction. Why returns them, List does not.
  20: list<Event> events
  // All messages from the callee, including those without an event; on the last hop, the messages
  // that the engine generated.
  21: i64 messages_received
  // All messages to the caller, including those without an event.
  22: i64 messages_sent
  // The W3C trace id, 32 hex digits, the same on all hops; empty if the stream is not traced.
  23: string trace_id
  // How the stream reached its client; set on the hop to which the client reported it.
  24: optional Delivery delivery
  // Tokens of the prompt that the engine found in its KV cache; not set until the answer is
  // complete.
  25: optional i64 cached_tokens
  // Handovers of the prompt to the worker that answers, oldest first, where prefill and decode are
  // apart.
  26: list<Handover> handovers
  // The stream's owner; empty for a stream without an owner. Not set by a hop without owners.
  27: optional string owner
  // How much of the answer the client had received when it left; set on the hop to which the client
  // was connected, if it left.
  28: Extent extent
  // From began until the hop sent the first message with tokens; not set before that, nor by a hop
  // that times no messages.
  29: optional duration.Duration first_token
  // The mean time per token that the hop sent after that message; set like first_token.
  30: optional duration.Duration per_token
  // The longest time between two messages with tokens that the hop sent; set like first_token.
  31: optional duration.Duration longest_gap
  // The pace of the tokens from the callee, over the whole stream; not set before the first token, or
  // if the hop does not measure it.
  32: optional TokenPace received_pace
  // The pace of the tokens to the caller, likewise.
  33: optional TokenPace sent_pace
  // The workers that have answered the stream, first to last, as far as this hop knows. A move below
  // the callee is known once the ending names the worker.
  34: list<string> workers
  // The fields of the request that were left out because nothing here honours them, as distinct
  // paths such as "messages[].cache_control"; set on the hop that read the request.
  35: list<string> ignored
  // Texts of the answer that look like the beginning of a tool call, and that were not read as one;
  // set on the hop that reads tool calls.
  36: list<string> unread
}

// TokenPace is how evenly tokens came in one direction. Times that the stream waited for its caller do
// not count.
struct TokenPace {
  // The time from the start of the stream on this hop to the first token.
  1: optional duration.Duration first
  // The median of the gaps between two messages with tokens, estimated from a histogram.
  2: optional duration.Duration p50
  // The 95th percentile of the gaps, likewise.
  3: optional duration.Duration p95
  // The longest gap.
  4: optional duration.Duration longest
}

// Handover records how the KV cache of a prompt went from the worker that read the prompt to the
// worker that answers. If a handover fails, the worker that answers reads the prompt itself. If the
// stream is stopped in between, the handover is abandoned, and no worker answers.
struct Handover {
  // The worker that read the prompt; empty if there was none.
  1: string from
  // The worker that answers; empty if the stream was stopped before a worker was to answer.
  2: string to
  // REASON_COMPLETED, why the handover failed, or why the stream was stopped.
  3: Reason reason
  // When the handover was complete or had failed.
  4: optional timestamp.Timestamp at
  // How long the handover took.
  5: optional duration.Duration took
}

// Delivery compares how a stream was sent with how it arrived, as the client reported.
struct Delivery {
  // The conclusion from the other fields.
  1: Verdict verdict
  // The proxy between, as far as headers name it; "a proxy" for one without a name, empty for none.
  2: string proxy
  // Tokens that came from the hop below.
  3: i64 tokens
  // The pace at which the hop sent.
  4: optional Pace sent
  // The pace at which the client received.
  5: optional Pace seen
}

// Pace describes the times between those events of a stream that carry text.
struct Pace {
  // The number of events.
  1: i64 events
  // The number of bursts: events that came at once count as one.
  2: i64 bursts
  // The number of gaps between two events, by length: less than 1 ms, 5, 10, 25, 50, 100, 250, 500
  // ms, 1 s, and longer.
  3: list<i64> gaps
}

// Event is one event of a stream on a hop.
struct Event {
  // The time since the record's began.
  1: optional duration.Duration at
  // The kind of the event.
  2: EventKind kind
  // The side of the neighbour.
  3: Side side
  // Of a message: its number in its direction, from 0 on.
  4: i64 index
  // Of a message: its size in bytes; 0 if it is not known.
  5: i64 bytes
  // Of a message: its tokens.
  6: i64 tokens
  // Of a header or trailer, its status: a gRPC code, an HTTP status, or [DONE]. Of a reset, its
  // form: STOP with a reason, CANCEL without one, LOST for a broken connection.
  7: string code
  // The reason of a reset, trailer or move. Of a handover: REASON_COMPLETED, or why
  // it failed or was abandoned.
  8: Reason reason
  // Of a header, the hops that the call has crossed; else the hops that the reason has crossed.
  // Origin first.
  9: list<string> path
}

// Move records that a stream went from one callee to another.
struct Move {
  // The hop that had the stream.
  1: string from
  // The hop that continued the stream.
  2: string to
  // Why the stream left from. REASON_DEADLINE: from was silent for too long.
  3: Reason reason
  // When the stream moved.
  4: optional timestamp.Timestamp at
  // Tokens that had been delivered by then.
  5: i64 tokens
}

// ListRequest asks for a page of the live streams.
struct ListRequest {
  // The maximum number of streams on the page, up to 10,000; 0 is 1,000.
  1: i64 page_size
  // The next_page_token of the page before; empty for the first page.
  2: string page_token
}

// ListResponse is a page of the live streams.
struct ListResponse {
  // Oldest first. A page may hold fewer streams than page_size, so that it stays below the 4 MiB
  // that gRPC clients accept.
  1: list<Record> streams
  // The page_token of the next request; empty on the last page.
  2: string next_page_token
}

// WhyRequest names a stream.
struct WhyRequest {
  // The stream's id.
  1: string stream_id
}

// WhyResponse is the story of a stream.
struct WhyResponse {
  // One record for each hop that knows the stream, starting with the hop that was asked.
  1: list<Record> hops
}

// Stop asks the receiver to end the stream. It goes down the path; each hop appends itself.
struct Stop {
  // Why; REASON_UNSPECIFIED is read as REASON_USER_STOP.
  1: Reason reason
  // The hops that this stop has crossed, origin first.
  2: list<string> path
  // A text for people.
  3: string message
  // How long the receiver and the hops below it may take to end the stream. Each hop passes on less
  // than it has. Not set: each hop's own grace.
  4: optional duration.Duration grace
}

// End is the last message of a stream that completed. A failed stream ends with a status instead,
// which has the same data in google.rpc.ErrorInfo and in the trailers whence-end-reason and
// whence-end-path. A service may define its own End with further fields, if fields 1 to 3 are the
// same.
struct End {
  // REASON_COMPLETED.
  1: Reason reason
  // The hops that this ending has crossed, origin first.
  2: list<string> path
  // A text for people.
  3: string message
}

// StopStreamRequest stops a stream from outside of its call: for operators, and for hops that do
// not hold the stream.
struct StopStreamRequest {
  // The stream's id.
  1: string stream_id
  // The reason and its path; REASON_UNSPECIFIED is read as REASON_OPERATOR_STOP.
  2: optional Stop stop
  // If there are any, the stream must belong to one of these owners; a stream of another owner is
  // NOT_FOUND, like one that does not exist. An empty string stands for streams without an owner.
  // Without owners, any stream is stopped.
  3: list<string> owners
}

// StopStreamResponse confirms that the stream was asked to stop.
struct StopStreamResponse {
  // The age of the stream.
  1: optional duration.Duration age
}

// StopRequest names the stream, and the reason why it stops.
struct StopRequest {
  // The stream and the reason.
  1: optional StopStreamRequest stream
}

// StopResponse confirms that the stream was asked to stop.
struct StopResponse {
  // The age of the stopped stream.
  1: optional StopStreamResponse stream
}

// Streams reports the streams of a hop: the live streams, and the last that ended.
service Streams {
  // List returns the live streams of this hop, oldest first, a page at a time.
  ListResponse List(1: ListRequest request)
  // Why returns the records of one stream, live or ended, on this hop and on the hops below it.
  WhyResponse Why(1: WhyRequest request)
}

// StreamControl ends streams from outside of their calls. It stands beside services whose messages
// have no room for a Stop, such as server-streaming ones.
service StreamControl {
  // Stop asks a live stream of this hop to end.
  StopResponse Stop(1: StopRequest request)
}
