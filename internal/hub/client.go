package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	defaultEndpoint = "https://huggingface.co"

	maxListing   = 32 << 20 // bytes of the description of a model, which lists its files
	maxRedirects = 10
	maxTries     = 3 // of a request in a row without a byte
	maxMessage   = 300

	// headerTimeout bounds the wait for the head of an answer, and stallTimeout a pause of its body.
	headerTimeout = 30 * time.Second
	stallTimeout  = 30 * time.Second
	firstPause    = time.Second // before a request is repeated; it doubles
)

var (
	errUnknown    = errors.New("the hub has no such model")
	errNoRevision = errors.New("the model has no such revision")
)

// A client calls the hub.
type client struct {
	endpoint *url.URL
	token    string
	http     *http.Client
	opts     Options
}

func newClient(o Options) (*client, error) {
	text := strings.TrimRight(cmp.Or(o.Env("HF_ENDPOINT"), defaultEndpoint), "/")
	endpoint, err := url.Parse(text)
	if err != nil || endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Host == "" {
		return nil, fmt.Errorf("HF_ENDPOINT is %q; it must be a URL such as %s", text, defaultEndpoint)
	}
	token, err := readToken(o.Env)
	if err != nil {
		return nil, err
	}
	transport := o.Transport
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.ResponseHeaderTimeout = headerTimeout
		transport = own
	}
	// Redirects are followed by hand: the standard client sends the token to other ports of a host.
	last := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client{endpoint: endpoint, token: token, http: &http.Client{Transport: transport, CheckRedirect: last}, opts: o}, nil
}

// readToken returns the user's token for the hub, or "".
func readToken(env func(string) string) (string, error) {
	if isTrue(env("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		return "", nil
	}
	if token := strings.TrimSpace(cmp.Or(env("HF_TOKEN"), env("HUGGING_FACE_HUB_TOKEN"))); token != "" {
		return checkToken("HF_TOKEN", token)
	}
	path := expand(env("HF_TOKEN_PATH"), env)
	if path == "" {
		dir, err := home(env)
		if err != nil {
			return "", nil // without a home there is no file with a token
		}
		path = filepath.Join(dir, "token")
	}
	f, err := os.Open(path)
	if err != nil {
		return "", nil // most users have no token
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(f, 1<<12))
	if err != nil {
		return "", nil // as without a token
	}
	return checkToken(path, strings.TrimSpace(string(text)))
}

var tokenForm = regexp.MustCompile(`^[!-~]*$`)

func checkToken(source, token string) (string, error) {
	if !tokenForm.MatchString(token) {
		return "", fmt.Errorf("the token of %s has characters that a token cannot have", source)
	}
	return token, nil
}

// address returns the address of the hub for people, without a password.
func (c *client) address() string { return c.endpoint.Redacted() }

// A listing describes a model at a commit.
type listing struct {
	Commit string `json:"sha"`
	Files  []struct {
		Name string `json:"rfilename"`
	} `json:"siblings"`
}

func (l *listing) files() map[string]bool {
	all := make(map[string]bool, len(l.Files))
	for _, f := range l.Files {
		all[f.Name] = true
	}
	return all
}

// list asks for a model's commit and files.
func (c *client) list(ctx context.Context, id, revision string) (*listing, error) {
	resp, err := c.get(ctx, http.MethodGet, c.endpoint.JoinPath("api", "models", id, "revision", url.PathEscape(revision)), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // the answer is read
	if resp.StatusCode != http.StatusOK {
		return nil, c.refusal(resp, id, revision)
	}
	text, err := io.ReadAll(io.LimitReader(c.bounded(resp.Body), maxListing))
	if err != nil {
		return nil, c.unreachable(err)
	}
	l := new(listing)
	if err := json.Unmarshal(text, l); err != nil {
		return nil, fmt.Errorf("%s answers with something else than the description of a model: %w", c.address(), err)
	}
	if !commitForm.MatchString(l.Commit) || commitForm.MatchString(revision) && l.Commit != revision {
		return nil, fmt.Errorf("%s answers with the commit %.64q for the revision %s", c.address(), l.Commit, revision)
	}
	return l, nil
}

// fileURL returns the address of a file at a commit.
func (c *client) fileURL(id, commit, name string) *url.URL {
	return c.endpoint.JoinPath(id, "resolve", commit, url.PathEscape(name))
}

// get sends a request, and follows its redirects until done says that an answer is the right one. A
// server that is too busy or fails is asked again.
func (c *client) get(ctx context.Context, method string, at *url.URL, header http.Header) (*http.Response, error) {
	pause := firstPause
	for try := 1; ; try++ {
		resp, err := c.follow(ctx, method, at, header)
		if err != nil {
			return nil, err
		}
		if busy := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500; !busy || try == maxTries {
			return resp, nil
		}
		_ = resp.Body.Close() // it is not read
		if err := wait(ctx, &pause); err != nil {
			return nil, err
		}
	}
}

// wait waits for a pause, which it doubles, or returns the cause for which ctx ends before.
func wait(ctx context.Context, pause *time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(*pause):
	}
	*pause *= 2
	return nil
}

// follow sends a request and follows its redirects, up to an answer of HEAD that has the headers of a
// file. The token goes to the endpoint only.
func (c *client) follow(ctx context.Context, method string, at *url.URL, header http.Header) (*http.Response, error) {
	for range maxRedirects {
		req, err := http.NewRequestWithContext(ctx, method, at.String(), nil)
		if err != nil {
			return nil, err
		}
		for name, values := range header {
			req.Header[name] = values
		}
		req.Header.Set("User-Agent", "whence")
		req.Header.Set("Accept-Encoding", "identity") // sizes and ranges are the file's own
		if c.token != "" && at.Scheme == c.endpoint.Scheme && at.Host == c.endpoint.Host {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, c.unreachable(err)
		}
		if resp.StatusCode < 300 || resp.StatusCode >= 400 || method == http.MethodHead && resp.Header.Get(linkedETag) != "" {
			return resp, nil
		}
		_ = resp.Body.Close() // it is not read
		next, err := at.Parse(resp.Header.Get("Location"))
		if err != nil || resp.Header.Get("Location") == "" {
			return nil, fmt.Errorf("%s answers with status %d and without a valid address", at.Host, resp.StatusCode)
		}
		if next.Scheme != "https" && next.Scheme != at.Scheme {
			return nil, fmt.Errorf("%s redirects from %s to %s", at.Host, at.Scheme, next.Scheme)
		}
		at = next
	}
	return nil, fmt.Errorf("%s redirects more than %d times", at.Host, maxRedirects)
}

// unreachable describes a hub that does not answer.
func (c *client) unreachable(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err // without an address that may have a signature in it
	}
	return fmt.Errorf("the hub at %s cannot be reached: %w; give the directory of the model's files, or set HF_ENDPOINT to a mirror", c.address(), err)
}

