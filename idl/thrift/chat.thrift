// Made of whence/chat/v1/chat.proto by scripts/gen. Do not edit.
namespace go chatv1

include "timestamp.thrift"
include "llm.thrift"
include "stream.thrift"

// ToolMode decides whether the model calls tools.
enum ToolMode {
  // As TOOL_MODE_AUTO.
  TOOL_MODE_UNSPECIFIED = 0
  // The model decides.
  TOOL_MODE_AUTO = 1
  // The model does not see the tools.
  TOOL_MODE_NONE = 2
  // The answer is a call, with arguments that are valid under the tool's schema.
  TOOL_MODE_REQUIRED = 3
}

// WorkerState is the health of a worker.
enum WorkerState {
  // Not known.
  WORKER_STATE_UNSPECIFIED = 0
  // The worker gets streams.
  WORKER_STATE_HEALTHY = 1
  // The worker has failed a stream: other workers are preferred until it has answered again.
  WORKER_STATE_SUSPECT = 2
  // The worker gets no streams.
  WORKER_STATE_DOWN = 3
}

// Message is one turn of a conversation.
struct Message {
  // "system", "developer", "user", "assistant" or "tool".
  1: string role
  // The text; empty is allowed.
  2: string content
  // The speaker's name, if several share a role.
  3: string name
  // The tool calls of an assistant's turn.
  4: list<ToolCall> tool_calls
  // Of a tool's turn: the id of the call that it answers.
  5: string tool_call_id
  // The reasoning of an assistant's turn. Most chat templates show it in some turns only, or not at
  // all.
  6: string reasoning
  // The images of a turn, in their order within content.
  7: list<PlacedImage> images
}

// PlacedImage is an image within a content.
struct PlacedImage {
  // The image.
  1: optional llm.Image image
  // The number of bytes of the content before the image. It must not be inside a character.
  2: i64 offset
}

// ToolCall is a call that a model has made.
struct ToolCall {
  // Names the call within its conversation; chat-service makes one if it is empty.
  1: string id
  // The tool's name.
  2: string name
  // A JSON object. In a conversation also the text that a model wrote instead.
  3: string arguments
}

// Tool is a function that the model may call. The caller runs it, and sends the result in a turn of
// the role "tool".
struct Tool {
  // 1 to 128 of A-Z a-z 0-9 _ -, and unique.
  1: string name
  // A description of the tool, for the model.
  2: string description
  // The JSON Schema of the arguments, as JSON; empty for none.
  3: string parameters
}

// ToolChoice decides whether the model calls tools, and which.
struct ToolChoice {
  // Whether the model calls tools.
  1: ToolMode mode
  // With TOOL_MODE_REQUIRED: the tool to call; empty for any.
  2: string name
}

// Prompt is the input of a completion or an embedding. No chat template is applied.
struct Prompt {
  // A text. The tokenizer's post-processor adds its tokens, such as the token that begins every
  // text.
  1: optional string text
  // Token ids. Nothing is added to them.
  2: optional TokenIDs ids
  // The images of a completion's prompt, in the order of their placeholders, which the prompt has.
  3: list<llm.Image> images
}

// TokenIDs are tokens of a model.
struct TokenIDs {
  // Each below vocab_size.
  1: list<i64> ids
}

