package image

import (
	"encoding/base64"
	"testing"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// FuzzData: the data of an image is accepted or refused as INVALID.
func FuzzData(f *testing.F) {
	f.Add([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"))
	f.Add([]byte("RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte("GIF89a\x01\x00\x01\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := checkData("image", data)
		if err != nil && streamerr.As(err).Reason != streamerr.Invalid {
			t.Error(err)
		}
		source := FromURL("image", "data:;base64,"+base64.StdEncoding.EncodeToString(data))
		again, err := New(Limits{Count: 1, Bytes: 1 << 20}).get(t.Context(), &source, 1<<20)
		if err != nil || string(again) != string(data) {
			t.Errorf("%q has become %q, %v", data, again, err)
		}
	})
}
