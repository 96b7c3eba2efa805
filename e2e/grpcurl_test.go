package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// buildGRPCurl builds the grpcurl of scripts/tools once. The first build on a machine takes
// minutes.
var buildGRPCurl = sync.OnceValues(func() (string, error) {
	return buildTool(binDir, ".", "github.com/fullstorydev/grpcurl/cmd/grpcurl")
})

// buildTool builds a command of a module of scripts/tools into a directory, and returns its path.
func buildTool(dir, module, command string) (file string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	file = filepath.Join(dir, path.Base(command))
	cmd := exec.CommandContext(ctx, "go", "-C", filepath.Join("..", "scripts", "tools", module), "build", "-o", file, command)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return file, nil
}

// grpcurlPath returns the path of grpcurl.
func grpcurlPath(t *testing.T) string {
	t.Helper()
	binary(t, "whence") // creates the directory
	path, err := buildGRPCurl()
	if err != nil {
		missing(t, "grpcurl cannot be built: %v", err)
	}
	return path
}

// grpcurl runs grpcurl against addr and returns its output, and whether its status was 0.
func grpcurl(t *testing.T, addr string, args ...string) (string, bool) {
	t.Helper()
	path := grpcurlPath(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var before, after []string
	for i := 0; i < len(args); i++ {
		if strings.HasPrefix(args[i], "-") {
			before = append(before, args[i], args[i+1])
			i++
		} else {
			after = append(after, args[i])
		}
	}
	cmd := exec.CommandContext(ctx, path, append(append(append([]string{"-plaintext"}, before...), addr), after...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// messages parses the output of grpcurl, which must be JSON.
func messages(t *testing.T, out string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var m map[string]any
		if err := d.Decode(&m); err != nil {
			t.Fatalf("grpcurl says %v:\n%s", err, out)
		}
		all = append(all, m)
	}
	return all
}

func TestGRPCurlExploresBothServices(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		for _, s := range []struct {
			addr, name string
			methods    []string
		}{
			{w.chat, "whence.chat.v1.Chat", []string{"Generate", "Complete", "Compose", "Converse", "Detokenize", "Embeddings", "Models", "Stop", "Tokenize", "Workers"}},
			{w.worker, "whence.worker.v1.Worker", []string{"Embed", "Generate", "Info", "KVEvents", "Stop"}},
		} {
			list, ok := grpcurl(t, s.addr, "list")
			for _, want := range []string{s.name, "grpc.health.v1.Health"} {
				if !ok || !strings.Contains(list, want+"\n") {
					t.Errorf("%s is not in the list\n%s", want, list)
				}
			}
			text, ok := grpcurl(t, s.addr, "describe", s.name)
			for _, method := range s.methods {
				if !ok || !strings.Contains(text, "rpc "+method+" (") {
					t.Errorf("%s is not in the description\n%s", method, text)
				}
			}
			for _, name := range []string{"", s.name} {
				health, ok := grpcurl(t, s.addr, "-d", `{"service":"`+name+`"}`, "grpc.health.v1.Health/Check")
				if got := messages(t, health); !ok || len(got) != 1 || got[0]["status"] != "SERVING" {
					t.Errorf("the health of %q: %s", name, health)
				}
			}
			if out, ok := grpcurl(t, s.addr, "-d", `{"service":"none"}`, "grpc.health.v1.Health/Check"); ok || !strings.Contains(out, "NotFound") {
				t.Errorf("the health of an unknown service: %s", out)
			}
		}
	})
}

func TestGRPCurlStreamsFromBothServices(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		want := w.answer(t, greedy(short))
		chat := fmt.Sprintf(`{"chat":{"model":%q,"messages":[{"role":"user","content":%q}],"sampling":{"temperature":0}}}`, model, short)
		out, ok := grpcurl(t, w.chat, "-d", chat, "whence.chat.v1.Chat/Generate")
		got := messages(t, out)
		if !ok || len(got) < 3 || got[0]["started"] == nil || got[len(got)-1]["end"] == nil {
			t.Fatalf("Chat/Generate: %s", out)
		}
		var text strings.Builder
		for _, m := range got[1 : len(got)-1] {
			text.WriteString(m["delta"].(map[string]any)["text"].(string))
		}
		if text.String() != want {
			t.Errorf("Chat/Generate answers %q, HTTP %q", text.String(), want)
		}

		out, ok = grpcurl(t, w.chat, "-d", chat, "whence.chat.v1.Chat/Complete")
		if got := messages(t, out); !ok || len(got) != 1 || got[0]["text"] != want {
			t.Errorf("Chat/Complete: %s", out)
		}
		out, ok = grpcurl(t, w.chat, "whence.chat.v1.Chat/Models")
		if !ok || !strings.Contains(out, `"id": "`+model+`"`) {
			t.Errorf("Chat/Models: %s", out)
		}
		out, ok = grpcurl(t, w.chat, "whence.chat.v1.Chat/Workers")
		if !ok || !strings.Contains(out, `"state": "WORKER_STATE_HEALTHY"`) || !strings.Contains(out, `"instance": "llm-worker/0"`) {
			t.Errorf("Chat/Workers: %s", out)
		}

		out, ok = grpcurl(t, w.worker, "-d", `{"tokens":{"prompt":[1,2,3],"sampling":{"temperature":0,"max_tokens":4,"ignore_eos":true}}}`, "whence.worker.v1.Worker/Generate")
		got = messages(t, out)
		if !ok || len(got) < 3 || got[0]["started"] == nil || got[1]["tokens"] == nil {
			t.Fatalf("Worker/Generate: %s", out)
		}
		if end, _ := got[len(got)-1]["end"].(map[string]any); end["finish"] != "FINISH_LENGTH" {
			t.Errorf("Worker/Generate ends with %v", got[len(got)-1])
		}
		out, ok = grpcurl(t, w.worker, "whence.worker.v1.Worker/Info")
		if got := messages(t, out); !ok || len(got) != 1 || got[0]["instance"] != "llm-worker/0" || got[0]["load"] == nil {
			t.Errorf("Worker/Info: %s", out)
		}
	})
}

