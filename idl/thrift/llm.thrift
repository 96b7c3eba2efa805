// Made of whence/llm/v1/llm.proto by scripts/gen. Do not edit.
namespace go llmv1

include "stream.thrift"

// Tier is the priority of a stream among the waiting streams.
enum Tier {
  // As TIER_DEFAULT.
  TIER_UNSPECIFIED = 0
  // Runs when no other stream wants the room.
  TIER_FLEX = 1
  // The tier of most streams.
  TIER_DEFAULT = 2
  // Runs before all others.
  TIER_PRIORITY = 3
}

// Finish is why an answer is complete.
enum Finish {
  // Not complete.
  FINISH_UNSPECIFIED = 0
  // The model ended its answer, or a stop condition of the request matched.
  FINISH_STOP = 1
  // max_tokens or the context length was reached.
  FINISH_LENGTH = 2
  // The model calls a tool.
  FINISH_TOOL_CALLS = 3
  // The server that generates withheld the rest of the answer because of its content policy.
  FINISH_CONTENT_FILTER = 4
}

// Role is the part of a request that a worker takes, where prefill and decode may be apart.
enum Role {
  // As ROLE_BOTH.
  ROLE_UNSPECIFIED = 0
  // Whole streams.
  ROLE_BOTH = 1
  // Prompts alone: the worker reads prompts for other workers, and hands their KV cache over.
  ROLE_PREFILL = 2
  // Whole streams, and prompts that other workers have read.
  ROLE_DECODE = 3
}

// GuideSupport says which guides an engine enforces.
enum GuideSupport {
  // Not known; the engine refuses the others itself. Never free_until.
  GUIDE_SUPPORT_UNSPECIFIED = 0
  // One form, which is a schema without text around it.
  GUIDE_SUPPORT_SCHEMA = 1
  // All guides.
  GUIDE_SUPPORT_FORMS = 2
}

// ImageInput is how an engine gets the images of a prompt.
enum ImageInput {
  // The engine takes no images.
  IMAGE_INPUT_UNSPECIFIED = 0
  // Beside token ids, which have a placeholder for each image.
  IMAGE_INPUT_PROMPT = 1
  // Within the conversation, which the engine renders itself. A prompt without a conversation
  // cannot have images, and an answer does not move to or from such a worker.
  IMAGE_INPUT_CONVERSATION = 2
}

// Form is the form of a token stream.
enum Form {
  // Not known.
  FORM_UNSPECIFIED = 0
  // Token ids, unchanged.
  FORM_TOKEN_IDS = 1
  // Text, decoded from ids or to be encoded as ids.
  FORM_TEXT = 2
  // Of prompts: TokenRequest.conversation, which the server renders. Answers are Tokens.written.
  // Nobody on the path has the model's tokenizer.
  FORM_CONVERSATION = 3
}

// Sampling configures the choice of the next token. A field that is not set has the engine's
// default. The embedded engine's default is given in brackets.
struct Sampling {
  // The softmax temperature; 0 is greedy. [1]
  1: optional double temperature
  // Keep the most likely tokens up to this probability mass, (0, 1]. [1]
  2: optional double top_p
  // Keep this many of the most likely tokens; 0 keeps all. [0]
  3: optional i64 top_k
  // Drop tokens less likely than this fraction of the most likely token, [0, 1]. [0]
  4: optional double min_p
  // Divide (multiply, when negative) the logits of tokens in the prompt or answer; over 0. [1]
  5: optional double repetition_penalty
  // Subtract this times the token's count in the answer, [-2, 2]. [0]
  6: optional double frequency_penalty
  // Subtract this from the logits of tokens in the answer, [-2, 2]. [0]
  7: optional double presence_penalty
  // Added to the logits of a token id, [-100, 100].
  8: map<i64, double> logit_bias
  // The same seed, request and weights give the same answer.
  9: optional i64 seed
  // The minimum number of tokens before a stop condition may end the answer. [0]
  10: optional i64 min_tokens
  // The maximum number of tokens to generate. [what the context leaves]
  11: optional i64 max_tokens
  // Do not stop at the model's end-of-sequence tokens.
  12: bool ignore_eos
  // Further token ids that end the answer.
  13: list<i64> stop_token_ids
  // Return the log-probability of each token of the answer, and this many of the likeliest tokens
  // in its place, [0, 20]. Logarithms are natural. Probabilities are the model's own, before
  // temperature, penalties and every other field of this message. Not set: return none.
  14: optional i64 logprobs
  // The form of the answer; any text if not set.
  15: optional Guide guide
  // Return the log-probabilities of the prompt's tokens, too, as logprobs says, which must be set. An
  // answer that continues another one has none.
  16: bool prompt_logprobs
}

