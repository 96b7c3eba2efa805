package image

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/imagenote"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/seeingtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// png and gif are headers of images.
var (
	png = []byte(seeingtest.PNG)
	gif = []byte("GIF89a\x01\x00\x01\x00\x00\x00\x00")
)

func limits(change ...func(*Limits)) Limits {
	l := Limits{Count: 2, Bytes: 1000, Timeout: polltest.Patience, URLs: HTTP, AnyPort: true}
	for _, c := range change {
		c(&l)
	}
	return l
}

// near returns a fetcher that may connect to the addresses of servers, besides public addresses.
func near(l Limits, servers ...*httptest.Server) *Fetcher {
	d := dialer()
	guard := d.Control
	d.Control = func(network, address string, c syscall.RawConn) error {
		for _, s := range servers {
			if s.Listener.Addr().String() == address {
				return nil
			}
		}
		return guard(network, address, c)
	}
	return newFetcher(l, d)
}

func serve(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s
}

// refused fetches an image and checks the refusal: it must name the field and contain says, but no
// part of the URL.
func refused(t *testing.T, f *Fetcher, url, says string) {
	t.Helper()
	s := FromURL("messages[0].content[0]", url)
	err := f.Fill(t.Context(), "", []Source{s})
	e := streamerr.As(err)
	if err == nil || e.Reason != streamerr.Invalid || e.Param != s.Param || !strings.Contains(e.Message, says) {
		t.Errorf("%s: %v, want %q", url, err, says)
	}
	if err != nil && (strings.Contains(fmt.Sprintf("%+v", e), "secret") || strings.Contains(err.Error(), "127.0.0.1") || e.Cause != nil) {
		t.Errorf("the error contains a part of the URL: %v", err)
	}
	if len(s.To.GetData()) > 0 {
		t.Error("the image is set although it was refused")
	}
}

func TestImagesAreFetchedAndTheirTypesAreDetected(t *testing.T) {
	var header atomic.Pointer[http.Header]
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		header.Store(&r.Header)
		w.Header().Set("Content-Type", "text/html") // the wrong type
		_, _ = w.Write(png)
	})
	all := []Source{FromURL("a", s.URL+"/x.gif?secret=1"), FromBase64("b", base64.StdEncoding.EncodeToString(gif))}
	first, second := all[0].To, all[1].To
	if err := near(limits(), s).Fill(t.Context(), "", all); err != nil {
		t.Fatal(err)
	}
	if string(first.GetData()) != string(png) || first.GetMediaType() != "image/png" || second.GetMediaType() != "image/gif" {
		t.Error(first, second)
	}
	if all[0].URL != "" || all[1].Base64 != "" {
		t.Error("the sources keep the memory of the request:", all)
	}
	if h := header.Load(); h.Get("Cookie")+h.Get("Authorization")+h.Get("Referer") != "" {
		t.Error(h)
	}
}

func TestDataURLsAreDecodedWithinTheLimit(t *testing.T) {
	f := New(limits(func(l *Limits) { l.Bytes = int64(len(png)) }))
	data := func(b []byte) string { return "data:image/jpeg;base64," + base64.StdEncoding.EncodeToString(b) }
	s := FromURL("a", data(png))
	to := s.To
	if err := f.Fill(t.Context(), "", []Source{s}); err != nil || to.GetMediaType() != "image/png" || string(to.GetData()) != string(png) {
		t.Error(err, to)
	}
	for url, says := range map[string]string{
		data(append(png, 'x')):                   "too large",
		data(append(png, make([]byte, 1000)...)): "too large",
		"data:image/png;base64,=":                "not valid base64",
		"data:image/png,abc":                     "not in base64",
		"data:":                                  "not in base64",
		data([]byte("<svg>")):                    "not an image",
		"data:image/png;base64,":                 "not an image",
		"file:///etc/secret":                     "https: URL",
		"https://user:secret@example.org/":       "without a user",
		"/etc/secret":                            "https: URL",
		"ftp://example.org/secret":               "not https:",
		"http://[::1]:secret/":                   "https: URL",
		"https://" + strings.Repeat("secret.", 40) + "invalid": "cannot be fetched",
	} {
		refused(t, f, url, says)
	}
}

