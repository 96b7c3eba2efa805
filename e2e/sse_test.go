package e2e

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/whence-dev/whence/lab"
)

// stream requests a stream and returns all of its bytes.
func (w *whence) stream(t *testing.T, a ask, id string) reply {
	t.Helper()
	a["stream"] = true
	resp, err := w.send(t, a, id)
	if err != nil {
		t.Fatal(err)
	}
	r := readAll(t, resp)
	if r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	return r
}

// events returns the data of a stream's events, which have nothing else.
func events(t *testing.T, body []byte) (all []string) {
	t.Helper()
	for e := lab.NewEvents(bytes.NewReader(body)); ; {
		one, err := e.Next()
		switch {
		case errors.Is(err, io.EOF) && len(all) > 0:
			return all
		case err != nil, one.Comment != "", one.ID != "", one.Name != "":
			t.Fatalf("after %d events: %+v, %v", len(all), one, err)
		}
		all = append(all, one.Data)
	}
}

func TestRequestIDsAreEchoedOrGenerated(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		minted := regexp.MustCompile(`^str-[a-z0-9]{26}$`)
		seen := map[string]bool{}
		for _, last := range []string{"1", "2"} { // last character of the id; also decides whether the answer is streamed
			for given, echoed := range map[string]bool{
				"": false, "mine-" + last: true, "A-Z_a.z:09-" + last: true, strings.Repeat("x", 127) + last: true,
				strings.Repeat("x", 128) + last: false, "no spaces": false, "ümlaut": false, `a"b`: false,
			} {
				resp, err := w.send(t, greedy("What is 2 + 3?", "stream", last == "2"), given)
				if err != nil {
					t.Fatal(err)
				}
				r := readAll(t, resp)
				id := r.header.Get(idName)
				switch {
				case r.status != http.StatusOK:
					t.Errorf("%q: status %d: %s", given, r.status, r.body)
				case echoed && id != given:
					t.Errorf("%q became %q", given, id)
				case !echoed && (!minted.MatchString(id) || seen[id]):
					t.Errorf("for %q the id %q was generated", given, id)
				case !bytes.Contains(r.body, []byte(`"id":"chatcmpl-`+id+`"`)):
					t.Errorf("%s is not the id of %s", id, r.body)
				}
				seen[id] = true
			}
		}
	})
}