// Guide lists the allowed forms of an answer: the answer has exactly one of them. The engine
// chooses only among tokens that can still complete one, and ends the answer when a form is
// complete.
struct Guide {
  // At least one.
  1: list<GuideForm> forms
  // Text that ends a first part of the answer, such as the tag that closes reasoning. Anything else
  // may stand in that part, and the form follows it. Empty for no such part.
  2: string free_until
  // Text that begins the first part, such as the tag that opens reasoning. If it is set, the answer
  // may leave out the first part and everything up to the form, and so may an engine.
  3: string free_from
  // Text between the first part and the form.
  4: string free_gap
}

// GuideForm is a JSON value, a text that matches an expression, or some parts, with fixed text
// around it.
struct GuideForm {
  // Text before the value.
  1: string before
  // The JSON Schema of the value, as JSON; empty for no value at all. A schema that the engine
  // cannot enforce is refused, and the error names the keyword.
  2: string schema
  // Text after the value.
  3: string after
  // A regular expression (ECMA-262) that the whole text after "before" matches, instead of a value;
  // empty for none. "after" must be empty beside it.
  4: string pattern
  // Parts instead of a value, in this order.
  5: list<GuidePart> parts
}

// GuidePart is a part of a form with fixed text around it: a JSON value, one of some texts, or
// anything.
struct GuidePart {
  // Text before the part.
  1: string before
  // The JSON Schema of the part, as JSON, if it is a JSON value.
  2: string schema
  // The texts of which the part is one. Without them, and without a schema, the part is anything
  // that does not contain the text after it, which is not empty.
  3: list<string> texts
  // Text after the part.
  4: string after
  // The answer may leave out the part with the text around it.
  5: bool optional
}

// Claim is the share of a busy path that a stream may take.
struct Claim {
  // The stream's tenant; empty for none. Tenants share the path by their weights.
  1: string tenant
  // The tenant's share among tenants; 0 is read as 1.
  2: i64 weight
  // The stream's priority.
  3: Tier tier
  // The owner: a digest of the tenant, or of the credentials that made the stream; empty for none.
  // Hops compare owners, and read nothing else from them.
  4: string owner
  // The id of the API key that made the stream, for usage records; empty for none.
  5: string key
  // For the stream of one of several choices: the id of the whole stream. Empty for a whole stream.
  6: string whole
}

// Started means that the request is valid and has been admitted. From here on the stream ends with
// an End or an error status, and no longer with a refusal.
struct Started {
  // The stream's id, the same on all hops.
  1: string stream_id
  // The model that answers.
  2: string model
  // Tokens of the prompt.
  3: i64 prompt_tokens
  // Streams that were waiting ahead of this one when it was admitted.
  4: i64 queued_behind
  // The worker that admitted the request; with several choices one of their workers.
  5: string worker
  // If ChatRequest.tell_prompts is set, the tokens of each prompt, in the order of the prompts; a
  // conversation is one prompt.
  6: list<PromptTokens> prompts
  // The chat-service that answers.
  7: string chat_service
  // Whether prompt_tokens is an estimate, because only the server that generates can count them.
  8: bool estimated
  // The fields of the request that chat-services of earlier releases ignore although they change the
  // prompt, such as "continue_message". A caller that has set another such field must stop the stream.
  9: list<string> known_fields
}

// PromptTokens are the tokens of a prompt.
struct PromptTokens {
  // Their ids.
  1: list<i64> ids
}

// End is the last message of a completed answer. Fields 1 to 3 are those of whence.stream.v1.End.
struct End {
  // REASON_COMPLETED.
  1: stream.Reason reason
  // The hops that this ending has crossed, origin first.
  2: list<string> path
  // A text for people.
  3: string message
  // Why the answer is complete. Not set if the stream had several choices: each ChoiceEnd has its
  // own.
  4: Finish finish
  // The stop string that matched; empty if none did.
  5: string matched_stop
  // The tokens used. With several choices the sum over all choices, but each prompt counts once.
  6: optional Usage usage
  // The token that ended the answer: end-of-sequence, or one of stop_token_ids; not set if none
  // did.
  7: optional i64 matched_token
  // Tokens of the answer that no earlier message has counted: the token that ended the answer, or
  // tokens without text.
  8: i64 tokens
}

// Usage counts tokens.
struct Usage {
  // Tokens of the prompt, the chat template's included.
  1: i64 prompt_tokens
  // Tokens that the engine generated, including the token that ended the answer.
  2: i64 completion_tokens
  // Tokens of the prompt that the engine found in its KV cache; not set if the engine does not say.
  3: optional i64 cached_tokens
  // The cached_tokens that the router expected when it chose the worker; not set if it expected
  // none.
  4: optional i64 expected_cached_tokens
  // Tokens of completion_tokens that were reasoning; not set if nothing counts them.
  10: optional i64 reasoning_tokens
  // Whether prompt_tokens and completion_tokens are estimates, because the server that generates has
  // not reported them: a token for four bytes of the prompt, and for each piece of the answer.
  11: bool estimated
}

// Image is a picture that a prompt shows to the model.
struct Image {
  // The encoded picture, as its file has it.
  1: binary data
  // What data is: image/png, image/jpeg, image/webp or image/gif.
  2: string media_type
}

