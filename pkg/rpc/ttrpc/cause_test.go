package ttrpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/whence-dev/whence/pkg/rpc/ttrpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An exception is an error with the text and the code of a ttstream.Exception.
type exception struct {
	code int32
	path string // the names of services, separated by " -> "
	text string
}

func (e exception) Error() string {
	path := ""
	if e.path != "" {
		path = "[canceled path: " + e.path + "] "
	}
	return fmt.Sprintf("[ttstream error, code=%d] [server-side stream] %s%s", e.code, path, e.text)
}

func (e exception) TypeId() int32 { return e.code } //nolint:revive // Kitex's name

func TestCodesOfCancels(t *testing.T) {
	for _, test := range []struct {
		exception
		reason streamerr.Reason
		path   string
	}{
		{exception{12007, "shop -> exchange", "user code"}, streamerr.PeerReset, "shop > exchange"},
		{exception{12008, "shop", "enough"}, streamerr.UserStop, "shop"},
		{exception{12011, "exchange", "OVERLOADED: full [leaf > shop]"}, streamerr.Overloaded, "leaf > shop > exchange"},
		{exception{12011, "non-ttstream path -> exchange", "CLIENT_GONE: left [user]"}, streamerr.ClientGone, "user > exchange"},
		{exception{12011, "exchange", "COMPLETED: no cancel"}, streamerr.UserStop, "exchange"},
		{exception{12011, "exchange", "lower: case"}, streamerr.UserStop, "exchange"},
		{exception{12004, "", "EOF"}, streamerr.PeerLost, ""},
		{exception{12006, "", "transport is closing"}, streamerr.PeerLost, ""},
		{exception{12013, "", "canceled by connection closed"}, streamerr.PeerLost, ""},
		{exception{12013, "", "connection write timeout"}, streamerr.SlowReader, ""},
		{exception{12013, "", "ttrpc: " + "too large"}, streamerr.Invalid, ""},
		{exception{12014, "", "stream Recv timeout"}, streamerr.Deadline, ""},
		{exception{12015, "shop", "stream timeout"}, streamerr.Deadline, "shop"},
		{exception{12099, "shop", "new"}, streamerr.PeerReset, "shop"},
	} {
		if e := ttrpc.Canceled(fmt.Errorf("wrapped: %w", test.exception)); e == nil || e.Reason != test.reason || e.Path.String() != test.path {
			t.Errorf("%v: %v, not %s [%s]", test.exception, e, test.reason, test.path)
		}
	}
	if e := ttrpc.Canceled(context.Canceled); e != nil {
		t.Errorf("an error without a code is %v", e)
	}
}

// TestCauseSurvivesAsText: Canceled parses the text of Error.
func TestCauseSurvivesAsText(t *testing.T) {
	sent := &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("user", "shop"), Message: "the tab [1] was closed"}
	err := ttrpc.CauseError(sent, sent)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, streamerr.ClientGone) {
		t.Errorf("%v does not wrap the cause and context.Canceled", err)
	}
	got := ttrpc.Canceled(exception{12011, "exchange", err.Error()})
	if got.Reason != sent.Reason || got.Message != sent.Message || got.Path.String() != "user > shop > exchange" {
		t.Errorf("%v became %v", sent, got)
	}
}

func TestAContextWithACause(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	with := ttrpc.WithCause(ctx)
	if with.Err() != nil {
		t.Error(with.Err())
	}
	cancel(errors.New("enough"))
	if err := with.Err(); !strings.HasPrefix(err.Error(), "USER_STOP: enough") {
		t.Error(err)
	}
	bare, stop := context.WithCancel(t.Context())
	stop()
	if err := ttrpc.WithCause(bare).Err(); err != context.Canceled { // Kitex compares with ==
		t.Error(err)
	}
}
