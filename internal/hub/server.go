package hub

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/whence-dev/whence/internal/gguf"
	"github.com/whence-dev/whence/internal/modelfile"
)

// A Server is a model server that describes its model over HTTP.
type Server struct {
	URL       string // of the server's API; its path, if any, is a prefix of the API's paths
	Key       string // sent as a bearer token; "" for none
	Transport http.RoundTripper
	Store     Store // where files are kept that are made from a description
}

const (
	templateFile  = "chat_template.jinja"
	chatTemplate  = "tokenizer.chat_template" // of the metadata
	maxProperties = modelfile.MaxOther
)

// ErrNoTemplate is the error for a model whose chat template is unknown, or in a language that Whence
// does not read.
var ErrNoTemplate = errors.New("the server tells no chat template in Jinja's language")

// ask sends a request with a body of JSON, or without one, and decodes the answer.
func (s *Server) ask(ctx context.Context, path string, body, into any, most int64) error {
	method, content := http.MethodGet, []byte(nil)
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return err
		}
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(s.URL, "/")+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if s.Key != "" {
		req.Header.Set("Authorization", "Bearer "+s.Key)
	}
	// Redirects are not followed: they could carry the key to another server.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := (&http.Client{Transport: s.Transport, CheckRedirect: stay}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answers with status %d: %.*s", path, resp.StatusCode, maxMessage, strings.TrimSpace(string(text)))
	case int64(len(text)) > most:
		return fmt.Errorf("%s answers with more than %d bytes", path, most)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s answers with something unknown: %w", path, err)
	}
	return nil
}

// Ollama makes the files of a model from what Ollama tells: the metadata of its GGUF file, which
// contain the whole tokenizer. It returns the path of a directory.
func (s *Server) Ollama(ctx context.Context, model string) (path string, err error) {
	var shown struct {
		Template string                     `json:"template"`
		Metadata map[string]json.RawMessage `json:"model_info"`
	}
	request := map[string]any{"model": model, "verbose": true}
	if err := s.ask(ctx, "/api/show", request, &shown, modelfile.MaxTokenizer); err != nil {
		return "", err
	}
	dir, err := gguf.FromMetadata(shown.Metadata)
	if err != nil {
		return "", fmt.Errorf("the description of %q by Ollama: %w", model, err)
	}
	files, err := readAll(dir)
	if err != nil {
		return "", fmt.Errorf("the description of %q by Ollama: %w", model, err)
	}
	var known string
	_ = json.Unmarshal(shown.Metadata[chatTemplate], &known) // another type counts as missing
	switch {
	case isJinja(known):
	case isJinja(shown.Template):
		files[templateFile] = []byte(shown.Template)
	default:
		return "", fmt.Errorf("the description of %q by Ollama: %w", model, ErrNoTemplate)
	}
	return s.Store.save(files)
}

// isJinja tells a chat template in Jinja's language from one in that of Go, which Ollama has, too.
func isJinja(template string) bool { return strings.Contains(template, "{%") }

// LlamaCPP finds the GGUF file of llama.cpp's server, which must be on this machine. It returns the
// path of that file, or of a directory that has the server's chat template instead of the file's.
func (s *Server) LlamaCPP(ctx context.Context) (path string, err error) {
	var properties struct {
		Path     string `json:"model_path"`
		Template string `json:"chat_template"`
	}
	if err := s.ask(ctx, "/props", nil, &properties, maxProperties); err != nil {
		return "", err
	}
	if !s.isLocal() {
		return "", fmt.Errorf("llama.cpp has its model at %.256q on another machine: copy the GGUF file, and name it with --model", properties.Path)
	}
	if properties.Path == "" {
		return "", errors.New("llama.cpp does not tell the path of its model: name it with --model")
	}
	if path = properties.Path; !filepath.IsAbs(path) {
		path = Beside(s.URL, path)
	}
	if path == "" { // the directory of the server is unknown, and may be that of this process
		if path, err = filepath.Abs(properties.Path); err != nil {
			return "", err
		}
		if !exists(path) {
			return "", fmt.Errorf("llama.cpp names its model by the relative path %.256q, and there is no such file: name it with --model, or give llama-server its absolute path", properties.Path)
		}
	}
	dir, err := gguf.DescriptionOf(path)
	if err != nil {
		return "", fmt.Errorf("llama.cpp names its model: %w", err)
	}
	files, err := readAll(dir)
	if err == nil {
		err = check(files)
	}
	if err != nil {
		return "", fmt.Errorf("llama.cpp names its model %s: %w", path, err)
	}
	own := templateOf(files)
	if own == "" && properties.Template == "" {
		return "", fmt.Errorf("llama.cpp names its model %s: %w", path, ErrNoTemplate)
	}
	if gguf.IsFile(path) && (properties.Template == "" || properties.Template == own) {
		return path, nil
	}
	if properties.Template != "" {
		files[templateFile] = []byte(properties.Template)
	}
	return s.Store.save(files)
}

// Beside returns the absolute path of a file or directory that a server on this machine names by a path relative to
// its working directory. It returns "" if that directory is unknown or has no such file.
func Beside(address, path string) string {
	dir := listenerDirectory(portOf(address))
	if at := filepath.Join(dir, path); dir != "" && exists(at) {
		return at
	}
	return ""
}

// portOf returns the port of a URL.
func portOf(address string) int {
	at, err := url.Parse(address)
	if err != nil {
		return 0
	}
	port := cmp.Or(at.Port(), map[string]string{"http": "80", "https": "443"}[at.Scheme])
	n, _ := strconv.Atoi(port) // 0 for another scheme: nothing listens there
	return n
}

// templateOf returns the chat template of a model's files, or "".
func templateOf(files map[string][]byte) string {
	var config struct {
		Template string `json:"chat_template"`
	}
	_ = json.Unmarshal(files["tokenizer_config.json"], &config) // a list of templates is not the server's
	return cmp.Or(string(files[templateFile]), config.Template)
}

// isLocal reports whether the server is on this machine, so that the paths that it names mean the same
// here.
func (s *Server) isLocal() bool {
	at, err := url.Parse(s.URL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(at.Hostname())
	return at.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
