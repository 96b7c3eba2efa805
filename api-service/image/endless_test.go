package image

import (
	"net/http/httptest"
	"testing"

	"github.com/whence-dev/whence/internal/endlesstest"
)

// TestEndlessAnswersOfImageServersAreBounded: they cost no more than the limits allow, and the
// client is told nothing of the answer.
func TestEndlessAnswersOfImageServersAreBounded(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	for name, answer := range endlesstest.Answers {
		s := httptest.NewServer(answer)
		f := near(limits(), s)
		if got := endlesstest.Allocated(t, func() {
			if _, err := f.fetch(t.Context(), new(FromURL("a", s.URL)), 1000); err == nil {
				t.Errorf("%s: the image is fetched", name)
			}
		}); got > 8<<20 {
			t.Errorf("%s: the fetch allocated %d bytes", name, got)
		}
		s.Close()
	}
}