// refusal describes an answer with an error.
func (c *client) refusal(resp *http.Response, id, revision string) error {
	code := resp.Header.Get("X-Error-Code")
	page := c.endpoint.JoinPath(id).Redacted()
	switch {
	case code == "GatedRepo" || resp.StatusCode == http.StatusForbidden:
		if c.token == "" {
			return fmt.Errorf("it is gated: ask for access on %s, and set HF_TOKEN to a token of that account", page)
		}
		return fmt.Errorf("it is gated, and the account of the token has no access: ask for it on %s", page)
	case code == "RevisionNotFound":
		return fmt.Errorf("%w as %q; %s/tree/main shows its branches", errNoRevision, revision, page)
	case resp.StatusCode == http.StatusUnauthorized && c.token != "" && code != "RepoNotFound":
		return fmt.Errorf("%s refuses the token of HF_TOKEN or of `hf auth login`", c.address())
	case resp.StatusCode == http.StatusUnauthorized: // what the hub says to strangers
		return fmt.Errorf("%w that everybody may see: correct the id, or set HF_TOKEN if the model is private", errUnknown)
	case resp.StatusCode == http.StatusNotFound && code != "EntryNotFound":
		return fmt.Errorf("%w: %s does not exist", errUnknown, page)
	case resp.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("%s limits the requests of this address; try again later, or set HF_TOKEN", c.address())
	}
	message := resp.Header.Get("X-Error-Message")
	if message != "" {
		message = ": " + message
	}
	return fmt.Errorf("%s answers with status %d%.*s", c.address(), resp.StatusCode, maxMessage, message)
}

// bounded returns a body whose reads fail after a pause of stallTimeout.
func (c *client) bounded(body io.ReadCloser) io.Reader {
	return &stallReader{body: body, timer: time.AfterFunc(stallTimeout, func() { _ = body.Close() })}
}

// A stallReader closes a body that pauses for too long.
type stallReader struct {
	body  io.ReadCloser
	timer *time.Timer
}

func (r *stallReader) Read(b []byte) (int, error) {
	r.timer.Reset(stallTimeout)
	n, err := r.body.Read(b)
	if stalled := !r.timer.Stop(); stalled && err != nil {
		err = fmt.Errorf("nothing has arrived for %v", stallTimeout)
	}
	return n, err
}