// ChatRequest asks a model to continue a conversation, or prompts.
struct ChatRequest {
  // 1 to 128 of A-Z a-z 0-9 . _ : -, unique among live streams; chat-service makes one if it is
  // empty.
  1: string stream_id
  // A model of Models; empty for the only one.
  2: string model
  // The conversation, oldest turn first; at least one, unless there are prompts.
  3: list<Message> messages
  // How to choose tokens, and the maximum number.
  4: optional llm.Sampling sampling
  // Strings that end the answer; at most 16, none empty. They are not part of the answer, unless
  // include_stop is set.
  5: list<string> stop
  // The number of answers to the conversation, or to each prompt; 0 is 1, the maximum is 16. With a
  // seed, each answer takes the next seed, starting with the given one. Each answer is a choice;
  // choices are numbered from 0, those of the first prompt first.
  6: i64 n
  // Prompts to continue, instead of messages. Prompts times n is at most 64.
  7: list<Prompt> prompts
  // Whether the answer includes the stop string that matched.
  8: bool include_stop
  // Whether the text of the answer includes special tokens.
  9: bool keep_special
  // Whether each answer begins with the text of its prompt. With sampling.logprobs, that text has
  // the logprobs of the prompt's tokens.
  10: bool echo
  // The tools that the model may call; at most 250.
  13: list<Tool> tools
  // Whether the model calls tools, and which.
  14: optional ToolChoice tool_choice
  // False: the answer ends with its first call. [true]
  15: optional bool parallel_tool_calls
  // A JSON object of further variables for the chat template, such as enable_thinking; empty for
  // none.
  17: string template_variables
  // False: reasoning stays in the text, as the model wrote it. [true]
  18: optional bool separate_reasoning
  // The stream's share of a busy path.
  21: optional llm.Claim claim
  // The key of the caller's conversation, if it gave one; at most 256 bytes. Requests of one
  // session have prefixes in common, so the router may send them to one worker.
  23: string session
  // Whether deltas have the ids of their tokens, so that another chat-service can continue the
  // answer. With sampling.logprobs, the ids and the token count of a delta are those of its
  // logprobs.
  24: bool tell_ids
  // The ids of the answer so far, from the deltas of another chat-service. The answer is sent again
  // from its beginning, in deltas that count none of these tokens, and then continues as if it had
  // never moved. Only with tell_ids, and for requests with one choice.
  25: optional TokenIDs answered
  // Whether the caller shows no part of the answer before its End. If the worker of a choice is
  // lost and no other worker can resume it, chat-service then restarts the choice, and a Restarted
  // takes back its deltas. Converse ignores this; Complete and Compose always set it.
  26: bool gathered
  // answered for requests with several choices: empty, or one for each choice, in their order.
  27: list<AnsweredChoice> answered_choices
  // Whether Started has the ids of the prompts.
  28: bool tell_prompts
  // Whether the prompt of a conversation ends with its last message: the chat template does not
  // open the assistant's turn after it.
  29: bool no_generation_prompt
  // Whether the answer continues the last message of the conversation, which has no tool calls: the
  // prompt ends within that message.
  30: bool continue_message
}

// AnsweredChoice is the part of a choice that another chat-service has delivered.
struct AnsweredChoice {
  // The ids of the choice so far, from its deltas.
  1: list<i64> ids
  // The end of the choice, if it has ended: then it is not answered again, and only its ChoiceEnd
  // is sent again, which counts no tokens.
  2: optional ChoiceEnd end
}

// GenerateRequest is the request, or control.
struct GenerateRequest {
  // The first message, and only the first.
  1: optional ChatRequest chat
  // Asks the stream to end.
  2: optional stream.Stop stop
}

// Delta is a piece of the answer: text, reasoning, or parts of tool calls; at least one of them.
struct Delta {
  // UTF-8, in whole characters; may be the text of several tokens. Empty only if there are
  // logprobs.
  1: string text
  // Tokens generated for this piece.
  2: i64 tokens
  // The choice that this piece belongs to.
  3: i64 choice
  // If sampling.logprobs is set, the tokens whose text begins in this piece, and tokens without
  // text before them.
  4: list<TokenLogprob> logprobs
  // A piece of the reasoning, in the same form as text.
  10: string reasoning
  // Parts of tool calls. The first part of a call has its id and name, later parts have arguments.
  11: list<ToolCallDelta> tool_calls
  // If ChatRequest.tell_ids is set, the ids of the tokens.
  12: list<i64> ids
  // If ChatRequest.tell_ids is set: this piece was held back, and is sent because the stream fails.
  // In a continued stream it may become part of a stop string or a tool call, so another
  // chat-service must not count it as answered.
  13: bool remainder
  // The future usage.cached_tokens of the choice, in its first piece if the engine knows it by then.
  14: optional i64 cached_tokens
  // No piece of the choice follows, only its end, which comes at once. A reader that writes whole
  // events may write both as one event.
  15: bool last
}

