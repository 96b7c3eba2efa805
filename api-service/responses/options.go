package responses

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/whence-dev/whence/api-service/strict"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// setStreamOptions accepts padding against eavesdroppers, and the delivery of summaries. Neither
// has an effect on an answer: there are no summaries.
func setStreamOptions(r *body, param string, raw json.RawMessage) error {
	_, err := r.in.Members(param, raw, "include_obfuscation", "reasoning_summary_delivery")
	return err
}

const (
	includeLogprobs  = "message.output_text.logprobs"
	includeEncrypted = "reasoning.encrypted_content"
)

func setInclude(r *body, param string, raw json.RawMessage) error {
	items, err := strict.Array(param, raw)
	if err != nil {
		return err
	}
	for i, raw := range items {
		word, ok, err := r.hint(fmt.Sprintf("%s[%d]", param, i), raw, includeLogprobs, includeEncrypted)
		switch {
		case err != nil:
			return err
		case !ok: // parts of items that are not made here
		case word == includeEncrypted:
			r.encrypts = true
		default:
			r.withLogprobs(param, 0)
		}
	}
	return nil
}

// maxLogprobs is the maximum number of alternatives to a token.
const maxLogprobs = 20

func setTopLogprobs(r *body, param string, raw json.RawMessage) error {
	n, err := strict.Integer(param, raw, 0, maxLogprobs)
	if err != nil {
		return err
	}
	r.settings.TopLogprobs = uint32(n)
	if n > 0 { // some clients send the default
		r.withLogprobs(param, uint32(n))
	}
	return nil
}

// withLogprobs requests log-probabilities with at least n alternatives to each token.
func (r *body) withLogprobs(param string, n uint32) {
	r.logprobs = param
	r.request.Sampling.Logprobs = new(max(n, r.request.GetSampling().GetLogprobs()))
}

// setReasoning parses how the model reasons. The effort is a variable of the chat template. There
// are no summaries; clients ask for them by habit, and get the reasoning itself.
func setReasoning(r *body, param string, raw json.RawMessage) error {
	members, err := r.in.Members(param, raw, "effort", "summary", "generate_summary")
	if err != nil {
		return err
	}
	for _, name := range []string{"summary", "generate_summary"} {
		if raw, ok := members[name]; ok {
			if _, _, err := r.hint(param+"."+name, raw, "auto", "concise", "detailed", "none"); err != nil {
				return err
			}
		}
	}
	if raw, ok := members["effort"]; ok {
		effort, err := strict.String(param+".effort", raw)
		if err != nil || effort == "" {
			return err
		}
		r.settings.Reasoning.Effort = &effort
		r.request.TemplateVariables = string(marshal(map[string]string{"reasoning_effort": effort}))
	}
	return nil
}

const (
	maxMetadata      = 16
	maxMetadataKey   = 64  // bytes
	maxMetadataValue = 512 // bytes
)

// setMetadata parses the client's own metadata, which the response repeats.
func setMetadata(r *body, param string, raw json.RawMessage) error {
	members, err := strict.Object(param, raw)
	if err != nil {
		return err
	}
	if len(members) > maxMetadata {
		return streamerr.InvalidParam(param, "%s has %d members; at most %d are allowed", param, len(members), maxMetadata)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		at := param + "." + strict.Printable(name)
		value, err := strict.String(at, members[name])
		switch {
		case err != nil && r.in.Refuses():
			return err
		case err != nil: // clients put numbers and objects there, too
			r.in.Ignore(param)
			continue
		case len(name) > maxMetadataKey:
			return streamerr.InvalidParam(at, "the name of %s has %d bytes; at most %d are allowed", at, len(name), maxMetadataKey)
		case len(value) > maxMetadataValue:
			return streamerr.InvalidParam(at, "%s has %d bytes; at most %d are allowed", at, len(value), maxMetadataValue)
		}
		r.settings.Metadata[name] = value
	}
	return nil
}

// anyObject is the schema of the format json_object.
const anyObject = `{"type":"object"}`

// setText parses the format of the answer. Verbosity is for models that are trained on it, and has
// no effect here.
func setText(r *body, param string, raw json.RawMessage) error {
	members, err := r.in.Members(param, raw, "format", "verbosity")
	if err != nil {
		return err
	}
	if raw, ok := members["verbosity"]; ok {
		word, ok, err := r.hint(param+".verbosity", raw, "low", "medium", "high")
		if err != nil {
			return err
		}
		if ok {
			r.settings.Text.Verbosity = word
		}
	}
	if raw, ok := members["format"]; ok && !strict.Empty(raw) {
		return r.setFormat(param+".format", raw)
	}
	return nil
}

func (r *body) setFormat(param string, raw json.RawMessage) error {
	members, err := r.in.Members(param, raw, "type", "name", "description", "schema", "strict", "json_schema")
	if err != nil {
		return err
	}
	if inner, ok := members["json_schema"]; ok { // as in chats
		named, err := r.in.Members(param+".json_schema", inner, "name", "description", "schema", "strict")
		if err != nil {
			return err
		}
		delete(members, "json_schema")
		maps.Copy(members, named)
	}
	kind, err := strict.Member(param, "type", members)
	if err == nil {
		err = strict.OneOf(param+".type", kind, "text", "json_object", "json_schema")
	}
	if err != nil {
		return err
	}
	repeated, err := strict.Compact(param, raw)
	if err != nil {
		return err
	}
	r.settings.Text.Format = json.RawMessage(repeated)
	form := &llmv1.GuideForm{Schema: anyObject}
	switch kind {
	case "text":
		return r.in.Only(param, members, "type")
	case "json_object":
		err = r.in.Only(param, members, "type")
	default:
		form.Schema, err = schema(param, members)
	}
	if err != nil {
		return err
	}
	r.guide = param
	r.request.Sampling.Guide = &llmv1.Guide{Forms: []*llmv1.GuideForm{form}}
	return nil
}

// schema parses a schema. Strict and lax schemas are both enforced, and their names are not
// used.
func schema(param string, members map[string]json.RawMessage) (string, error) {
	if raw, ok := members["name"]; ok {
		if _, err := strict.String(param+".name", raw); err != nil {
			return "", err
		}
	}
	if raw, ok := members["description"]; ok {
		if _, err := strict.String(param+".description", raw); err != nil {
			return "", err
		}
	}
	if raw, ok := members["strict"]; ok {
		if _, err := strict.Boolean(param+".strict", raw); err != nil {
			return "", err
		}
	}
	raw, ok := members["schema"]
	if !ok {
		return "", streamerr.InvalidParam(param+".schema", "%s.schema is missing", param).WithCode(streamerr.CodeMissing)
	}
	return strict.Compact(param+".schema", raw)
}
