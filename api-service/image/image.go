// Package image gets the images that requests name: from the request itself, or from https URLs.
//
// Parsers return a Source for each image, and a Fetcher fills in the images. A Fetcher bounds the
// number of images, their total bytes, the pixels of each, and the time. A Checker of the Fetcher
// has the same bounds for images that arrive as bytes, without a Source. A Fetcher connects only to
// public addresses: it checks the address of each connection, after the name was resolved, so
// neither a redirect nor a name that resolves differently the second time circumvents the check.
// The type of an image is detected from its bytes. Errors name the field, and never contain a URL
// or a part of one.
package image

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/strict"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Source is where an image comes from. Either URL or Base64 is set.
type Source struct {
	Param  string // the field of the request
	URL    string // https: or data:
	Base64 string // the encoded image itself
	To     *llmv1.Image
	// Spare reports that the answer does not need the image (MarkSpare).
	Spare bool
	// omitted reports that the image is not to be had, so that a note takes its place.
	omitted bool
}

// omit omits the image if the answer does not need it.
func (s *Source) omit() bool {
	if s.Spare {
		*s = Source{Param: s.Param, To: s.To, Spare: true, omitted: true}
	}
	return s.Spare
}

// FromURL returns the source of an image and the image, which is empty until a Fetcher fills it in.
func FromURL(param, url string) Source { return Source{Param: param, URL: url, To: &llmv1.Image{}} }

// FromBase64 is FromURL for an image that is part of the request.
func FromBase64(param, data string) Source {
	return Source{Param: param, Base64: data, To: &llmv1.Image{}}
}

// FromText returns the source of an image that is either a URL or base64.
func FromText(param, text string) Source {
	if strings.HasPrefix(text, "data:") || strings.Contains(text, "://") {
		return FromURL(param, text)
	}
	return FromBase64(param, text)
}

// List returns the sources of an array of images, each as for FromText. A missing array has none.
func List(param string, raw json.RawMessage) ([]Source, error) {
	if strict.Empty(raw) {
		return nil, nil
	}
	texts, err := strict.Strings(param, raw)
	if err != nil {
		return nil, err
	}
	all := make([]Source, len(texts))
	for i, text := range texts {
		all[i] = FromText(fmt.Sprintf("%s[%d]", param, i), text)
	}
	return all, nil
}

// Types are the media types of images that engines support.
var Types = []string{"image/png", "image/jpeg", "image/webp", "image/gif"}

// maxRequest bounds a request with its images, in bytes. It is below the limit of a message between
// the services.
const maxRequest = rpc.MaxRequest - 64<<10

// CheckSize refuses a request that is too large with its images. param is the field of one of them,
// and size the size of the request in bytes.
func CheckSize(param string, size int) error {
	if size <= maxRequest {
		return nil
	}
	return streamerr.InvalidParam(param, "the request has %d bytes with its images; at most %d are allowed", size, maxRequest)
}

// Uncounted refuses an image in a request that counts tokens without an engine.
func Uncounted(s Source) error {
	return streamerr.InvalidParam(s.Param, "%s is an image, and only the engine knows how many tokens it takes", s.Param).WithCode(streamerr.CodeUnsupportedValue)
}

// Schemes of URLs that a Fetcher fetches.
const (
	None  = "none"
	HTTPS = "https"
	HTTP  = "http" // http and https
)

// Limits bound the images of one request.
type Limits struct {
	Count   int           // number of images; 0 refuses all
	Bytes   int64         // of all images together, decoded
	Timeout time.Duration // for all images together
	URLs    string        // None, HTTPS or HTTP
	AnyPort bool          // URLs may name ports other than the default port of their scheme
}

// Flags adds the flags of l to fs.
func (l *Limits) Flags(fs *flag.FlagSet) {
	fs.IntVar(&l.Count, "max-images", DefaultCount, "maximum images in a request, if its model takes images; 0 refuses all images")
	fs.Int64Var(&l.Bytes, "image-bytes", DefaultBytes, "maximum `bytes` of all images of a request together; images in its body also count toward --max-body")
	fs.DurationVar(&l.Timeout, "image-timeout", DefaultTimeout, "how long fetching all images of a request may take")
	fs.StringVar(&l.URLs, "image-urls", HTTPS, "the `URLs` of images that are fetched: none, https, or http, which means both. Only public addresses are contacted")
	fs.BoolVar(&l.AnyPort, "image-any-port", false, "also fetch images from ports other than 443 (and 80 for http)")
}

// Defaults of Limits.
const (
	DefaultCount   = 8
	DefaultBytes   = 20 << 20
	DefaultTimeout = 10 * time.Second
)

// MaxBytes bounds Limits.Bytes, so that a request fits into the messages between the services.
const MaxBytes = 24 << 20