// TokenLogprob is a token and its log-probability.
struct TokenLogprob {
  // The token's id.
  1: i64 id
  // The token's text; U+FFFD stands for bytes that are not a whole character by themselves.
  2: string token
  // The bytes that the token adds to the text, which may be part of a character; empty for a
  // special token that the text leaves out.
  3: binary bytes
  // The natural logarithm of the token's probability.
  4: double logprob
  // The likeliest tokens in its place, likeliest first, each without top.
  5: list<TokenLogprob> top
  // Whether the token has no log-probability: it is the first of an echoed prompt.
  6: bool unscored
}

// ChoiceEnd means that one of several choices is complete. A stream with one choice has only its
// End.
struct ChoiceEnd {
  // The number of the choice.
  1: i64 choice
  // Why the choice is complete.
  2: llm.Finish finish
  // The stop string that matched; empty if none did.
  3: string matched_stop
  // The token that ended the choice; not set if none did.
  4: optional i64 matched_token
  // The tokens used, including the prompt.
  5: optional llm.Usage usage
  // Tokens of the choice that no delta has counted, as in whence.llm.v1.End.
  6: i64 tokens
}

// ToolCallDelta is a piece of a tool call.
struct ToolCallDelta {
  // The number of the call within the answer, from 0 on.
  1: i64 index
  // Set in the first piece of a call.
  2: string id
  // Set in the first piece of a call.
  3: string name
  // A piece of the JSON arguments; all pieces of the call joined are one JSON object.
  4: string arguments
}

// GenerateResponse is one event of a stream.
struct GenerateResponse {
  // The first message.
  1: optional llm.Started started
  // Part of the answer.
  2: optional Delta delta
  // The last message.
  3: optional llm.End end
  // The last message of a choice, where there are several.
  4: optional ChoiceEnd choice_end
  // Takes back the deltas of a choice. Only if ChatRequest.gathered is set.
  5: optional Restarted restarted
}

// Restarted means that a choice was restarted, usually on another worker. All deltas of the choice
// so far are void, and so is its ChoiceEnd; the choice is sent again from its beginning. Started is
// not sent again.
struct Restarted {
  // The number of the choice.
  1: i64 choice
}

// CompleteRequest asks for a whole answer.
struct CompleteRequest {
  // As in Generate.
  1: optional ChatRequest chat
}

// CompleteResponse is a whole answer.
struct CompleteResponse {
  // How the stream began.
  1: optional llm.Started started
  // The answer; that of the first choice, if there are several.
  2: string text
  // How it ended.
  3: optional llm.End end
  // All choices in their order, if there are several.
  4: list<Choice> choices
  // If sampling.logprobs is set, the tokens of text.
  5: list<TokenLogprob> logprobs
  // The reasoning before the answer.
  10: string reasoning
  // The tool calls of the answer.
  11: list<ToolCall> tool_calls
}

// Choice is one of several answers.
struct Choice {
  // The answer.
  1: string text
  // How it ended.
  2: optional ChoiceEnd end
  // If sampling.logprobs is set, the tokens of text.
  3: list<TokenLogprob> logprobs
  // The reasoning before the answer.
  10: string reasoning
  // The tool calls of the answer.
  11: list<ToolCall> tool_calls
}

// TokenizeRequest asks for token ids.
struct TokenizeRequest {
  // A model of Models; empty for the only one.
  1: string model
  // The text to tokenize, if there are no messages.
  2: string text
  // Whether the tokenizer's post-processor adds its tokens.
  3: bool add_special
  // A conversation to tokenize. The model's chat template renders it.
  4: list<Message> messages
  // Whether the chat template opens the assistant's turn after the conversation.
  5: bool add_generation_prompt
  // Whether to return the text of each id.
  6: bool strings
  // As in ChatRequest, for a conversation: the tools that the chat template writes into the prompt.
  7: list<Tool> tools
  // As in ChatRequest.
  8: optional ToolChoice tool_choice
  // As in ChatRequest.
  9: string template_variables
  // As in ChatRequest.
  10: bool continue_message
}

