package beside

import (
	"encoding/base64"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// DataURLs returns images as servers take them in JSON. Servers never get the address of an image:
// api-service has fetched it, within its limits.
func DataURLs(images []*llmv1.Image) []string {
	urls := make([]string, len(images))
	for i, image := range images {
		urls[i] = "data:" + image.GetMediaType() + ";base64," + base64.StdEncoding.EncodeToString(image.GetData())
	}
	return urls
}
