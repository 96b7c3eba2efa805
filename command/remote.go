package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/client"
	"github.com/whence-dev/whence/internal/flags"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// timeout bounds a request to an api-service, maxAnswer its answer: ten thousand live streams, with
// a margin.
const (
	remoteTimeout = 10 * time.Second
	maxAnswer     = 16 << 20
)

// defaultURL is the api-service of `whence` without flags.
const defaultURL = "http://127.0.0.1:8080"

// A remote is an api-service.
type remote struct {
	URL         string
	Key         string // an API key
	OperatorKey string // used without Key
}

// Flags adds the flags of s to fs.
func (s *remote) Flags(fs *flag.FlagSet) {
	fs.StringVar(&s.URL, "url", defaultURL, "`url` of an api-service")
	fs.StringVar(&s.Key, "key", "", "API `key`, which sees the streams of its tenant; it is used instead of --operator-key")
	fs.StringVar(&s.OperatorKey, "operator-key", "", "`key` of the api-service's --operator-key, which sees all streams")
	flags.Group(fs, flags.Connections, "url", "key", "operator-key")
	flags.Secret(fs, "key", "operator-key")
}

// Validate reports what is wrong with s. Like package client, it ignores a trailing "/v1" of the URL.
func (s *remote) Validate() error {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return cli.Misuse("--url is %.128q; it must be the address of an api-service, such as %s", s.URL, defaultURL)
	}
	s.URL = strings.TrimSuffix(strings.TrimRight(s.URL, "/"), "/v1")
	return nil
}

// Credential returns the key to send; "" means none.
func (s *remote) Credential() string {
	if s.Key != "" {
		return s.Key
	}
	return s.OperatorKey
}

// Get decodes the JSON answer to a GET into into.
func (s *remote) Get(ctx context.Context, path string, into any) error {
	return s.call(ctx, http.MethodGet, path, http.StatusOK, into)
}

// Stop stops a stream.
func (s *remote) Stop(ctx context.Context, id string) error {
	var answer struct{}
	return s.call(ctx, http.MethodDelete, streamPath(id), http.StatusAccepted, &answer)
}

// Story returns the story of a stream.
func (s *remote) Story(ctx context.Context, id string) (*story.Story, error) {
	var told story.Story
	if err := s.Get(ctx, streamPath(id), &told); err != nil {
		return nil, err
	}
	return &told, nil
}

func streamPath(id string) string { return "/v1/streams/" + url.PathEscape(id) }

// Workers returns the workers.
func (s *remote) Workers(ctx context.Context) ([]story.Worker, error) {
	var list struct{ Workers []story.Worker }
	err := s.Get(ctx, "/v1/workers", &list)
	return list.Workers, err
}

// errNoModel is the error of a service without models.
var errNoModel = errors.New("the service lists no model; is a worker healthy? See 'whence top'")

// FirstModel returns the name of the first model that the service lists.
func (s *remote) FirstModel(ctx context.Context) (string, error) {
	var list struct{ Data []struct{ ID string } }
	if err := s.Get(ctx, "/v1/models", &list); err != nil {
		return "", err
	}
	if len(list.Data) == 0 {
		return "", errNoModel
	}
	return list.Data[0].ID, nil
}

// Live returns the running streams, oldest first, page by page. query selects among them; it may be
// nil.
func (s *remote) Live(ctx context.Context, query url.Values) (all []story.Story, err error) {
	query = maps.Clone(query)
	if query == nil {
		query = url.Values{}
	}
	for {
		page, err := s.list(ctx, query)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Streams...)
		if page.Next == "" {
			return all, nil
		}
		query.Set("page_token", page.Next)
	}
}

// Ended returns the last ended streams, newest first. query selects among them.
func (s *remote) Ended(ctx context.Context, query url.Values) ([]story.Story, error) {
	query.Set("state", "ended")
	page, err := s.list(ctx, query)
	return page.Streams, err
}

// A streamPage is an answer of GET /v1/streams.
type streamPage struct {
	Streams []story.Story `json:"streams"`
	Next    string        `json:"next_page_token"`
}

func (s *remote) list(ctx context.Context, query url.Values) (p streamPage, err error) {
	path := "/v1/streams"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	err = s.Get(ctx, path, &p)
	for _, told := range p.Streams {
		if err == nil && len(told.Hops) == 0 {
			err = fmt.Errorf("the answer of %s cannot be parsed: a stream has no hop", s.URL)
		}
	}
	return p, err
}

// call sends a request, and decodes the JSON answer into into.
func (s *remote) call(ctx context.Context, method, path string, want int, into any) error {
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, nil)
	if err != nil {
		return err
	}
	if key := s.Credential(); key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return unreachableError(s.URL, err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end, or too long
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != want {
		if e, ok := streamerr.ParseJSON(body); ok {
			return s.Explain(e)
		}
		return fmt.Errorf("%s answered %s", s.URL, resp.Status)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the answer of %s cannot be parsed: %w", s.URL, err)
	}
	return nil
}

// Explain adds to the refusal of a request which flags give a key.
func (s *remote) Explain(err error) error {
	switch {
	case !errors.Is(err, streamerr.Unauthenticated) && !errors.Is(err, client.Unauthenticated):
		return err
	case s.Credential() == "":
		return fmt.Errorf("%w\ngive a key with --key or WHENCE_KEY, or the operator's with --operator-key or WHENCE_OPERATOR_KEY", err)
	default:
		return fmt.Errorf("%w\nthe key of --key (WHENCE_KEY) or --operator-key (WHENCE_OPERATOR_KEY) is refused", err)
	}
}

// unreachableError explains an error of a connection.
func unreachableError(address string, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // without the method and the whole URL
	}
	return fmt.Errorf("no answer from %s: %w\nis an api-service running there? 'whence' starts one, and --url names another", address, err)
}
