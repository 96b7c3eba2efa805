package vllm_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	vllmengine "github.com/whence-dev/whence/idl/gen/vllm/engine"
	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/engine/vllm"
)

// A filesServer is a vLLM that sends the files of its model.
type filesServer struct {
	vllmengine.UnimplementedVllmEngineServer
	archive []byte
	sum     string
	fails   bool
}

func (s *filesServer) GetTokenizer(_ *vllmengine.GetTokenizerRequest, to grpc.ServerStreamingServer[vllmengine.GetTokenizerChunk]) error {
	if s.fails {
		return status.Error(codes.FailedPrecondition, "Tokenizer path is not configured on this server.")
	}
	const chunk = 64 << 10 // vLLM's
	for rest := s.archive; len(rest) > 0; {
		n := min(chunk, len(rest))
		c := &vllmengine.GetTokenizerChunk{Data: rest[:n]}
		if rest = rest[n:]; len(rest) == 0 {
			c.Sha256 = s.sum
		}
		if err := to.Send(c); err != nil {
			return err
		}
	}
	return nil
}

func (s *filesServer) start(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	vllmengine.RegisterVllmEngineServer(server, s)
	go server.Serve(ln)
	t.Cleanup(server.Stop)
	return ln.Addr().String()
}

func TestFilesComeFromTheServer(t *testing.T) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	names := []string{"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"}
	for _, name := range names {
		text, err := fs.ReadFile(whencetiny.FS(), name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	server := &filesServer{archive: b.Bytes(), sum: hex.EncodeToString(sum[:])}
	store := hub.Store{Dir: t.TempDir()}
	path, err := vllm.Files(t.Context(), server.start(t), store)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		got, err := os.ReadFile(path + "/" + name)
		want, _ := fs.ReadFile(whencetiny.FS(), name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes: %v", name, len(got), err)
		}
	}
	for want, server := range map[string]*filesServer{
		"checksum":               {archive: b.Bytes(), sum: strings.Repeat("0", 64)},
		"is not configured":      {fails: true},
		"archive cannot be read": {},
	} {
		if path, err := vllm.Files(t.Context(), server.start(t), store); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v", want, path, err)
		}
	}
}