func TestImagesAreCountedTogether(t *testing.T) {
	f := New(limits(func(l *Limits) { l.Bytes = int64(2*len(png)) - 1 }))
	one := base64.StdEncoding.EncodeToString(png)
	for want, all := range map[string][]Source{
		"second": {FromBase64("first", one), FromBase64("second", one)},
		"third":  {FromBase64("first", one), FromBase64("second", one), FromBase64("third", one)},
	} {
		if err := f.Fill(t.Context(), "", all); streamerr.As(err).Param != want {
			t.Errorf("%v, want the %s refused", err, want)
		}
	}
	if err := New(Limits{}).Fill(t.Context(), "", []Source{FromBase64("a", one)}); err == nil || !strings.Contains(err.Error(), "--max-images") {
		t.Errorf("images are off: %v", err)
	}
	if err := New(Limits{}).Fill(t.Context(), "", nil); err != nil {
		t.Errorf("without images: %v", err)
	}
}

// TestImagesThatTheAnswerDoesNotNeedAreOmitted covers images of earlier turns that are too many, too
// large or broken, beside an image of the turn to be answered.
func TestImagesThatTheAnswerDoesNotNeedAreOmitted(t *testing.T) {
	const good, broken = "data:image/png;base64,", "data:,x"
	encoded := base64.StdEncoding.EncodeToString(png)
	many := slices.Repeat([]string{good}, 1000)
	for name, c := range map[string]struct {
		limits Limits
		urls   []string // the last one is in the last turn
		want   string   // the images that are left
	}{
		"all":          {limits(func(l *Limits) { l.Count = 3 }), []string{good, good, good}, "a[0]a[1]a[2]"},
		"too many":     {limits(), []string{good, good, good}, "a[1]a[2]"},
		"far too many": {limits(), many, "a[998]a[999]"},
		"too large":    {limits(func(l *Limits) { l.Count, l.Bytes = 3, int64(2*len(png)) }), []string{good, good, good}, "a[1]a[2]"},
		"broken":       {limits(func(l *Limits) { l.Count = 3 }), []string{good, broken, good}, "a[0]a[2]"},
		"a bad URL":    {limits(func(l *Limits) { l.Count = 3 }), []string{"ftp://x", good, good}, "a[1]a[2]"},
	} {
		var all []Source
		var turns []*chatv1.Message
		for i, url := range c.urls {
			if url == good {
				url += encoded
			}
			all = append(all, FromURL(fmt.Sprintf("a[%d]", i), url))
			turns = append(turns, &chatv1.Message{Role: "user", Content: all[i].Param, Images: []*chatv1.PlacedImage{{Image: all[i].To}}}, &chatv1.Message{Role: "assistant"})
		}
		turns = turns[:len(turns)-1]
		MarkSpare(turns, all)
		if err := near(c.limits).Fill(t.Context(), "", all); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		fields, left := NoteOmitted(turns, all, true), ""
		for _, m := range turns {
			content, noted := strings.CutPrefix(m.GetContent(), imagenote.Unusable)
			if len(m.GetImages()) > 0 {
				left += content
			}
			if m.GetRole() == "user" && (noted == (len(m.GetImages()) > 0) || !noted && len(m.GetImages()[0].GetImage().GetData()) == 0) {
				t.Errorf("%s: %v", name, m)
			}
		}
		if want := []string{"a[]"}; left != c.want || (name != "all") != slices.Equal(fields, want) {
			t.Errorf("%s: the images %s are left, want %s; %q are omitted", name, left, c.want, fields)
		}
	}
}

// TestAModelThatTakesNoImages gets notes, but for an image that the answer needs: it is refused later.
func TestAModelThatTakesNoImages(t *testing.T) {
	var all []Source
	var turns []*chatv1.Message
	for _, role := range []string{"user", "assistant", "tool", "assistant", "user"} {
		all = append(all, FromURL("messages[0].images[1]", "https://a/1"))
		turns = append(turns, &chatv1.Message{Role: role, Content: "x", Images: []*chatv1.PlacedImage{{Image: all[len(all)-1].To, Offset: 1}}})
	}
	MarkSpare(turns, all)
	fields := NoteOmitted(turns, all, false)
	for i, m := range turns {
		if last := i == len(turns)-1; len(m.GetImages()) > 0 != last || !last && m.GetContent() != "x"+imagenote.NoImages {
			t.Error(i, m)
		}
	}
	if len(fields) != 1 || fields[0] != "messages[].images[]" {
		t.Errorf("%q are omitted", fields)
	}
}

func TestURLsAreFetchedAsTheFlagSays(t *testing.T) {
	refused(t, New(limits(func(l *Limits) { l.URLs = None })), "https://example.org/secret", "--image-urls")
	refused(t, New(limits(func(l *Limits) { l.URLs = HTTPS })), "http://example.org/secret", "not https:")
}

