package e2e

import (
	"net/http"
	"reflect"
	"testing"

	"github.com/whence-dev/whence/internal/client"
)

// caller returns a Go client of a service.
func caller(t *testing.T, url string, o client.Options) *client.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	o.HTTP = &http.Client{Transport: transport}
	c, err := client.New(url, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// storyOf creates a stream with the long story.
func storyOf(t *testing.T, c *client.Client, leave string) *client.Stream {
	t.Helper()
	s, err := c.Stream(t.Context(), client.Request{Model: model, Messages: []client.Message{{Role: "user", Content: long}}, Temperature: new(0.0), Leave: leave})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// completedText returns the text of a stream that must complete.
func completedText(t *testing.T, s *client.Stream) string {
	t.Helper()
	text, err := s.Text(t.Context())
	if err != nil || s.Ending() == nil || s.Ending().Reason != client.Completed {
		t.Errorf("%v after %q", err, text)
	}
	return text
}

func TestGoClientResumesWhereItWasCut(t *testing.T) {
	eachTopology(t, flags{worker: []string{"--pace", "60"}}, func(t *testing.T, w *whence) {
		direct := caller(t, w.url(""), client.Options{})
		undisturbed := storyOf(t, direct, "")
		whole := completedText(t, undisturbed)
		proxy := cutting(t, w.api, cuts, 3)
		s := storyOf(t, caller(t, "http://"+proxy.Addr(), client.Options{}), "")
		if text := completedText(t, s); text != whole || !reflect.DeepEqual(s.Ending(), undisturbed.Ending()) {
			t.Errorf("%q, %+v\nundisturbed %q, %+v", text, s.Ending(), whole, undisturbed.Ending())
		}
		if left := proxy.Uncut(); left > 0 {
			t.Errorf("%d of %d connections were not cut", left, cuts)
		}
		late := direct.Resume(s.ID(), s.Cursor())
		if text := completedText(t, late); text != "" || !reflect.DeepEqual(late.Ending(), s.Ending()) {
			t.Errorf("%q, %+v", text, late.Ending())
		}
		w.idle(t)
	})
}
