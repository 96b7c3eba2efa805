package image

import (
	"strings"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestImagesOfAConversationAreCountedTogether(t *testing.T) {
	off, few, small := Limits{}, limits(), limits(func(l *Limits) { l.Bytes = int64(2*len(png)) - 1 })
	for name, test := range map[string]struct {
		limits  Limits
		allowed int
		says    string
	}{
		"images are off":  {off, 0, "--max-images"},
		"too many images": {few, 2, "too many images: at most 2"},
		"too many bytes":  {small, 1, "bytes together"},
	} {
		c := New(test.limits).Checker()
		for range test.allowed {
			if err := c.Check("a", &llmv1.Image{Data: png}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		wantRefusal(t, name, c.Check("b", &llmv1.Image{Data: png}), test.says)
	}
}

func TestBytesDecideTheTypeOfASentImage(t *testing.T) {
	for claim, data := range map[string][]byte{"image/gif": png, "text/html": gif, "": png} {
		image, want := &llmv1.Image{Data: data, MediaType: claim}, "image/png"
		if string(data) == string(gif) {
			want = "image/gif"
		}
		if err := New(limits()).Checker().Check("a", image); err != nil || image.GetMediaType() != want {
			t.Errorf("%q has become %q, %v; want %s", claim, image.GetMediaType(), err, want)
		}
	}
}

func TestBadImagesThatAreSentAsBytesAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		image *llmv1.Image
		says  string
	}{
		"huge PNG":  {&llmv1.Image{Data: sized(1<<20, 1<<20), MediaType: "image/png"}, "1048576 x 1048576 pixels"},
		"no image":  {&llmv1.Image{Data: []byte("<html>"), MediaType: "image/png"}, "not an image"},
		"no data":   {&llmv1.Image{MediaType: "image/png"}, "not an image"},
		"no object": {nil, "not an image"},
	} {
		wantRefusal(t, name, New(limits()).Checker().Check("b", test.image), test.says)
	}
}

// wantRefusal checks an INVALID error that names the field b.
func wantRefusal(t *testing.T, name string, err error, says string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: not refused", name)
	} else if e := streamerr.As(err); e.Reason != streamerr.Invalid || e.Param != "b" || !strings.Contains(e.Message, says) {
		t.Errorf("%s: %v, want %q", name, err, says)
	}
}
