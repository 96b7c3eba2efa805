// Command chat-service answers conversations: it renders the chat template, tokenises the prompt,
// calls a worker, and turns its tokens into text.
package main

import (
	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/chat-service/command"
	"github.com/whence-dev/whence/chat-service/server"
)

func main() {
	command.New(&server.Config{}).Main(&cobra.Command{
		Use:   "chat-service",
		Short: "Turn conversations into tokens and route them to llm-workers",
	})
}
