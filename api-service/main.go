// Command api-service serves OpenAI-compatible HTTP with server-sent events, in front of a
// chat-service.
package main

import (
	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/api-service/command"
	"github.com/whence-dev/whence/api-service/edge"
)

func main() {
	command.New(&edge.Config{}).Main(&cobra.Command{
		Use:   "api-service",
		Short: "Serve OpenAI-compatible HTTP, in front of chat-services",
	})
}
