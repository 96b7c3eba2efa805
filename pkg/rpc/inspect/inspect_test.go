package inspect_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/inspect"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// list serves h and returns its List method, over a client with grpc-go's default limits.
func list(t *testing.T, h *rpc.Hop) func(*streamv1.ListRequest) (*streamv1.ListResponse, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	inspect.Register(s, h, nil)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) })
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close(); s.Stop(); serving.Wait() })
	return func(req *streamv1.ListRequest) (*streamv1.ListResponse, error) {
		return streamv1.NewStreamsClient(cc).List(t.Context(), req)
	}
}

// pages reads all pages, and returns the ids in order and the number of pages.
func pages(t *testing.T, next func(*streamv1.ListRequest) (*streamv1.ListResponse, error), size uint32) (ids []string, n int) {
	t.Helper()
	req := &streamv1.ListRequest{PageSize: size}
	for {
		resp, err := next(req)
		if err != nil {
			t.Fatal(err)
		}
		if got := proto.Size(resp); got > 3<<20 {
			t.Fatalf("a page has %d bytes", got)
		}
		for _, r := range resp.GetStreams() {
			ids = append(ids, r.GetStreamId())
		}
		n++
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			return ids, n
		}
	}
}

func TestListOfManyStreamsIsPaged(t *testing.T) {
	const all = 20_000
	h := &rpc.Hop{Name: "hop", Observer: &ledger.Ledger{}}
	for i := range all {
		ledger.At(h).Open(fmt.Sprintf("stream-%05d-%s", i, strings.Repeat("x", 60)), h.Name, "127.0.0.1:12345")
	}
	next := list(t, h)
	for size, want := range map[uint32]int{2000: 10, 20_000: 2} {
		ids, n := pages(t, next, size)
		if n != want {
			t.Errorf("page size %d: %d pages, want %d", size, n, want)
		}
		seen := make(map[string]bool, len(ids))
		for _, id := range ids {
			seen[id] = true
		}
		if len(ids) != all || len(seen) != all {
			t.Errorf("page size %d: the pages list %d streams, %d distinct; want %d", size, len(ids), len(seen), all)
		}
	}
}

func TestPageIsBoundedByBytes(t *testing.T) {
	const all = 2000
	h := &rpc.Hop{Name: "hop", Observer: &ledger.Ledger{}}
	for i := range all {
		r := ledger.At(h).Open(fmt.Sprint("stream-", i), h.Name, "")
		r.Stopping(&streamerr.Error{Reason: streamerr.UserStop, Message: strings.Repeat("x", 2000)})
	}
	if ids, n := pages(t, list(t, h), all); len(ids) != all || n < 2 {
		t.Errorf("%d streams on %d pages", len(ids), n)
	}
}

func TestWrongPageTokenIsRefused(t *testing.T) {
	next := list(t, &rpc.Hop{Name: "hop", Observer: &ledger.Ledger{}})
	for _, token := range []string{"x", ".", "12345", "!.id", "-.id"} {
		_, err := next(&streamv1.ListRequest{PageToken: token})
		if e := streamerr.FromGRPC("", err); e == nil || e.Reason != streamerr.Invalid || e.Param != "page_token" {
			t.Errorf("%q: %v", token, err)
		}
	}
	if resp, err := next(&streamv1.ListRequest{}); err != nil || len(resp.GetStreams()) != 0 || resp.GetNextPageToken() != "" {
		t.Errorf("an empty list is %v, %v", resp, err)
	}
}
