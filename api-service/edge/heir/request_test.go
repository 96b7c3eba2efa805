package heir_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/edge/heir"
	"github.com/whence-dev/whence/api-service/leave"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func asked() *call.Call {
	return &call.Call{Timeout: 90 * time.Second, Request: &chatv1.ChatRequest{
		StreamId: "s", Model: "m", N: 2, Messages: []*chatv1.Message{{Content: "line\nline"}}, Claim: &llmv1.Claim{Owner: "o"},
	}}
}

func TestRequestIsRead(t *testing.T) {
	in := asked()
	trace := streamtrace.ParseParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b")
	var h replay.Head
	heir.Bequeath(&h, in, leave.Policy{Kind: leave.Linger, For: time.Minute}, trace, 1<<20)
	r, err := heir.Decode(h.Form, h.Request)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(r.Chat, in.Request) || !r.Chat.GetTellIds() || r.Policy.String() != "linger:1m0s" || r.Timeout != in.Timeout || !r.Trace.Valid() {
		t.Errorf("%+v", r)
	}
	if c := r.Call(); !c.Stream || !c.NamesChoices() || c.Timeout != in.Timeout || c.Param("stop") != "stop" {
		t.Errorf("%+v", c)
	}
}

func TestRequestThatIsTooLargeIsNotKept(t *testing.T) {
	for _, maxBytes := range []int{0, 10} {
		in, h := asked(), replay.Head{}
		heir.Bequeath(&h, in, leave.Policy{}, streamtrace.Parent{}, maxBytes)
		if h.Form != "" || h.Request != "" || in.Request.GetTellIds() {
			t.Errorf("with at most %d bytes the head is %+v", maxBytes, h)
		}
	}
}

func TestRequestThatCannotBeReadIsRefused(t *testing.T) {
	var h replay.Head
	heir.Bequeath(&h, asked(), leave.Policy{}, streamtrace.Parent{}, 1<<20)
	line, _, _ := strings.Cut(h.Request, "\n")
	for name, c := range map[string][2]string{
		"another form": {"chat/2", h.Request}, "no line": {h.Form, line}, "no JSON": {h.Form, "x\n"}, "no message": {h.Form, line + "\n\xff"},
	} {
		if _, err := heir.Decode(c[0], c[1]); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}