func TestServersThatDoNotServeAnImageAreRefused(t *testing.T) {
	for says, handle := range map[string]http.HandlerFunc{
		"status 404": http.NotFound,
		"too large":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1001)) },
		"too large: ": func(w http.ResponseWriter, _ *http.Request) { // without a length
			for range 100 {
				_, _ = w.Write(make([]byte, 100))
				w.(http.Flusher).Flush()
			}
		},
		"not an image":         func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>secret")) },
		"broke the connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		s := serve(t, handle)
		refused(t, near(limits(), s), s.URL+"/secret", strings.TrimSuffix(says, ": "))
	}
}

func TestSlowServerTimesOut(t *testing.T) {
	for name, first := range map[string][]byte{"before its header": nil, "in the middle": png} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if first != nil {
				_, _ = w.Write(first)
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
		})
		t.Run(name, func(t *testing.T) {
			refused(t, near(limits(func(l *Limits) { l.Timeout = 50 * time.Millisecond }), s), s.URL+"/secret", "did not arrive within 50ms")
		})
	}
}

func TestClientThatLeavesEndsTheFetch(t *testing.T) {
	asked := make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-asked
		leave()
	}()
	if err := near(limits(), s).Fill(ctx, "", []Source{FromURL("a", s.URL)}); !errors.Is(err, streamerr.ClientGone) {
		t.Error(err)
	}
}

func TestEveryRedirectIsChecked(t *testing.T) {
	private := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a private address was reached") })
	var s *httptest.Server
	s = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Referer") != "" {
			t.Error("a server learned another URL")
		}
		to := map[string]string{
			"/private": private.URL + "/secret", "/file": "file:///secret", "/metadata": "http://169.254.169.254/secret",
			"/loop": s.URL + "/loop", "/twice": s.URL + "/once", "/once": s.URL + "/image",
		}[r.URL.Path]
		if to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		_, _ = w.Write(png)
	})
	f := near(limits(), s)
	refused(t, f, s.URL+"/private", "not public")
	refused(t, f, s.URL+"/metadata", "not public")
	refused(t, f, s.URL+"/file", "redirected to a URL that is not https:")
	refused(t, f, s.URL+"/loop", "redirected more than 3 times")
	if err := f.Fill(t.Context(), "", []Source{FromURL("a", s.URL+"/twice")}); err != nil {
		t.Error(err)
	}
	secure := httptest.NewTLSServer(http.RedirectHandler(s.URL, http.StatusFound))
	t.Cleanup(secure.Close)
	only := near(limits(func(l *Limits) { l.URLs = HTTPS }), s, secure)
	only.client.Transport.(*http.Transport).TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
	refused(t, only, secure.URL+"/secret", "redirected to a URL that is not https:")
}

// A zone answers DNS queries for every name with its addresses, one per query; the last address
// repeats.
type zone struct {
	mu        sync.Mutex
	addresses []netip.Addr
}

func (z *zone) next() netip.Addr {
	z.mu.Lock()
	defer z.mu.Unlock()
	first := z.addresses[0]
	if len(z.addresses) > 1 {
		z.addresses = z.addresses[1:]
	}
	return first
}

// dial implements net.Resolver.Dial. On a connection that is not a PacketConn, each message has a
// length prefix.
func (z *zone) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		length := make([]byte, 2)
		for {
			if _, err := there.Read(length); err != nil {
				return
			}
			query := make([]byte, int(length[0])<<8|int(length[1]))
			if _, err := there.Read(query); err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(query) != nil {
				return
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}, Body: &dnsmessage.AResource{A: z.next().As4()}}}
			}
			answer, err := m.Pack()
			if err != nil {
				return
			}
			if _, err := there.Write(append([]byte{byte(len(answer) >> 8), byte(len(answer))}, answer...)); err != nil {
				return
			}
		}
	}()
	return here, nil
}

// TestNameThatResolvesDifferentlyTheSecondTimeIsRefused: a check of the name before the connection
// would have seen only the public address.
func TestNameThatResolvesDifferentlyTheSecondTimeIsRefused(t *testing.T) {
	private := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a private address was reached") })
	_, port, _ := net.SplitHostPort(private.Listener.Addr().String())
	z := &zone{addresses: []netip.Addr{netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("127.0.0.1")}}
	var passed []string
	d := dialer()
	guard := d.Control
	d.Resolver = &net.Resolver{PreferGo: true, Dial: z.dial}
	d.Control = func(network, address string, c syscall.RawConn) error {
		if err := guard(network, address, c); err != nil {
			return err
		}
		passed = append(passed, address)
		return errors.New("a test does not leave the machine")
	}
	f := newFetcher(limits(), d)
	url := "http://rebind.example:" + port + "/secret"
	refused(t, f, url, "cannot be reached")
	refused(t, f, url, "not public")
	if len(passed) != 1 || passed[0] != "93.184.215.14:"+port {
		t.Errorf("the guard let %v through", passed)
	}
}