// TokenizeResponse is token ids.
struct TokenizeResponse {
  // The ids.
  1: list<i64> ids
  // The text of each id, if strings was set.
  2: list<string> strings
  // The maximum number of tokens of prompt and answer together.
  3: i64 context_length
  // As Started.known_fields.
  4: list<string> known_fields
}

// DetokenizeRequest asks for a text.
struct DetokenizeRequest {
  // A model of Models; empty for the only one.
  1: string model
  // Token ids, each below the size of the vocabulary.
  2: list<i64> ids
}

// DetokenizeResponse is a text.
struct DetokenizeResponse {
  // The text of the ids, including special tokens.
  1: string text
}

// ComposeRequest is the request, a further piece of it, or control.
struct ComposeRequest {
  // The first message, and only the first.
  1: optional ChatRequest chat
  // Asks the stream to end.
  2: optional stream.Stop stop
  // Appended to the content of the last message; whole characters.
  3: optional string piece
  // A further message, whose content pieces may continue.
  4: optional Message next
  // The request is complete.
  5: optional Go go
}

// Go means that a request is complete.
struct Go {
}

// ComposeResponse is a whole answer.
struct ComposeResponse {
  // As Complete's.
  1: optional CompleteResponse answer
}

// ConverseRequest is the request, a further turn, or control.
struct ConverseRequest {
  // The first message, and only the first. Sampling and stop strings are those of all turns.
  1: optional ChatRequest chat
  // Asks the stream to end.
  2: optional stream.Stop stop
  // The caller's next turn. It waits until the answer to the turn before is complete.
  3: optional Turn turn
}

// Turn continues a conversation.
struct Turn {
  // The messages after the answer; at least one.
  1: list<Message> messages
}

// ConverseResponse is one event of a conversation.
struct ConverseResponse {
  // A turn was admitted; its prompt is the whole conversation so far.
  1: optional llm.Started started
  // Part of the answer to the turn.
  2: optional Delta delta
  // The answer is complete.
  3: optional TurnEnd turn_end
  // The last message. Its usage is that of all turns, finish and matched stop string are the last
  // turn's.
  4: optional llm.End end
}

// TurnEnd is the last message of a turn.
struct TurnEnd {
  // The number of the turn, from 1 on.
  1: i64 turn
  // Why the answer is complete.
  2: llm.Finish finish
  // The stop string that matched; empty if none did.
  3: string matched_stop
  // The tokens that this turn used.
  4: optional llm.Usage usage
  // Tokens of the answer that no delta has counted, as in whence.llm.v1.End.
  5: i64 tokens
}

// EmbeddingsRequest asks for vectors.
struct EmbeddingsRequest {
  // 1 to 128 of A-Z a-z 0-9 . _ : -, unique among live streams; chat-service makes one if it is
  // empty.
  1: string stream_id
  // A model of Models; empty for the only one.
  2: string model
  // At least one and at most 2048, none of them empty.
  3: list<Prompt> inputs
  // The length of each vector, if the model offers several.
  4: optional i64 dimensions
  // The stream's share of a busy path.
  21: optional llm.Claim claim
}

// EmbeddingsResponse is one vector for each input.
struct EmbeddingsResponse {
  // In the order of the inputs.
  1: list<llm.Embedding> embeddings
  // The model that made the vectors.
  2: string model
  // How the stream ended, and the tokens used.
  3: optional llm.End end
}

// ScoreRequest asks how relevant documents are to queries.
struct ScoreRequest {
  // 1 to 128 of A-Z a-z 0-9 . _ : -, unique among live streams; chat-service makes one if it is
  // empty.
  1: string stream_id
  // A model of Models; empty for the only one.
  2: string model
  // One for all documents, or one for each; none of them empty.
  3: list<string> queries
  // At least one and at most 2048, none of them empty.
  4: list<string> documents
  // The stream's share of a busy path.
  21: optional llm.Claim claim
}

