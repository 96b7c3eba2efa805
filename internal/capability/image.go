package capability

import (
	"fmt"
	"slices"
	"strings"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// CheckImages refuses a request with images that an engine would not pass to its model. engine is
// the engine's make. An engine that reports no capabilities accepts no images. The messages avoid
// the name of the field, because api-service replaces that name with its name in the body.
func CheckImages(engine string, can *llmv1.Capabilities, req *workerv1.TokenRequest) error {
	if len(req.GetImages()) == 0 {
		return nil
	}
	switch {
	case can.GetImages() == llmv1.ImageInput_IMAGE_INPUT_UNSPECIFIED:
		return streamerr.InvalidParam("images", "the request has an image, and the engine (%s) takes none", engine).WithCode(streamerr.CodeUnsupportedField)
	case Renders(can) && req.GetConversation() == "":
		return streamerr.InvalidParam("images", "the engine (%s) takes an image only within a conversation, and the request has a prompt", engine).WithCode(streamerr.CodeUnsupportedField)
	case Renders(can) && req.GetGenerated() > 0:
		return streamerr.InvalidParam("generated", "the engine (%s) renders conversations with images itself, so it cannot continue an answer that another engine began", engine)
	}
	for i, image := range req.GetImages() {
		if len(image.GetData()) == 0 || !slices.Contains(mediaTypes, image.GetMediaType()) {
			at := fmt.Sprintf("images[%d]", i)
			return streamerr.InvalidParam(at, "%s has no data, or a media type that is not one of %s", at, strings.Join(mediaTypes, ", "))
		}
	}
	return nil
}

// mediaTypes are the media types of whence.llm.v1.Image.
var mediaTypes = []string{"image/png", "image/jpeg", "image/webp", "image/gif"}

// Renders reports whether an engine renders conversations with images itself.
func Renders(can *llmv1.Capabilities) bool {
	return can.GetImages() == llmv1.ImageInput_IMAGE_INPUT_CONVERSATION
}
