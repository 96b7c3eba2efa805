package strict_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestUnknownMembersAreLeftOutOrRefused(t *testing.T) {
	fields := map[string]json.RawMessage{"type": []byte("1"), "zeta": []byte("1"), "beta": []byte("{}"), "nothing": []byte("null")}
	in := &strict.Reading{}
	for _, at := range []string{"p[0]", "p[17]"} {
		if err := in.Only(at, fields, "type"); err != nil {
			t.Error(err)
		}
	}
	if got := in.Left(); !slices.Equal(got, []string{"p[].beta", "p[].zeta"}) {
		t.Error(got)
	}
	refusing := &strict.Reading{Strict: true}
	if err := refusing.Only("p", fields, "type"); streamerr.As(err).Param != "p.beta" {
		t.Error(err)
	}
	if err := refusing.Only("p", fields, "type", "zeta", "beta"); err != nil {
		t.Error(err)
	}
}

func TestTableDecidesWhatIsLeftOut(t *testing.T) {
	table := strict.Table[*int]{
		Honoured: map[string]strict.Setter[*int]{"a": func(to *int, _ string, _ json.RawMessage) error { *to++; return nil }},
		Ignored:  []string{"i"}, Unsupported: []string{"u"}, Refused: map[string]string{"r": "changes the answer"},
	}
	for body, want := range map[string]struct{ left, refused, refusedStrictly string }{
		`{"a":1}`: {}, `{"a":null,"i":null,"u":null,"r":null,"x":null}`: {}, `{"i":"","u":{ },"r":[]}`: {}, `{"u":false,"r":0}`: {},
		`{"i":1}`: {left: "i"}, `{"u":[1]}`: {left: "u", refusedStrictly: "u"}, `{"x":0}`: {left: "x", refusedStrictly: "x"},
		`{"r":"y"}`: {refused: "r", refusedStrictly: "r"},
	} {
		fields, err := strict.Fields([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		for in, refused := range map[*strict.Reading]string{{}: want.refused, {Strict: true}: want.refusedStrictly} {
			err := table.Parse(fields, new(int), in)
			switch {
			case (err != nil) != (refused != "") || err != nil && streamerr.As(err).Param != refused:
				t.Errorf("%s, strict %t: %v, want %q", body, in.Strict, err, refused)
			case err == nil && in.Header() != want.left:
				t.Errorf("%s: left out are %q, want %q", body, in.Header(), want.left)
			}
		}
	}
}

func TestHeaderIsBounded(t *testing.T) {
	in := &strict.Reading{}
	for i := range 5000 {
		if err := in.Unknown(fmt.Sprintf("%04d%s", i, strings.Repeat("x", 30))); err != nil {
			t.Fatal(err)
		}
	}
	header := in.Header()
	if len(header) > 1<<10+20 || !strings.HasSuffix(header, ", +972") {
		t.Errorf("%d bytes: …%s", len(header), header[len(header)-40:])
	}
	if in.Label("0000"+strings.Repeat("x", 30)) != "other" {
		t.Error("the label of a metric is a client's name")
	}
}
