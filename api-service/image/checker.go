package image

import llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"

// A Checker checks the images that a client sends as bytes in one conversation. The limits of its
// Fetcher are for all images of the conversation together, because the request for every answer has
// the whole conversation. A Checker is not safe for concurrent use.
type Checker struct {
	fetcher *Fetcher
	count   int
	bytes   int64
}

// Checker returns a checker for a new conversation.
func (f *Fetcher) Checker() *Checker { return &Checker{fetcher: f} }

// Check refuses the conversation's next image if the image exceeds a limit or has no valid header.
// param is the field of the image. Check sets the media type by the bytes; what the client claims
// has no effect.
func (c *Checker) Check(param string, image *llmv1.Image) error {
	if err := c.fetcher.countAfter(c.count, param); err != nil {
		return err
	}
	data := image.GetData()
	if int64(len(data)) > c.fetcher.limits.Bytes-c.bytes {
		return c.fetcher.tooLarge(param)
	}
	kind, err := checkData(param, data)
	if err != nil {
		return err
	}
	image.MediaType = kind
	c.count++
	c.bytes += int64(len(data))
	return nil
}