// Validate checks l. Its errors name the flags.
func (l *Limits) Validate() error {
	switch {
	case *l == Limits{}:
		return nil
	case l.Count < 0:
		return errors.New("--max-images must not be negative")
	case l.Bytes < 1 || l.Bytes > MaxBytes:
		return fmt.Errorf("--image-bytes is %d; it must be 1 to %d", l.Bytes, MaxBytes)
	case l.Timeout <= 0:
		return errors.New("--image-timeout must be over 0")
	case l.URLs != None && l.URLs != HTTPS && l.URLs != HTTP:
		return fmt.Errorf("--image-urls is %.32q; it must be %s, %s or %s", l.URLs, None, HTTPS, HTTP)
	}
	return nil
}

// A Fetcher gets images. It is safe for concurrent use.
type Fetcher struct {
	limits Limits
	client *http.Client
	places *places
}

// New returns a fetcher with valid limits.
func New(limits Limits) *Fetcher { return newFetcher(limits, dialer()) }

// Fill gets all images of a tenant's request, one after another. ctx is done when the client leaves.
// Images that the answer does not need come last, the newest first. They are omitted if they are too
// many or too large, or cannot be had: an image in the history must not end a session.
func (f *Fetcher) Fill(ctx context.Context, tenant string, all []Source) error {
	if err := f.count(all); err != nil {
		return err
	}
	release, err := f.enter(ctx, tenant, all)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, f.limits.Timeout)
	defer cancel()
	left := f.limits.Bytes
	for _, s := range inOrder(all) {
		err := f.fill(ctx, s, &left)
		switch {
		case err == nil:
			*s = Source{Param: s.Param} // release the parser's memory of the request: the source may live as long as the stream
		case errors.Is(ctx.Err(), context.Canceled) || !s.omit():
			return err
		}
	}
	return nil
}

// inOrder returns the images that have not been omitted, in the order in which Fill gets them.
func inOrder(all []Source) (order []*Source) {
	for i := range all {
		if !all[i].Spare {
			order = append(order, &all[i])
		}
	}
	for i := range slices.Backward(all) {
		if all[i].Spare && !all[i].omitted {
			order = append(order, &all[i])
		}
	}
	return order
}

// fill gets an image of at most left bytes, and subtracts its size.
func (f *Fetcher) fill(ctx context.Context, s *Source, left *int64) error {
	data, err := f.get(ctx, s, *left)
	if err != nil {
		return err
	}
	if s.To.MediaType, err = checkData(s.Param, data); err != nil {
		return err
	}
	s.To.Data = data
	*left -= int64(len(data))
	return nil
}

// enter checks the URLs of a request, and waits for a place if any must be fetched.
func (f *Fetcher) enter(ctx context.Context, tenant string, all []Source) (release func(), err error) {
	var first *Source
	for i := range all {
		s := &all[i]
		if !s.fetched() {
			continue
		}
		if err := f.check(s); err != nil {
			if s.omit() {
				continue
			}
			return nil, err
		}
		if first == nil {
			first = s
		}
	}
	if first == nil {
		return func() {}, nil
	}
	wait, cancel := context.WithTimeout(ctx, f.limits.Timeout)
	defer cancel()
	switch release = f.places.take(wait, tenant); {
	case release != nil:
		return release, nil
	case ctx.Err() != nil:
		return nil, f.failed(ctx, first, ctx.Err())
	default:
		return nil, busy(first)
	}
}

// fetched reports whether the image must be fetched from another server.
func (s *Source) fetched() bool { return s.URL != "" && !strings.HasPrefix(s.URL, "data:") }

// count refuses more images than the limit, after it has omitted the oldest ones that the answer does
// not need.
func (f *Fetcher) count(all []Source) error {
	n := len(all)
	for i := range all {
		if n > f.limits.Count && all[i].omit() {
			n--
		}
	}
	n = 0
	for i := range all {
		if all[i].omitted {
			continue
		}
		if err := f.countAfter(n, all[i].Param); err != nil {
			return err
		}
		n++
	}
	return nil
}

// countAfter refuses an image that follows n images if that is more than the limit.
func (f *Fetcher) countAfter(n int, param string) error {
	switch {
	case f.limits.Count == 0:
		return streamerr.InvalidParam(param, "%s is an image, and images are turned off here (--max-images)", param).WithCode(streamerr.CodeUnsupportedValue)
	case n >= f.limits.Count:
		return streamerr.InvalidParam(param, "%s: too many images: at most %d are allowed", param, f.limits.Count)
	default:
		return nil
	}
}

