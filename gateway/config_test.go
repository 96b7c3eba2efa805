package gateway_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/gateway"
)

// TestFlagsReachTheirServices: a flag that one service has keeps its name, a shared flag sets both
// services, and any other flag that both have is api-service's, unless it begins with chat-.
func TestFlagsReachTheirServices(t *testing.T) {
	var c gateway.Config
	fs := flag.NewFlagSet("gateway", flag.ContinueOnError)
	c.Flags(fs)
	if err := fs.Parse([]string{
		"--worker", "w:1", "--max-body", "1000", "--chat-listen", ":0", "--adapters", "a,b", "--adapters", "c", // flags of one service
		"--max-streams", "7", "--drain", "3s", // shared
		"--name", "a", "--chat-name", "c", "--stall-timeout", "5s", "--chat-stall-timeout", "4s", // of each service
	}); err != nil {
		t.Fatal(err)
	}
	if adapters := c.Chat.Adapters.String(); adapters != "a,b,c" {
		t.Errorf("adapters %q", adapters)
	}
	if c.Chat.Worker != "w:1" || c.Edge.MaxBody != 1000 || c.ChatListen != ":0" {
		t.Errorf("worker %q, max body %d, listen %q", c.Chat.Worker, c.Edge.MaxBody, c.ChatListen)
	}
	if c.Edge.MaxStreams != 7 || c.Chat.MaxStreams != 7 || c.Edge.Grace != 3*time.Second || c.Chat.Grace != 3*time.Second {
		t.Errorf("streams %d and %d, grace %v and %v", c.Edge.MaxStreams, c.Chat.MaxStreams, c.Edge.Grace, c.Chat.Grace)
	}
	if c.Edge.Name != "a" || c.Chat.Name != "c" || c.Edge.Timers.Stall != 5*time.Second || c.Chat.Timers.Stall != 4*time.Second {
		t.Errorf("names %q and %q, stall timeouts %v and %v", c.Edge.Name, c.Chat.Name, c.Edge.Timers.Stall, c.Chat.Timers.Stall)
	}
	if fs.Lookup("chat") != nil {
		t.Error("a gateway has the flag --chat, which has no meaning there")
	}
	if err := fs.Parse([]string{"--max-streams", "many"}); err == nil {
		t.Error("--max-streams many is accepted")
	}
}

// TestSharedFlagsHaveOneDefault: a flag that sets both services shows api-service's default, which
// must be chat-service's, too.
func TestSharedFlagsHaveOneDefault(t *testing.T) {
	var c gateway.Config
	c.Flags(flag.NewFlagSet("gateway", flag.ContinueOnError))
	if c.Edge.MaxStreams != c.Chat.MaxStreams || c.Edge.Grace != c.Chat.Grace || c.Edge.Link != c.Chat.Link {
		t.Errorf("%d and %d streams, grace %v and %v, links %t and %t", c.Edge.MaxStreams, c.Chat.MaxStreams, c.Edge.Grace, c.Chat.Grace, c.Edge.Link, c.Chat.Link)
	}
}

func TestWrongConfigurationsAreRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"--chat-listen":  {"--register", "etcd://127.0.0.1:2379/chats"},
		"--chat-name":    {"--name", "x", "--chat-name", "x"},
		"--max-streams":  {"--max-streams", "0"},
		"--max-body":     {"--max-body", "0"},
		"--models":       {"--models", "m.yaml", "--model", "dir"},
		"--read-timeout": {"--read-timeout", "0s"},
		"--adapters":     {"--models", "m.yaml", "--adapters", "a"},
		"the name":       {"--adapters", strings.Repeat("a", 1000)}, // of the model's card
	} {
		var c gateway.Config
		fs := flag.NewFlagSet("gateway", flag.ContinueOnError)
		c.Flags(fs)
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
