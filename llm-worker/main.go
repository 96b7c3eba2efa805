// Command llm-worker serves an engine over gRPC: it takes token ids and returns token ids.
package main

import (
	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/llm-worker/command"
	"github.com/whence-dev/whence/llm-worker/worker"
)

func main() {
	command.New(&worker.Config{}).Main(&cobra.Command{
		Use:   "llm-worker",
		Short: "Serve an engine: token ids in, token ids out",
	})
}