func TestGRPCurlReportsErrors(t *testing.T) {
	eachTopology(t, flags{}, func(t *testing.T, w *whence) {
		dir := t.TempDir() // the protos of another caller
		protos := map[string]string{
			"chat.proto":   `syntax = "proto3"; package whence.chat.v1; message E {} service Chat { rpc Nope(E) returns (E); } service Other { rpc Generate(E) returns (E); }`,
			"worker.proto": `syntax = "proto3"; package whence.worker.v1; message E {} service Worker { rpc Nope(E) returns (E); } service Other { rpc Generate(E) returns (E); }`,
		}
		for name, text := range protos {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, test := range []struct {
			addr, want string
			args       []string
		}{
			{w.chat, "Code: Unimplemented", []string{"-import-path", dir, "-proto", "chat.proto", "whence.chat.v1.Chat/Nope"}},
			{w.chat, "Code: Unimplemented", []string{"-import-path", dir, "-proto", "chat.proto", "whence.chat.v1.Other/Generate"}},
			{w.worker, "Code: Unimplemented", []string{"-import-path", dir, "-proto", "worker.proto", "whence.worker.v1.Worker/Nope"}},
			{w.worker, "Code: Unimplemented", []string{"-import-path", dir, "-proto", "worker.proto", "whence.worker.v1.Other/Generate"}},
			{w.chat, `Code: NotFound\n *Message: the model "none" does not exist`, []string{"-d", `{"chat":{"model":"none"}}`, "whence.chat.v1.Chat/Generate"}},
			{w.chat, `Code: InvalidArgument\n *Message: chat is missing`, []string{"-d", `{}`, "whence.chat.v1.Chat/Complete"}},
			{w.chat, `Code: InvalidArgument\n *Message: messages must not be empty`, []string{"-d", `{"chat":{"model":"` + model + `"}}`, "whence.chat.v1.Chat/Complete"}},
			{w.chat, `Code: NotFound\n *Message: no stream with the id "none" is known here`, []string{"-d", `{"stream":{"stream_id":"none"}}`, "whence.chat.v1.Chat/Stop"}},
			{w.worker, `Code: InvalidArgument\n *Message: .*prompt`, []string{"-d", `{"tokens":{}}`, "whence.worker.v1.Worker/Generate"}},
			{w.worker, `Code: InvalidArgument\n *Message: (?s:.*)"param": "prompt\[0\]"`, []string{"-d", `{"tokens":{"prompt":[1536]}}`, "whence.worker.v1.Worker/Generate"}},
			{w.worker, `Code: NotFound\n *Message: no stream with the id "none" is known here`, []string{"-d", `{"stream":{"stream_id":"none"}}`, "whence.worker.v1.Worker/Stop"}},
		} {
			if out, ok := grpcurl(t, test.addr, test.args...); ok || !regexp.MustCompile(test.want).MatchString(out) {
				t.Errorf("%v prints %s, want %s", test.args, out, test.want)
			}
		}
		w.works(t)
	})
}