// ScoreResponse is one score for each document.
struct ScoreResponse {
  // In the order of the documents; the higher, the more relevant. The scale is the model's.
  1: list<double> scores
  // The model that made the scores.
  2: string model
  // How the stream ended, and the tokens used.
  3: optional llm.End end
}

// ModelsRequest asks for all models.
struct ModelsRequest {
}

// Model is a model that chat-service serves.
struct Model {
  // The model's id, for ChatRequest.model.
  1: string id
  // When chat-service began to serve the model, in seconds since 1970.
  2: i64 created
  // The model's maker.
  3: string owned_by
  // The model's maximum number of tokens of prompt and answer together. A worker with a shorter
  // context takes only requests that fit into it.
  4: i64 context_length
  // Further names for ChatRequest.model.
  5: list<string> aliases
  // The number of workers that take streams now.
  6: i64 healthy_workers
  // The number of known workers.
  7: i64 known_workers
  // The names of the whence.llm.v1.Sampling fields that at least one healthy worker honours.
  8: list<string> sampling
  // The checksum of its tokenizer, as in whence.llm.v1.WorkerInfo.
  9: string model_checksum
  // Whether Embeddings works: a healthy worker makes vectors.
  10: bool embeds
  // Why no worker takes streams, for people; empty while a worker does. Names no addresses, because
  // clients may read it.
  11: string problem
  // For a LoRA adapter: the id of its base model. Empty for other models.
  12: string parent
  // Whether requests may have images: a healthy worker's engine takes them.
  13: bool images
  // What the model's chat template does with parts of conversations.
  14: optional ChatTemplate template
  // Whether Score works: a healthy worker makes scores.
  15: bool scores
  // Whether all healthy workers only pool: they embed or score, and chats and completions are refused.
  16: bool pools_only
}

// ChatTemplate says which parts of a conversation a chat template writes as they are. chat-service
// puts all other parts where the template writes them.
struct ChatTemplate {
  // Where system texts are turns: "first", "leading" (after other leading ones) and "later". Texts
  // elsewhere join the leading turn of the system; if the list is empty, the first turn of the user.
  1: list<string> system
  // The same for the role "developer". If the list is empty, developers are the system.
  2: list<string> developer
  // Whether calls and their results have a form of the template. Otherwise they are text.
  3: bool calls
  // The roles whose turns may have images; users' images are not affected.
  4: list<string> images
  // The values of reasoning_effort that the template takes, the weakest first. Others become the
  // nearest one.
  5: list<string> efforts
  // Whether the template takes only the values in efforts, which may be none.
  6: bool limits_efforts
  // The variables that turn thinking off, such as "enable_thinking".
  7: list<string> switches
  // Whether the template describes the tools of a request. Otherwise the turn of the system does.
  8: bool tools
  // Whether arguments of calls are a text for the template, and not an object.
  9: bool text_arguments
  // Whether the content beside calls is none for the template, and not an empty text.
  10: bool no_content
  // The form of ids of calls: "nine" for nine letters and digits, "named" for
  // "functions.NAME:NUMBER", and empty for any.
  11: string ids
  // The field of an assistant's turn in which the template takes reasoning; "content" for a part of
  // the content. It is empty if the template writes no reasoning.
  12: string reasoning
  // Whether the template takes only one call in a turn. Several become turns of one call and its
  // result.
  13: bool one_call
  // What becomes of a text beside calls.
  14: optional TextBesideCalls text
  // A call of get_weather with {"city": "Paris", "days": 2, "deep": true} as the template writes it;
  // empty if it writes no calls.
  15: string written_call
  // A turn with the reasoning "Xqzeta" as the template writes it; empty if it writes no reasoning.
  16: string written_reasoning
  // The format in which calls of the model are read and guided; empty if requests with tools are
  // refused.
  17: string tool_format
  // Why requests with tools are refused.
  18: string tool_problem
  // The texts before and after the model's reasoning.
  19: list<string> reasoning_tags
}