// Embedding is a model's vector of a text.
struct Embedding {
  // A vector of length 1.
  1: list<double> values
}

// WorkerInfo describes a worker.
struct WorkerInfo {
  // This worker's name in paths, such as "llm-worker/0".
  1: string instance
  // The model served.
  2: string model
  // The model's maker.
  3: string owned_by
  // The engine that runs the model, such as "embedded" or "openai".
  4: string engine
  // The maximum number of tokens of prompt and answer together.
  5: i64 context_length
  // Token ids are below this.
  6: i64 vocab_size
  // The model's end-of-sequence tokens.
  7: list<i64> eos_token_ids
  // The current load.
  8: optional Load load
  // The features of requests and answers that the engine supports. Not set while they are unknown,
  // for example because the worker's server does not answer.
  9: optional Capabilities capabilities
  // Whether the worker continues an answer of another worker exactly: it honours seed and
  // TokenRequest.generated, and sends the ids that the model chose.
  10: bool continues
  // Whether the worker continues an answer of another worker inexactly: it honours
  // TokenRequest.generated for max_tokens, min_tokens and usage, and the continuation is an answer
  // that the model gives. But frequency and presence penalties count only tokens generated here,
  // and the same seed draws other tokens. True for servers that batch on a GPU, where nothing is
  // exact; without meaning if continues is set.
  17: bool resumes
  // Whether Worker/Embed works.
  18: bool embeds
  // The checksum of the tokenizer in the worker's model directory. Two workers have the same
  // checksum if and only if token ids mean the same text on both. "1:" and a SHA-256 in hex; the
  // number names the method. Empty if the worker does not know it.
  14: string model_checksum
  // Tokens in a block of the KV cache, whose prefixes later prompts find again; 0 for an engine
  // without such blocks.
  11: i64 kv_block_size
  // Whether Worker/KVEvents reports these blocks.
  12: bool kv_events
  // Which requests the worker takes.
  19: Role role
  // Why the worker takes no streams, for people, such as a fault of its server; empty while it
  // takes them. Names no addresses, because clients may read it.
  20: string problem
  // The server that generates, for people: its make and version, its limits, where the model's files
  // come from, and what a trial has found that it does not do; empty if the worker generates, or has not
  // asked. Names no addresses.
  21: string server
  // Whether Worker/Score works.
  22: bool scores
  // Whether the model only pools: it embeds or scores, and Worker/Generate refuses every request.
  23: bool pools_only
  // Further names of the model, under which requests may ask for it, too: those of its server, and the
  // last part of an id on a hub.
  24: list<string> aliases
  // How the chat template of the server that generates writes a conversation of one message, "Hi" of the
  // user, with the opening of an answer; empty if the server does not tell. A caller that renders
  // conversations compares its own template.
  25: string rendered
}

// Capabilities describes what happens to a request and its answer between the worker and the model.
struct Capabilities {
  // The form in which the model gets prompts, if it has a tokenizer of its own. FORM_TEXT: the
  // worker decodes the prompt's ids to text, and refuses a prompt whose text has other ids.
  1: Form prompt
  // The form in which the model gives answers. FORM_TEXT: the worker encodes the answer's text as
  // ids. They decode to exactly that text, but need not be the ids that the model chose.
  2: Form answer
  // The names of the Sampling fields that the engine honours. A request that sets another field is
  // refused with REASON_INVALID.
  3: list<string> sampling
  // The make of the server that generates, such as "vllm"; empty if the worker generates.
  4: string upstream
  // Whether requests may name an adapter of the model.
  5: bool adapters
  // How the engine gets the images of a prompt. A request with images goes only to workers whose
  // engine can get them.
  6: ImageInput images
  // The guides that the engine enforces, if it honours guide.
  7: GuideSupport guides
  // Whether log-probabilities are computed after the other fields of Sampling are applied. Sampling
  // wants the model's own, so such an engine honours logprobs only beside fields that change none.
  8: bool sampled_logprobs
  // The fields of Guide and GuideForm that workers of earlier releases ignore, and this one does not,
  // such as "pattern". A guide with another such field is not honoured, except that a worker without
  // "free_from" gets the guide without its first part.
  9: list<string> guide_fields
}

// Load is how busy a worker is now.
struct Load {
  // Streams in the batch.
  1: i64 running
  // Streams that wait to enter the batch.
  2: i64 queued
  // The maximum of running.
  3: i64 max_running
  // The maximum of queued.
  4: i64 max_queued
  // Positions of KV cache that streams hold, or are promised for their known tokens, in tokens. An
  // engine with a paged cache counts whole pages, and a page that streams share once. Pages that only
  // cache prefixes of ended streams do not count.
  5: i64 kv_used_tokens
  // All positions of KV cache, in tokens.
  6: i64 kv_total_tokens
  // Positions of KV cache that hold prefixes which a later prompt may find again, including those
  // of running streams, in tokens.
  7: i64 kv_cached_tokens
  // Prompt tokens that the batch has yet to read.
  8: i64 prefill_tokens
}
