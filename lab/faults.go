package lab

// The carriers of several faults.
var (
	everywhere = []Carrier{Plain, Secure, HTTP2}
	secured    = []Carrier{Secure, HTTP2}
)

// The bounds of several faults.
var (
	left        = []Bound{{"client leaves until the engine has stopped, p99", Millis, 100}, {"most tokens that the engine made and the client did not get", Count, 2}}
	killedTwice = []Bound{{"second signal until the process has ended", Millis, 200}}
	ended       = []Bound{{"time until the process has ended", Millis, 2000}, {"longest pause of a stream", Millis, 500}}
	dependency  = []Bound{{"p99 time to first token of new requests, more than before beyond 35 ms", Percent, 5}}
	restarted   = []Bound{{"longest time until a process has ended", Millis, 2000}}
	moved       = []Bound{{"longest pause of a stream", Millis, 500}}
	frozen      = []Bound{{"longest pause of a stream", Millis, 5000}}
	partitioned = []Bound{{"longest pause of a stream", Millis, 10000}}
	refusing    = []Bound{{"attempts at the worker that refuses, for each request", Percent, 5}}
)

// Faults is the catalogue of faults. TestWhodunit of e2e asserts the ending of each fault that has an
// ending. bench/trust measures the bounds of each fault that has bounds. bench/endings.md and
// bench/trust.md have the tables.
var Faults = []Fault{
	{Name: "client closes its connection", Ending: Ending{Reason: "client_gone", Origin: "client > api-service/0", Deaf: true}, Over: everywhere, Bounds: left},
	{Name: "client resets its connection", Ending: Ending{Reason: "client_gone", Origin: "client > api-service/0", Deaf: true}, Over: everywhere, Bounds: left},
	{Name: "client closes before the first token", Ending: Ending{Reason: "client_gone", Origin: "client > api-service/0", Deaf: true}, Bounds: left},
	{Name: "client closes a request for a whole answer", Ending: Ending{Reason: "client_gone", Origin: "client > api-service/0", Deaf: true}, Over: everywhere},
	{Name: "client closes while llm-worker hangs", Ending: Ending{Reason: "client_gone", Origin: "client > api-service/0", Deaf: true, NoEngine: true}},
	{Name: "client closes while its prompt is handed over", Ending: Ending{Reason: "client_gone", Origin: "client > api-service/0", Deaf: true}},
	{Name: "client closes its WebSocket", Ending: Ending{Reason: "client_gone", Origin: "client > api-service/0", Deaf: true}, Over: []Carrier{Plain, Secure}},
	{Name: "client resets its WebSocket", Ending: Ending{Reason: "client_gone", Origin: "client > api-service/0", Deaf: true}},
	{Name: "client stops its conversation over a WebSocket", Ending: Ending{Reason: "user_stop", Origin: "client > api-service/0"}},
	{Name: "llm-worker is killed during a conversation over a WebSocket", Ending: Ending{Reason: "peer_lost", Origin: "llm-worker/0", Dead: "llm-worker/0", NoEngine: true}},
	{Name: "DELETE of the stream", Ending: Ending{Reason: "user_stop", Origin: "client > api-service/0"}, Over: everywhere},
	{Name: "DELETE at the other replica", Ending: Ending{Reason: "user_stop", Origin: "client > api-service/1 > chat-service"}},
	{Name: "DELETE with the operator's key", Ending: Ending{Reason: "operator_stop", Origin: "operator > api-service/0"}},
	{Name: "DELETE with the operator's key at the other replica", Ending: Ending{Reason: "operator_stop", Origin: "operator > api-service/1 > chat-service"}},
	{Name: "abort_request of the stream", Ending: Ending{Reason: "user_stop", Origin: "client > api-service/0"}},
	{Name: "abort_request at the other replica", Ending: Ending{Reason: "user_stop", Origin: "client > api-service/1 > chat-service"}},
	{Name: "client's connection goes dead", Ending: Ending{Reason: "client_gone", Origin: "client > api-service/0", Deaf: true}, Over: everywhere},
	{Name: "client's connection ends within a record", Ending: Ending{Reason: "client_gone", Origin: "client > api-service/0", Deaf: true}, Over: secured},
	{Name: "client sends a stray byte and closes its connection", Ending: Ending{Reason: "client_gone", Origin: "client > api-service/0", Deaf: true}, Over: secured},
	{Name: "client resets its stream", Ending: Ending{Reason: "client_gone", Origin: "client > api-service/0", Deaf: true}, Over: []Carrier{HTTP2}},
	{Name: "client says GOAWAY and closes its connection", Ending: Ending{Reason: "client_gone", Origin: "client > api-service/0", Deaf: true}, Over: []Carrier{HTTP2}},
	{Name: "client reads its connection, and not its stream", Ending: Ending{Reason: "slow_reader", Origin: "api-service/0", Deaf: true}, Over: []Carrier{HTTP2}},
	{Name: "client reads a byte at a time", Ending: Ending{Reason: "slow_reader", Origin: "api-service/0", Deaf: true}, Over: everywhere},
	{Name: "DELETE of a stream that its client does not read", Ending: Ending{Reason: "user_stop", Origin: "client > api-service/0", Deaf: true}},
	{Name: "deadline of a stream that its client does not read", Ending: Ending{Reason: "deadline", Origin: "api-service/0", Deaf: true}},
	{Name: "api-service drains while a client does not read", Ending: Ending{Reason: "draining", Origin: "api-service/0", Leaves: "api-service/0", Deaf: true}},
	{Name: "deadline of the request", Ending: Ending{Reason: "deadline", Origin: "api-service/0"}},
	{Name: "deadline of a gRPC caller", Ending: Ending{Reason: "deadline", Origin: "chat-service", Hops: "chat-service > llm-worker/0", Deaf: true}},
	{Name: "api-service panics", Ending: Ending{Reason: "internal", Origin: "api-service/0"}},
	{Name: "api-service is killed", Ending: Ending{Reason: "peer_lost", Origin: "api-service/0", Dead: "api-service/0", Deaf: true}, Bounds: []Bound{{"death until the engine has stopped the last stream", Millis, 250}}},
	{Name: "api-service drains", Ending: Ending{Reason: "draining", Origin: "api-service/0", Leaves: "api-service/0"}, Over: everywhere},
	{Name: "api-service gets a second signal", Ending: Ending{Reason: "draining", Origin: "api-service/0", Leaves: "api-service/0"}, Bounds: killedTwice},
	{Name: "api-service gets a second signal while a client does not read", Ending: Ending{Reason: "draining", Origin: "api-service/0", Leaves: "api-service/0", Deaf: true}},
	{Name: "chat-service panics", Ending: Ending{Reason: "internal", Origin: "chat-service"}},
	{Name: "chat-service is killed", Ending: Ending{Reason: "peer_lost", Origin: "chat-service", Dead: "chat-service"}},
	{Name: "chat-service drains", Ending: Ending{Reason: "draining", Origin: "chat-service", Leaves: "chat-service"}},
	{Name: "chat-service gets a second signal", Ending: Ending{Reason: "draining", Origin: "chat-service", Leaves: "chat-service"}, Bounds: killedTwice},
	{Name: "chat-service's handler cancels with a cause", Ending: Ending{Reason: "operator_stop", Origin: "chat-service"}},
	{Name: "client closes while a handler has wrapped its context", Ending: Ending{Reason: "client_gone", Origin: "client > api-service/0", Deaf: true}},
	{Name: "llm-worker is killed, another one continues", Ending: Ending{Reason: "completed", Origin: "engine > llm-worker/0", Deaf: true, NoEngine: true}, Bounds: []Bound{{"p99 time to first token of new requests, more than before beyond 35 ms", Percent, 100}, {"longest pause of a stream", Millis, 500}}},
	{Name: "llm-worker drains, another one continues", Ending: Ending{Reason: "completed", Origin: "engine > llm-worker/0", Deaf: true, NoEngine: true}, Bounds: ended},
	{Name: "llm-worker hangs, another one continues", Ending: Ending{Reason: "completed", Origin: "engine > llm-worker/0", Deaf: true, NoEngine: true}, Bounds: frozen},
	{Name: "upstream engine answers 500 at once, another worker answers", Ending: Ending{Reason: "completed", Origin: "engine > llm-worker/0", Deaf: true, NoEngine: true}, Bounds: refusing},
	{Name: "upstream engine is silent and its probes fail, another worker answers", Ending: Ending{Reason: "completed", Origin: "engine > llm-worker/0", Deaf: true, NoEngine: true}},
	{Name: "upstream engine has no first token, another worker answers", Ending: Ending{Reason: "completed", Origin: "engine > llm-worker/0", Deaf: true, NoEngine: true}},
	{Name: "upstream engine fails in mid-stream, another worker continues", Ending: Ending{Reason: "completed", Origin: "engine > llm-worker/0", Deaf: true, NoEngine: true}},
	{Name: "upstream engine closes once in mid-answer, another worker refuses the move", Ending: Ending{Reason: "completed", Origin: "engine > llm-worker/1 > chat-service", Hops: "api-service/0 > chat-service", Deaf: true, NoEngine: true}},
	{Name: "upstream engine of the only worker closes once in mid-answer", Ending: Ending{Reason: "completed", Origin: "engine > llm-worker/0 > chat-service", Hops: "api-service/0 > chat-service", Deaf: true, NoEngine: true}},
	{Name: "llm-worker is killed, another one refuses the move", Ending: Ending{Reason: "peer_lost", Origin: "llm-worker/1 > chat-service", Hops: "api-service/0 > chat-service", NoEngine: true}},
	{Name: "llm-worker is killed", Ending: Ending{Reason: "peer_lost", Origin: "llm-worker/0", Dead: "llm-worker/0", NoEngine: true}, Bounds: []Bound{{"death until the last client is told", Millis, 500}, {"a new request until its 503", Millis, 100}, {"the worker is back until a request is served", Millis, 1000}}},
	{Name: "llm-worker hangs", Ending: Ending{Reason: "deadline", Origin: "chat-service", NoEngine: true}},
	{Name: "llm-worker drains", Ending: Ending{Reason: "draining", Origin: "llm-worker/0", Leaves: "llm-worker/0"}},
	{Name: "llm-worker gets a second signal", Ending: Ending{Reason: "draining", Origin: "llm-worker/0", Leaves: "llm-worker/0"}, Bounds: killedTwice},
	{Name: "engine fails", Ending: Ending{Reason: "engine_failed", Origin: "engine > llm-worker/0"}},
	{Name: "engine panics", Ending: Ending{Reason: "internal", Origin: "llm-worker/0"}},
	{Name: "engine stalls and ignores stops", Ending: Ending{Reason: "deadline", Origin: "llm-worker/0"}},
	{Name: "upstream engine of the only worker closes in mid-answer again and again", Ending: Ending{Reason: "peer_lost", Origin: "engine > llm-worker/0 > chat-service", Hops: "api-service/0 > chat-service", NoEngine: true}},
	{Name: "upstream engine sends garbage", Ending: Ending{Reason: "engine_failed", Origin: "engine > llm-worker/0", NoEngine: true}},
	{Name: "upstream engine answers 400", Ending: Ending{Reason: "invalid", Origin: "engine > llm-worker/0", NoEngine: true}},
	{Name: "upstream engine answers 404", Ending: Ending{Reason: "not_found", Origin: "engine > llm-worker/0", NoEngine: true}},
	{Name: "upstream engine answers 429", Ending: Ending{Reason: "overloaded", Origin: "engine > llm-worker/0", NoEngine: true}},
	{Name: "upstream engine answers 500", Ending: Ending{Reason: "engine_failed", Origin: "engine > llm-worker/0", NoEngine: true}},
	{Name: "upstream engine answers 503", Ending: Ending{Reason: "unavailable", Origin: "engine > llm-worker/0", NoEngine: true}},
	{Name: "gRPC caller cancels", Ending: Ending{Reason: "peer_reset", Origin: "client > chat-service", Hops: "chat-service > llm-worker/0", Deaf: true}},
	{Name: "gRPC caller is silent between turns", Ending: Ending{Reason: "deadline", Origin: "chat-service", Hops: "chat-service", NoEngine: true}},
	{Name: "chat-service drains between turns", Ending: Ending{Reason: "draining", Origin: "chat-service", Hops: "chat-service", Leaves: "chat-service", NoEngine: true}},
	{Name: "grpcurl is killed", Ending: Ending{Reason: "peer_lost", Origin: "client > chat-service", Hops: "chat-service > llm-worker/0", Deaf: true}},
	{Name: "operator stops it at chat-service", Ending: Ending{Reason: "operator_stop", Origin: "operator > chat-service"}},
	{Name: "operator stops it at llm-worker", Ending: Ending{Reason: "operator_stop", Origin: "operator > llm-worker/0"}},
	{Name: "model does not exist", Ending: Ending{Reason: "not_found", Origin: "chat-service", Hops: "api-service/0 > chat-service", NoEngine: true}},
	{Name: "request is not JSON", Ending: Ending{Reason: "invalid", Origin: "api-service/0", Hops: "api-service/0", NoEngine: true}},
	{Name: "prompt is too long", Ending: Ending{Reason: "invalid", Origin: "chat-service", Hops: "api-service/0 > chat-service", NoEngine: true}},
	{Name: "api-service is out of file descriptors", Ending: Ending{Reason: "overloaded", Origin: "api-service/0", Hops: "api-service/0", NoEngine: true}},
	{Name: "llm-worker is full", Ending: Ending{Reason: "overloaded", Origin: "llm-worker/0", NoEngine: true}},
	{Name: "no llm-worker is left", Ending: Ending{Reason: "unavailable", Origin: "chat-service", Hops: "api-service/0 > chat-service", Dead: "llm-worker/0", NoEngine: true}},
	{Name: "no chat-service is left", Ending: Ending{Reason: "peer_lost", Origin: "chat-service", Hops: "api-service/0 > chat-service", Dead: "chat-service", NoEngine: true}},

	// Faults of many streams at a time, and of what their services depend on.
	{Name: "client's process is killed", Bounds: left},
	{Name: "client closes while its prompt is read", Bounds: left},
	{Name: "chat-service drains, another one continues", Bounds: ended},
	{Name: "upstream engine answers 429, another worker answers", Bounds: refusing},
	{Name: "chat-service is killed, another one continues", Bounds: moved},
	{Name: "chat-service hangs, another one continues", Bounds: frozen},
	{Name: "api-service is killed, another one runs its kept streams", Bounds: []Bound{{"longest pause of a stream", Millis, 2000}}},
	{Name: "packets to llm-worker are dropped, another one continues", Bounds: partitioned},
	{Name: "connections to llm-worker are rejected, another one continues", Bounds: moved},
	{Name: "packets to chat-service are dropped, another one continues", Bounds: partitioned},
	{Name: "connections to chat-service are rejected, another one continues", Bounds: moved},
	{Name: "client stops reading", Bounds: []Bound{{"memory of all services per stream that is not read", Mebibytes, 0.25}, {"p99 gap between tokens of the others, more than beside as many readers", Percent, 10}, {"stop of such a stream until all hops have ended, longest", Millis, 1000}, {"deadline of such a stream until all hops have ended, longest", Millis, 1000}, {"SIGTERM of its api-service until the process has ended", Millis, 2000}}},
	{Name: "workers restart, one after another", Bounds: restarted},
	{Name: "api-services restart, one after another", Bounds: restarted},
	{Name: "chat-services restart, one after another", Bounds: restarted},
	{Name: "one tenant sends five times its limit", Bounds: []Bound{{"p99 time to first token of the others, more than before beyond 35 ms", Percent, 25}, {"request over the limit until its 429, p99", Millis, 50}}},
	{Name: "ten times as many requests are opened and aborted in 10 s", Bounds: []Bound{{"resident memory of api-service and chat-service within 5 s, more than before", Mebibytes, 20}, {"requests that were aborted before they were streams", Percent, 50}}},
	{Name: "Redis is frozen", Bounds: dependency},
	{Name: "Redis is killed", Bounds: dependency},
	{Name: "etcd is frozen", Bounds: dependency},
	{Name: "etcd is killed", Bounds: dependency},
	{Name: "the OpenTelemetry collector does not answer", Bounds: dependency},
	{Name: "the OpenTelemetry collector dies", Bounds: dependency},
	{Name: "ten times as many idle and twice as many live streams are held", Bounds: []Bound{}},
}