// get returns the bytes of an image, at most limit.
func (f *Fetcher) get(ctx context.Context, s *Source, limit int64) ([]byte, error) {
	if s.fetched() {
		return f.fetch(ctx, s, limit)
	}
	text := s.Base64
	if s.URL != "" {
		head, data, ok := strings.Cut(s.URL, ",")
		if !ok || !strings.HasSuffix(head, ";base64") {
			return nil, streamerr.InvalidParam(s.Param, "%s is a data: URL that is not in base64", s.Param)
		}
		text = data
	}
	if int64(base64.StdEncoding.DecodedLen(len(text)))-2 > limit { // padding stands for up to two bytes
		return nil, f.tooLarge(s.Param)
	}
	data, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil:
		return nil, streamerr.InvalidParam(s.Param, "%s is not valid base64", s.Param)
	case int64(len(data)) > limit:
		return nil, f.tooLarge(s.Param)
	default:
		return data, nil
	}
}

func (f *Fetcher) tooLarge(param string) error {
	return streamerr.InvalidParam(param, "%s is too large: the images of a request may have %d bytes together", param, f.limits.Bytes)
}

// fetch gets an image from its URL, which check has passed.
func (f *Fetcher) fetch(ctx context.Context, s *Source, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return nil, f.failed(ctx, s, err)
	}
	req.Header.Set("Accept", "image/png, image/jpeg, image/webp, image/gif")
	req.Header.Set("User-Agent", "whence")
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, f.failed(ctx, s, err)
	}
	defer resp.Body.Close() //nolint:errcheck // the body was only read
	switch {
	case resp.StatusCode != http.StatusOK:
		return nil, streamerr.InvalidParam(s.Param, "%s cannot be fetched: its server answered with status %d", s.Param, resp.StatusCode)
	case resp.ContentLength > limit:
		return nil, f.tooLarge(s.Param)
	}
	var data bytes.Buffer
	n, err := data.ReadFrom(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, f.failed(ctx, s, err)
	case n > limit:
		return nil, f.tooLarge(s.Param)
	default:
		return data.Bytes(), nil
	}
}

// check refuses a URL that may not be fetched.
func (f *Fetcher) check(s *Source) error {
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return streamerr.InvalidParam(s.Param, "%s must be a data: URL or an https: URL, without a user", s.Param)
	case f.limits.URLs == None:
		return streamerr.InvalidParam(s.Param, "%s is a URL, and images are not fetched here (--image-urls); send it as a data: URL", s.Param).WithCode(streamerr.CodeUnsupportedValue)
	case !f.allows(u):
		return streamerr.InvalidParam(s.Param, "%s has a URL that is not https:", s.Param).WithCode(streamerr.CodeUnsupportedValue)
	case !f.reaches(u):
		return streamerr.InvalidParam(s.Param, "%s has a URL with a port; only the port of its scheme is allowed here (--image-any-port)", s.Param).WithCode(streamerr.CodeUnsupportedValue)
	default:
		return nil
	}
}

// allows reports whether URLs of this scheme are fetched.
func (f *Fetcher) allows(u *url.URL) bool {
	return u.Scheme == "https" || u.Scheme == "http" && f.limits.URLs == HTTP
}

// reaches reports whether images may be fetched from a URL's port. Other ports belong to other
// services.
func (f *Fetcher) reaches(u *url.URL) bool {
	own := map[string]string{"https": "443", "http": "80"}[u.Scheme]
	return f.limits.AnyPort || u.Port() == "" || u.Port() == own
}

// failed returns the error for a fetch that failed. The text of err may contain a URL, so the error
// has only the kind of failure.
func (f *Fetcher) failed(ctx context.Context, s *Source, err error) error {
	why := "its server cannot be reached, or broke the connection"
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return streamerr.New(streamerr.ClientGone, "the client left while its images were fetched")
	case errors.Is(err, errPrivate):
		why = "its server's address is not public"
	case errors.Is(err, errRedirects):
		why = fmt.Sprintf("it was redirected more than %d times", maxRedirects)
	case errors.Is(err, errScheme):
		why = "it was redirected to a URL that is not https:"
	case errors.Is(err, errPort):
		why = "it was redirected to a port that is not allowed"
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		why = fmt.Sprintf("it did not arrive within %v", f.limits.Timeout)
	}
	return streamerr.InvalidParam(s.Param, "%s cannot be fetched: %s", s.Param, why)
}

// checkData checks the type and the pixels of an image. It returns the media type.
func checkData(param string, data []byte) (kind string, err error) {
	if kind, err = mediaType(param, data); err != nil {
		return "", err
	}
	return kind, checkPixels(param, kind, data)
}

// mediaType returns the type of an image by its first bytes.
func mediaType(param string, data []byte) (string, error) {
	kind := http.DetectContentType(data)
	if !slices.Contains(Types, kind) {
		return "", streamerr.InvalidParam(param, "%s is not an image in PNG, JPEG, WebP or GIF", param).WithCode(streamerr.CodeUnsupportedValue)
	}
	return kind, nil
}
