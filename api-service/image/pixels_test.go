package image

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/jpeg"
	"slices"
	"strings"
	"testing"
)

// sized returns the header of a PNG with these dimensions.
func sized(width, height uint32) []byte {
	b := slices.Clone(png)
	binary.BigEndian.PutUint32(b[16:], width)
	binary.BigEndian.PutUint32(b[20:], height)
	binary.BigEndian.PutUint32(b[29:], crc32.ChecksumIEEE(b[12:29]))
	return b
}

func TestPixelsAreBounded(t *testing.T) {
	webp := func(chunk, data string) []byte {
		return []byte("RIFF\x00\x00\x00\x00WEBP" + chunk + "\x0a\x00\x00\x00" + data)
	}
	var photo bytes.Buffer
	if err := jpeg.Encode(&photo, image.NewGray(image.Rect(0, 0, 3, 2)), nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		data []byte
		want string // "" for an accepted image
	}{
		"PNG":              {png, ""},
		"large PNG":        {sized(50_000, 1000), ""},
		"too large PNG":    {sized(50_000, 1001), "50000 x 1001 pixels; at most 50000000"},
		"huge PNG":         {sized(1<<20, 1<<20), "1048576 x 1048576"},
		"PNG of nothing":   {sized(0, 0), "dimensions"},
		"part of a PNG":    {png[:20], "dimensions"},
		"GIF":              {gif, ""},
		"too large GIF":    {[]byte("GIF89a\xff\xff\xff\xff\x00\x00\x00"), "65535 x 65535"},
		"JPEG":             {photo.Bytes(), ""},
		"part of a JPEG":   {photo.Bytes()[:20], "dimensions"},
		"lossy WebP":       {webp("VP8 ", "\x00\x00\x00\x9d\x01\x2a\x10\x00\x20\x00"), ""},
		"large lossy WebP": {webp("VP8 ", "\x00\x00\x00\x9d\x01\x2a\xff\x3f\xff\x3f"), "16383 x 16383"},
		"lossless WebP":    {webp("VP8L", "\x2f\xff\xff\xff\x0f\x00\x00\x00\x00\x00"), "16384 x 16384"},
		"extended WebP":    {webp("VP8X", "\x00\x00\x00\x00\xff\xff\x00\xff\xff\x00"), "65536 x 65536"},
		"unknown WebP":     {webp("VP9 ", "\x00\x00\x00\x00\xff\xff\x00\xff\xff\x00"), "dimensions"},
		"part of a WebP":   {webp("VP8L", "\x2f"), "dimensions"},
	} {
		_, err := checkData("a", c.data)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
