package ollama

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// version is the version of Ollama that has the API of this package. Some clients refuse servers
// that are older than their features.
const version = "0.12.11"

// Version returns the body of GET /api/version. release is the version of this program.
func Version(release string) []byte {
	return marshal(struct {
		Version string `json:"version"`
		Whence  string `json:"whence"`
	}{version, release})
}

// details describe the files of a model. Whence does not know them, so that most fields are empty.
type details struct {
	Parent       string   `json:"parent_model"`
	Format       string   `json:"format"`
	Family       string   `json:"family"`
	Families     []string `json:"families"`
	Parameters   string   `json:"parameter_size"`
	Quantization string   `json:"quantization_level"`
}

func detailsOf(m *chatv1.Model) details {
	return details{Parent: m.GetParent(), Family: architecture, Families: []string{architecture}}
}

// architecture is the name under which the members of model_info stand.
const architecture = "whence"

type model struct {
	Name     string  `json:"name"`
	Model    string  `json:"model"`
	Modified string  `json:"modified_at,omitempty"`
	Size     int64   `json:"size"` // not known
	Digest   string  `json:"digest"`
	Details  details `json:"details"`

	// Of loaded models.
	Expires string `json:"expires_at,omitempty"`
	VRAM    *int64 `json:"size_vram,omitempty"`
	Context uint32 `json:"context_length,omitempty"`
}

func modelOf(m *chatv1.Model) model {
	name := tagged(m.GetId())
	digest := sha256.Sum256([]byte(m.GetId() + " " + m.GetModelChecksum()))
	return model{Name: name, Model: name, Digest: hex.EncodeToString(digest[:]), Details: detailsOf(m)}
}

// tagged returns a model's name with a tag, as all names of Ollama's lists have one.
func tagged(name string) string {
	if strings.Contains(name[strings.LastIndexByte(name, '/')+1:], ":") {
		return name
	}
	return name + latest
}

func createdAt(m *chatv1.Model) time.Time { return time.Unix(m.GetCreated(), 0).UTC() }

// Tags returns the body of GET /api/tags: all models.
func Tags(models []*chatv1.Model) []byte {
	all := make([]model, len(models))
	for i, m := range models {
		all[i] = modelOf(m)
		all[i].Modified = createdAt(m).Format(time.RFC3339)
	}
	return listOf(all)
}

// Running returns the body of GET /api/ps: the models that have a worker. They stay loaded.
func Running(models []*chatv1.Model) []byte {
	all := []model{}
	for _, m := range models {
		if m.GetHealthyWorkers() > 0 {
			one := modelOf(m)
			one.Expires, one.VRAM, one.Context = createdAt(m).AddDate(100, 0, 0).Format(time.RFC3339), new(int64), m.GetContextLength()
			all = append(all, one)
		}
	}
	return listOf(all)
}

func listOf(all []model) []byte {
	return marshal(struct {
		Models []model `json:"models"`
	}{all})
}

// template has the names of what the templates of models show, for which clients look. The
// templates themselves stay in the chat-service.
const template = "{{ .System }}{{ .Tools }}{{ .Messages }}"

// Show returns the body of POST /api/show.
func Show(m *chatv1.Model) []byte {
	var capabilities []string
	if !m.GetPoolsOnly() {
		capabilities = []string{"completion", "tools"}
	}
	if m.GetImages() {
		capabilities = append(capabilities, "vision")
	}
	if m.GetEmbeds() {
		capabilities = append(capabilities, "embedding")
	}
	return marshal(struct {
		Modelfile    string         `json:"modelfile"`
		Parameters   string         `json:"parameters"`
		Template     string         `json:"template"`
		Details      details        `json:"details"`
		Info         map[string]any `json:"model_info"`
		Capabilities []string       `json:"capabilities"`
		Modified     string         `json:"modified_at"`
	}{
		Template: template, Details: detailsOf(m), Capabilities: capabilities, Modified: createdAt(m).Format(time.RFC3339),
		Info: map[string]any{"general.architecture": architecture, "general.basename": m.GetId(), architecture + ".context_length": m.GetContextLength()},
	})
}

// A ModelName is a body that names a model: of POST /api/show and /api/pull.
type ModelName struct {
	Model string
	name  string // in the older field
}

var namedFields = strict.Table[*ModelName]{Honoured: map[string]strict.Setter[*ModelName]{
	"model": func(n *ModelName, param string, raw json.RawMessage) (err error) {
		n.Model, err = strict.String(param, raw)
		return err
	},
	"name": func(n *ModelName, param string, raw json.RawMessage) (err error) {
		n.name, err = strict.String(param, raw)
		return err
	},
}, Ignored: []string{"insecure", "keep_alive", "options", "password", "stream", "system", "template", "username", "verbose"}}

// ParseModelName parses a body that names a model.
func ParseModelName(text []byte, in *strict.Reading) (ModelName, error) {
	fields, err := strict.Fields(text)
	if err != nil {
		return ModelName{}, err
	}
	n := ModelName{}
	if err := namedFields.Parse(fields, &n, in); err != nil {
		return n, err
	}
	if n.Model == "" {
		n.Model = n.name
	}
	if n.Model == "" {
		return n, streamerr.InvalidParam("model", "model is required").WithCode(streamerr.CodeMissing)
	}
	n.Model = untagged(n.Model)
	return n, nil
}

// Pulled is the body of POST /api/pull for a model that is served. It is a stream of one line, too.
const Pulled = `{"status":"success"}`
