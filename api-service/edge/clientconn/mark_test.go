package clientconn

import (
	"testing"
	"testing/synctest"

	"github.com/whence-dev/whence/api-service/extent"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestExtentIsWhatTheClientHasTaken: the client takes only the first piece of a long write.
func TestExtentIsWhatTheClientHasTaken(t *testing.T) {
	startServerDate()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		client := take(f, func(*streamerr.Error) {})
		want := func(want extent.Extent) {
			t.Helper()
			if got := client.Extent(); got != want {
				t.Errorf("the client has %s, want %s", got, want)
			}
		}
		send := func(size int, m Mark) {
			t.Helper()
			if _, err := client.WriteMarked(make([]byte, size), 1, m); err != nil {
				t.Error(err)
			}
		}
		want(extent.Nothing)
		send(10, Mark{Extent: extent.Part, At: 10})
		want(extent.Part)

		f.takes = piece // and the client reads no further
		send(piece+10, Mark{Extent: extent.Answer, At: piece, Last: true})
		go client.Flush() // fails
		synctest.Wait()
		want(extent.Answer)
		client.Kill()
		synctest.Wait()
		want(extent.Answer)
		client.GiveBack()
	})
}

func TestExtentOfAClientWithTheTerminator(t *testing.T) {
	startServerDate()
	synctest.Test(t, func(t *testing.T) {
		client := take(newFake(0), func(*streamerr.Error) {})
		if _, err := client.WriteMarked([]byte("all"), 1, Mark{Extent: extent.Answer, At: 2, Last: true}); err != nil {
			t.Error(err)
		}
		if err := client.Flush(); err != nil {
			t.Error(err)
		}
		if got := client.Extent(); got != streamv1.Extent_EXTENT_UNSPECIFIED {
			t.Errorf("the extent is %s although the client has taken the terminator", got)
		}
		client.NextAnswer()
		if got := client.Extent(); got != extent.Nothing {
			t.Errorf("the client has %s of the next answer", got)
		}
		client.GiveBack()
	})
}
