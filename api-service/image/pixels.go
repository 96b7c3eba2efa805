package image

import (
	"bytes"
	"encoding/binary"
	"image"
	_ "image/gif"  // for image.DecodeConfig
	_ "image/jpeg" // likewise
	_ "image/png"  // likewise

	"github.com/whence-dev/whence/pkg/streamerr"
)

// MaxPixels bounds the pixels of an image. Engines decode an image before they scale it down, so an
// image of few bytes may take gigabytes of their memory.
const MaxPixels = 50_000_000

// checkPixels refuses an image with too many pixels, by its header.
func checkPixels(param, mediaType string, data []byte) error {
	var width, height int64
	if mediaType == "image/webp" {
		width, height = webp(data)
	} else if c, _, err := image.DecodeConfig(bytes.NewReader(data)); err == nil {
		width, height = int64(c.Width), int64(c.Height)
	}
	switch {
	case width <= 0 || height <= 0:
		return streamerr.InvalidParam(param, "%s has a header without valid dimensions", param)
	case width > MaxPixels/height:
		return streamerr.InvalidParam(param, "%s has %d x %d pixels; at most %d pixels are allowed", param, width, height, MaxPixels)
	default:
		return nil
	}
}

// webp returns the dimensions of a WebP image, or 0 if its header is not valid. It reads the header
// of the container and of the first chunk: VP8 (lossy), VP8L (lossless) or VP8X (extended).
func webp(data []byte) (width, height int64) {
	const header = 20 // RIFF, size, WEBP, name and size of the first chunk
	if len(data) < header+10 {
		return 0, 0
	}
	chunk := data[header:]
	switch string(data[12:16]) {
	case "VP8 ":
		if string(chunk[3:6]) != "\x9d\x01\x2a" {
			return 0, 0
		}
		return int64(binary.LittleEndian.Uint16(chunk[6:]) & 0x3fff), int64(binary.LittleEndian.Uint16(chunk[8:]) & 0x3fff)
	case "VP8L":
		if chunk[0] != 0x2f {
			return 0, 0
		}
		bits := binary.LittleEndian.Uint32(chunk[1:])
		return int64(bits&0x3fff) + 1, int64(bits>>14&0x3fff) + 1
	case "VP8X":
		return 1 + int64(chunk[4]) + int64(chunk[5])<<8 + int64(chunk[6])<<16, 1 + int64(chunk[7]) + int64(chunk[8])<<8 + int64(chunk[9])<<16
	default:
		return 0, 0
	}
}