// TextBesideCalls says what becomes of a text in an assistant's turn with calls. A value is "turn"
// for a turn before the calls, "user" for one with an empty turn of the user after it, "reasoning"
// if the text joins the reasoning, and empty if it stays.
struct TextBesideCalls {
  // After the last turn of the user.
  1: string latest
  // Before an answer or a turn of the user.
  2: string earlier
  // As latest, in a turn with reasoning.
  3: string reasoned
  // As earlier, in a turn with reasoning.
  4: string earlier_reasoned
}

// ModelsResponse lists all models.
struct ModelsResponse {
  // By id.
  1: list<Model> models
}

// StopRequest names a stream.
struct StopRequest {
  // The stream, and the reason to stop it.
  1: optional stream.StopStreamRequest stream
}

// StopResponse confirms that the stream was asked to stop.
struct StopResponse {
  // The age of the stopped stream.
  1: optional stream.StopStreamResponse stream
}

// WorkersRequest asks for all workers.
struct WorkersRequest {
}

// Worker is a worker as chat-service sees it.
struct Worker {
  // Its address, as configured.
  1: string target
  // Whether the worker gets streams.
  2: WorkerState state
  // Why the worker gets no streams; for people.
  3: string message
  // The number of streams that this chat-service has on the worker now.
  4: i64 streams
  // What the worker last reported of itself; not set until it has been healthy once.
  5: optional llm.WorkerInfo info
  // When the worker reported info.
  6: optional timestamp.Timestamp said
  // The id of the model that the worker is configured for.
  7: string model
  // The worker is no longer configured: it gets no new streams, finishes its streams, and is then
  // removed.
  8: bool leaving
  // A number that no other worker of the model has, except workers that are leaving.
  9: i64 slot
}

// WorkersResponse lists all workers.
struct WorkersResponse {
  // By model, in the order of the configuration, followed by the workers that are leaving.
  1: list<Worker> workers
}

// Chat answers conversations.
service Chat {
  // Generate answers one conversation with a stream: Started, then any number of Delta, then End;
  // or an error status. The first message is the request, later messages are control. A client may
  // half-close after the request: half-close is not a cancel.
  GenerateResponse Generate(1: GenerateRequest request) (streaming.mode="bidirectional")
  // Complete is Generate for callers that want the whole answer at once.
  CompleteResponse Complete(1: CompleteRequest request)
  // Compose is Complete for callers that send a long request in pieces: the first message is the
  // request, later messages add to it, and Go or half-close completes it.
  ComposeResponse Compose(1: ComposeRequest request) (streaming.mode="client")
  // Converse answers one turn after another on one stream. The first message is the request. Each
  // answer ends with a TurnEnd, and the caller may send further turns before or after it.
  // Half-close means that there are no more turns: the stream ends with an End after the last
  // answer. A stop ends the whole stream.
  ConverseResponse Converse(1: ConverseRequest request) (streaming.mode="bidirectional")
  // Embeddings computes vectors of texts with a model that supports it. Embeddings is a stream of
  // one item, and Stop ends it like any other stream.
  EmbeddingsResponse Embeddings(1: EmbeddingsRequest request)
  // Score rates how relevant documents are to queries with a model that supports it: a rerank is the
  // documents in the order of their scores. Like Embeddings, it is a stream of one item.
  ScoreResponse Score(1: ScoreRequest request)
  // Models lists the models that can answer.
  ModelsResponse Models(1: ModelsRequest request)
  // Stop ends a stream from outside of its call.
  StopResponse Stop(1: StopRequest request)
  // Workers returns the state of the workers as they last reported it. The call does not contact
  // them.
  WorkersResponse Workers(1: WorkersRequest request)
  // Tokenize returns the token ids of a text or a conversation.
  TokenizeResponse Tokenize(1: TokenizeRequest request)
  // Detokenize returns the text of token ids.
  DetokenizeResponse Detokenize(1: DetokenizeRequest request)
}