func TestOnlyPublicAddressesAreConnectedTo(t *testing.T) {
	for address, want := range map[string]bool{
		"93.184.215.14": true, "8.8.8.8": true, "2606:2800:21f:cb07:6820:80da:af6b:8b2c": true, "::ffff:8.8.8.8": true,
		"127.0.0.1": false, "127.8.9.1": false, "::1": false, "0.0.0.0": false, "::": false, "0.1.2.3": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.0.1": false,
		"169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fd00:ec2::254": false, "100.100.100.200": false, "168.63.129.16": false,
		"192.0.0.192": false, "198.18.0.1": false, "224.0.0.1": false, "ff02::1": false, "240.0.0.1": false, "255.255.255.255": false, "fec0::1": false,
		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::7f00:1": false, "64:ff9b::7f00:1": false, "64:ff9b:1::1": false, "2002:7f00:1::": false, "2001:0:1::": false, "2001:db8::1": false,
		"::ffff:0:7f00:1": false, "2001:2::1": false, "2001:10::1": false, "2001:20::1": false, "3fff::1": false, "5f00::1": false,
	} {
		if got := public(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is public: %t", address, got)
		}
	}
}

func TestLimitsAreChecked(t *testing.T) {
	for flag, change := range map[string]func(*Limits){
		"--max-images":    func(l *Limits) { l.Count = -1 },
		"--image-bytes":   func(l *Limits) { l.Bytes = MaxBytes + 1 },
		"--image-timeout": func(l *Limits) { l.Timeout = 0 },
		"--image-urls":    func(l *Limits) { l.URLs = "ftp" },
	} {
		l := limits(change)
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	l, off := limits(), Limits{}
	if err := errors.Join(l.Validate(), off.Validate()); err != nil {
		t.Error(err)
	}
}

func TestRequestsFitIntoAMessageWithTheirImages(t *testing.T) {
	if err := CheckSize("a", maxRequest); err != nil {
		t.Error(err)
	}
	if err := streamerr.As(CheckSize("a", maxRequest+1)); err.Param != "a" || err.Reason != streamerr.Invalid {
		t.Error(err)
	}
}

func TestPortsAreThoseOfTheScheme(t *testing.T) {
	f := New(limits(func(l *Limits) { l.AnyPort = false }))
	refused(t, f, "https://example.org:6443/secret", "--image-any-port")
	refused(t, f, "https://example.org:80/secret", "--image-any-port")
	refused(t, f, "http://127.0.0.1:80/secret", "not public")
	refused(t, f, "https://127.0.0.1:443/secret", "not public")
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://example.org:6379/secret", http.StatusFound)
	})
	redirected := near(limits(), s)
	redirected.limits.AnyPort = false
	_, err := redirected.fetch(t.Context(), new(FromURL("a", s.URL)), 1000)
	if err == nil || !strings.Contains(err.Error(), "redirected to a port") {
		t.Error(err)
	}
}

// TestTenantsHaveAShareOfThePlaces: a tenant whose servers do not answer leaves places for others,
// and its requests are refused as OVERLOADED rather than INVALID.
func TestTenantsHaveAShareOfThePlaces(t *testing.T) {
	asked := make(chan struct{}, maxOwned)
	slow := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	quick := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(png) })
	f := near(limits(func(l *Limits) { l.Timeout = time.Hour }), slow, quick)
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range maxOwned {
		all.Go(func() { _ = f.Fill(ctx, "slow", []Source{FromURL("a", slow.URL)}) })
	}
	for range maxOwned {
		<-asked
	}
	if err := f.Fill(t.Context(), "quick", []Source{FromURL("a", quick.URL)}); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	if err := f.Fill(t.Context(), "slow", []Source{FromBase64("a", base64.StdEncoding.EncodeToString(png))}); err != nil {
		t.Errorf("an image that is not fetched: %v", err)
	}
	hurried := *f
	hurried.limits.Timeout = 20 * time.Millisecond
	err := hurried.Fill(t.Context(), "slow", []Source{FromURL("a", quick.URL)})
	if e := streamerr.As(err); err == nil || e.Reason != streamerr.Overloaded || e.RetryAfter == 0 {
		t.Errorf("the same tenant: %v", err)
	}
	leave()
	all.Wait()
	if len(f.places.owned) != 0 || len(f.places.all) != 0 {
		t.Errorf("places are not given back: %v", f.places.owned)
	}
}
