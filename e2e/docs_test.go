package e2e

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	dproto "github.com/cloudwego/dynamicgo/proto"
	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/client/genericclient"
	"github.com/cloudwego/kitex/pkg/generic"
	"github.com/cloudwego/kitex/pkg/transmeta"
	"github.com/cloudwego/kitex/transport"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// documents are the documents with commands.
var documents = []string{"../docs/reference/grpc.md", "../docs/howto/grpcurl.md"}

// grpcurlCommands returns the grpcurl commands of a document: indented, and continued after "\" and
// "|".
func grpcurlCommands(t *testing.T, document string) (commands []string) {
	t.Helper()
	b, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	var command strings.Builder
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "    ") {
			continue
		}
		command.WriteString(line)
		if end := strings.TrimSpace(line); strings.HasSuffix(end, "\\") || strings.HasSuffix(end, "|") {
			continue
		}
		if text := command.String(); regexp.MustCompile(`(^|\n) *grpcurl `).MatchString(text) {
			commands = append(commands, text)
		}
		command.Reset()
	}
	return commands
}

// TestGRPCurlCommandsOfTheDocsWork runs the commands as printed, with the addresses of the test,
// and the id of a live stream in place of the placeholder. The last command stops that stream.
func TestGRPCurlCommandsOfTheDocsWork(t *testing.T) {
	t.Parallel()
	path := filepath.Dir(grpcurlPath(t)) + string(filepath.ListSeparator) + os.Getenv("PATH")
	w := run(t, allInOne, slow)
	_ = started(t.Context(), t, chatv1.NewChatClient(dialGRPC(t, w.chat)), "docs")
	real := strings.NewReplacer("127.0.0.1:8081", w.chat, "127.0.0.1:8082", w.worker, `"stream_id":"…"`, `"stream_id":"docs"`, `"page_token":"…"`, `"page_token":""`)
	n := 0
	for _, document := range documents {
		for _, command := range grpcurlCommands(t, document) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", real.Replace(command))
			cmd.Env = append(os.Environ(), "PATH="+path)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s:\n%s%v\n%s", document, command, err, out)
			}
			cancel()
			n++
		}
	}
	if n < 12 {
		t.Errorf("found only %d commands", n)
	}
}

// shownJSON returns the JSON that a command of a document sends, which pattern captures.
func shownJSON(t *testing.T, document, pattern string) string {
	t.Helper()
	b, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(pattern).FindSubmatch(b)
	if found == nil {
		t.Fatalf("%s does not have %s", document, pattern)
	}
	return string(found[1])
}

// answerToJSON sends a request for a stream as JSON and checks that the answer completes.
func answerToJSON(t *testing.T, addr string, g generic.Generic, body string, protocol transport.Protocol) {
	t.Helper()
	c, err := genericclient.NewClient("chat-service", g, client.WithHostPorts(addr), client.WithTransportProtocol(protocol), client.WithMetaHandler(transmeta.ClientTTHeaderHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	st, err := c.BidirectionalStreaming(t.Context(), "Generate")
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(t.Context(), body); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for err == nil {
		var out any
		if out, err = st.Recv(t.Context()); err == nil {
			all.WriteString(out.(string))
		}
	}
	if !errors.Is(err, io.EOF) || !strings.Contains(all.String(), `"text":"`) || !strings.Contains(all.String(), `"end":{`) {
		t.Errorf("%q, %v", all.String(), err)
	}
}

// TestGenericClientsTalkToChatService sends requests of the docs with Kitex's JSON clients, which
// need only the IDL: with the Thrift file over TTHeader Streaming, and, like kitexcall, with the
// proto over gRPC.
func TestGenericClientsTalkToChatService(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		const document = "../docs/howto/grpcurl.md"
		file, err := generic.NewThriftFileProvider("../idl/thrift/chat.thrift")
		if err != nil {
			t.Fatal(err)
		}
		twin, err := generic.JSONThriftGeneric(file)
		if err != nil {
			t.Fatal(err)
		}
		answerToJSON(t, w.chat, twin, shownJSON(t, document, `grpcurl .* -d '(.*)' .*whence.chat.v1.Chat/Generate`), transport.TTHeader|transport.TTHeaderStreaming)

		idl := "../" + shownJSON(t, document, `kitexcall .* -idl-path (\S+) `)
		include := "../" + shownJSON(t, document, `kitexcall .* -include-path (\S+) `)
		proto, err := generic.NewPbFileProviderWithDynamicGo(idl, t.Context(), dproto.Options{}, include)
		if err != nil {
			t.Fatal(err)
		}
		pb, err := generic.JSONPbGeneric(proto)
		if err != nil {
			t.Fatal(err)
		}
		answerToJSON(t, w.chat, pb, shownJSON(t, document, `kitexcall -streaming [^']*'(.*)'`), transport.GRPC)
	})
}
