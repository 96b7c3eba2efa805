package e2e

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/lab"
)

const guide = "../docs/explanation/streaming-guide.md"

// readGuide returns the guide.
func readGuide(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestTheGuidesCommandsWork runs the guide's commands about a stopped stream. Each line below a
// command must be a part of its output.
func TestTheGuidesCommandsWork(t *testing.T) {
	t.Parallel()
	_, block, _ := strings.Cut(readGuide(t), "<!-- run: a stream that was stopped -->\n")
	block, _, ok := strings.Cut(block, "<!-- end of run -->")
	if !ok {
		t.Fatal("the guide has no commands")
	}
	w := run(t, allInOne, flags{all: []string{"--metrics-listen", "127.0.0.1:0"}, worker: []string{"--pace", "30"}})
	m := w.makeStream(t, greedy(long))
	m.read(t, w.api).begun()
	w.cancel(t, w.api, m.ID)
	w.ended(t, apiService, m.ID)
	addresses := strings.NewReplacer("127.0.0.1:8080", w.api, "127.0.0.1:9080", must(t)(w.processes[apiService].Metrics()))
	command, out := "", ""
	for line := range strings.Lines(block) {
		line = strings.TrimSpace(line)
		next, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case isCommand:
			command = addresses.Replace(next)
			cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
			cmd.Env = append(lab.Environment(), "ID="+m.ID, "PATH="+filepath.Dir(binary(t, "whence"))+":"+os.Getenv("PATH"))
			b, err := cmd.CombinedOutput()
			if out = string(b); err != nil {
				t.Errorf("%s: %v\n%s", command, err, out)
			}
		case line != "" && !strings.Contains(out, line):
			t.Errorf("%s\ndoes not print %q:\n%s", command, line, out)
		}
	}
	if command == "" {
		t.Error("no command was run")
	}
}

// TestTheGuideNamesExistingThings checks flags, alerts and pages.
func TestTheGuideNamesExistingThings(t *testing.T) {
	t.Parallel()
	text := readGuide(t)
	var help strings.Builder
	for _, name := range commands {
		out, _, _ := output(t, name, "--help")
		help.WriteString(out)
	}
	for _, flag := range regexp.MustCompile("--[a-z][a-z-]+").FindAllString(text, -1) {
		if !strings.Contains(help.String(), flag) && flag != "--url" && flag != "--once" {
			t.Errorf("there is no flag %s", flag)
		}
	}
	rules, err := os.ReadFile("../deploy/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range regexp.MustCompile("`(Whence[A-Za-z]+)`").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(string(rules), "alert: "+alert[1]+"\n") {
			t.Errorf("there is no alert %s", alert[1])
		}
	}
	for _, link := range regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`).FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(guide), link[1])); err != nil {
			t.Errorf("%s: %v", link[1], err)
		}
	}
}

// A waitingChat sends nothing until its context ends, and reports the context's error.
type waitingChat struct {
	chatv1.UnimplementedChatServer
	begun, ended chan error
}

func (c *waitingChat) Generate(st grpc.BidiStreamingServer[chatv1.GenerateRequest, chatv1.GenerateResponse]) error {
	_, err := st.Recv()
	c.begun <- err
	<-st.Context().Done()
	c.ended <- errors.Join(st.Context().Err(), context.Cause(st.Context()))
	return st.Context().Err()
}

// TestTheGuideOnCancelsAtServers: a server of grpc-go sees no reason. contrib/kitexstream has the test for Kitex.
func TestTheGuideOnCancelsAtServers(t *testing.T) {
	t.Parallel()
	chat := &waitingChat{begun: make(chan error, 1), ended: make(chan error, 1)}
	grpcServer := grpc.NewServer()
	chatv1.RegisterChatServer(grpcServer, chat)
	ln := listenLocal(t)
	go func() { _ = grpcServer.Serve(ln) }()
	t.Cleanup(grpcServer.Stop)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	st, err := dialGRPC(t, ln.Addr().String()).NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, chatv1.Chat_Generate_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(st.SendMsg(&chatv1.GenerateRequest{}), st.CloseSend()); err != nil {
		t.Fatal(err)
	}
	if err := <-chat.begun; err != nil {
		t.Fatal(err)
	}
	cancel()
	if seen := (<-chat.ended).Error(); seen != "context canceled\ncontext canceled" {
		t.Errorf("the handler sees %q", seen)
	}
}

func listenLocal(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}
