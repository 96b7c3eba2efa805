package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/client"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestClientReadsTheErrorsOfTheService: the client has an error type of its own, which must say the
// same as the error that the service has written, for every reason.
func TestClientReadsTheErrorsOfTheService(t *testing.T) {
	names := []client.Reason{
		client.Completed, client.ClientGone, client.UserStop, client.OperatorStop, client.SlowReader, client.Deadline, client.Draining,
		client.PeerReset, client.PeerLost, client.Overloaded, client.Unavailable, client.Invalid, client.NotFound, client.Unauthenticated,
		client.Forbidden, client.EngineFailed, client.Internal,
	}
	for number := range streamv1.Reason_name {
		reason := streamerr.Reason(number)
		if reason == streamerr.Unspecified {
			continue
		}
		if !slices.Contains(names, client.Reason(reason.String())) {
			t.Errorf("package client does not name the reason %s", reason)
			continue
		}
		sent := &streamerr.Error{Reason: reason, Path: streamerr.NewPath("llm-worker/0", "api-service"), Message: "why", Param: "p", Code: "c"}
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusGone) // the stream has ended
			_, _ = w.Write(sent.JSON())
		}))
		c, err := client.New(s.URL, client.Options{HTTP: s.Client()})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Resume("x", client.Cursor{}).Text(t.Context())
		s.Close()
		got, ok := errors.AsType[*client.Error](err)
		want := &client.Error{Reason: client.Reason(reason.String()), Path: client.Path(sent.Path), Message: "why", Param: "p", Code: "c"}
		if !ok || !reflect.DeepEqual(got, want) || got.Error() != sent.Error() {
			t.Errorf("the service sent %v, the client has %v", sent, err)
		}
	}
}
