package vllm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	vllmengine "github.com/whence-dev/whence/idl/gen/vllm/engine"
	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/modelfile"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overgrpc"
)

// filesTimeout bounds the transfer of a model's files. The server packs them first.
const filesTimeout = time.Minute

// Files asks the vLLM at upstream, a valid host:port, for the files of its model, and returns the path
// of the directory in store where they are kept.
func Files(ctx context.Context, upstream string, store hub.Store) (path string, err error) {
	conn, err := overgrpc.Dial(upstream)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the answer is complete
	archive, sum, err := archive(ctx, vllmengine.NewVllmEngineClient(conn))
	if err != nil {
		return "", err
	}
	return store.SaveArchive(archive, sum)
}

// archive asks a vLLM for the files of its model, as a zip archive, and its SHA-256. A vLLM that was started with a
// hub id has none.
func archive(ctx context.Context, client vllmengine.VllmEngineClient) (archive []byte, sum string, err error) {
	err = overgrpc.Ask(ctx, filesTimeout, func(ctx context.Context) error {
		chunks, err := client.GetTokenizer(ctx, &vllmengine.GetTokenizerRequest{})
		if err != nil {
			return err
		}
		for {
			chunk, err := chunks.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if len(archive)+len(chunk.GetData()) > modelfile.MaxTokenizer {
				return fmt.Errorf("the server's archive has more than %d bytes", modelfile.MaxTokenizer)
			}
			archive = append(archive, chunk.GetData()...)
			if chunk.GetSha256() != "" {
				sum = chunk.GetSha256()
			}
		}
	})
	return archive, sum, err
}
