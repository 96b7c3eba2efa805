package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestErrorObjectsAreParsed(t *testing.T) {
	for name, test := range map[string]struct {
		in   string
		want *Error
	}{
		"whole": {
			`{"error":{"message":"m","type":"t","param":"p","code":"c","whence":{"reason":"peer_lost","origin":"a","path":["a","b"]}}}`,
			&Error{Reason: PeerLost, Path: Path{"a", "b"}, Message: "m", Param: "p", Code: "c"},
		},
		"another server's":     {`{"error":{"message":"m","param":null,"code":429}}`, &Error{Message: "m"}},
		"a later reason":       {`{"error":{"message":"m","whence":{"reason":"solar_flare"}}}`, &Error{Reason: "solar_flare", Message: "m"}},
		"a hop with an escape": {`{"error":{"message":"m","whence":{"path":["a\u001b[2J"," > ","é"]}}}`, &Error{Path: Path{"a[2J"}, Message: "m"}},
		"no message":           {`{"error":{"code":"c"}}`, nil},
		"text":                 {`{"error":"tea"}`, nil},
		"nothing":              {``, nil},
	} {
		got, ok := parseError([]byte(test.in))
		if ok != (test.want != nil) || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", test.want) {
			t.Errorf("%s: %#v, want %#v", name, got, test.want)
		}
	}
}

func TestPathsAreBounded(t *testing.T) {
	p := newPath(append([]string{strings.Repeat("x", 1000)}, make([]string, 100)...)...)
	if len(p) != 1 || len(p.Origin()) != maxName || Path(nil).Origin() != "" {
		t.Error(len(p), len(p.Origin()))
	}
	hops := make([]string, 100)
	for i := range hops {
		hops[i] = strconv.Itoa(i)
	}
	if p := newPath(hops...); len(p) != maxHops || p.Origin() != "0" {
		t.Error(p)
	}
}

func TestErrorsReadWellAndUnwrap(t *testing.T) {
	e := &Error{Reason: PeerLost, Path: Path{"a", "b"}, Cause: io.EOF}
	if e.Error() != "peer lost: EOF [a > b]" || !errors.Is(e, PeerLost) || !errors.Is(e, io.EOF) || errors.Is(e, Deadline) {
		t.Error(e)
	}
	if e := (&Error{Reason: NotFound}); e.Error() != "not found" {
		t.Error(e)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	if e := asError(ctx.Err()); e.Reason != Deadline {
		t.Error(e)
	}
	if e := asError(io.EOF); e.Reason != Internal || !errors.Is(e, io.EOF) {
		t.Error(e)
	}
	if e := asError(fmt.Errorf("reading: %w", e)); e.Reason != PeerLost {
		t.Error(e)
	}
}
