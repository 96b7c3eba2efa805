// Command whence runs and operates Whence. Without a command it runs the whole path in one process:
// api-service, chat-service and llm-worker, with loopback sockets between them.
package main

import (
	"fmt"

	"github.com/spf13/cobra"

	api "github.com/whence-dev/whence/api-service/command"
	"github.com/whence-dev/whence/api-service/edge"
	chat "github.com/whence-dev/whence/chat-service/command"
	"github.com/whence-dev/whence/chat-service/server"
	"github.com/whence-dev/whence/command"
	"github.com/whence-dev/whence/gateway"
	gatewaycommand "github.com/whence-dev/whence/gateway/command"
	"github.com/whence-dev/whence/internal/cli"
	worker "github.com/whence-dev/whence/llm-worker/command"
	llm "github.com/whence-dev/whence/llm-worker/worker"
)

func main() { cli.Main(commands()) }

// Groups of commands in the help.
const (
	groupServices = "services"
	groupUse      = "use"
	groupOperate  = "operate"
	groupMore     = "more"
)

// commands returns the command whence with all its commands.
func commands() *cobra.Command {
	root := &cobra.Command{
		Use: "whence", Short: "Stream answers of language models",
		Long: "Whence streams answers of language models through api-service, chat-service and llm-worker.\nEach stream ends exactly once on every hop, with the same typed ending.",
		Example: `  whence                                     run everything on http://127.0.0.1:8080
  whence run "What is a token?"              ask one question; without it, chat
  whence why ID                              show who ended a stream, and why
  whence worker --listen :8082 --model DIR   run one service of several`,
		Args: cli.NoCommand,
	}
	allInOne().Attach(root)
	root.AddGroup(
		&cobra.Group{ID: groupServices, Title: "Services"}, &cobra.Group{ID: groupUse, Title: "Use"},
		&cobra.Group{ID: groupOperate, Title: "Operate"}, &cobra.Group{ID: groupMore, Title: "More"},
	)
	add := func(group string, all ...*cobra.Command) {
		for _, cmd := range all {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	add(groupServices, serviceCommands()...)
	add(groupUse, command.Run(), command.Stop(), command.Bench())
	add(groupOperate, command.Doctor(), command.Top(), command.Streams(), command.Why(), command.Models(), command.Keys())
	add(groupMore, versionCommand())
	root.SetCompletionCommandGroupID(groupMore)
	return root
}

// serviceCommands returns the commands that run one service or several.
func serviceCommands() []*cobra.Command {
	all := &cobra.Command{
		Use: "serve", Short: "Run all services in one process; the default",
		Long: "Run api-service, chat-service and llm-worker in one process, with loopback sockets between them.",
		Example: `  whence serve
  whence serve --listen 0.0.0.0:8080 --keys keys.yaml
  whence serve --config deploy/whence.yaml`,
	}
	allInOne().Attach(all)
	front := &cobra.Command{
		Use: "gateway", Short: "Run api-service and chat-service in one process",
		Long:    "Run api-service and chat-service in one process, in front of llm-workers, without a socket between them.",
		Example: "  whence gateway --worker 10.0.0.1:8082,10.0.0.2:8082 --model DIR",
	}
	gatewaycommand.New(&gateway.Config{}).Attach(front)
	edgeOnly := &cobra.Command{
		Use: "api", Short: "Run api-service: OpenAI-compatible HTTP",
		Long: "Run api-service: OpenAI-compatible HTTP with server-sent events, in front of chat-services.",
		Example: `  whence api --chat 10.0.0.1:8081
  whence api --chat dns:///chat-service:8081 --keys keys.yaml --metrics-listen :9090`,
	}
	api.New(&edge.Config{}).Attach(edgeOnly)
	chatOnly := &cobra.Command{
		Use: "chat", Short: "Run chat-service: prompts, tokens, routing",
		Long: "Run chat-service: it turns conversations into tokens, and routes them to llm-workers.",
		Example: `  whence chat --worker 10.0.0.1:8082,10.0.0.2:8082 --model DIR
  whence chat --models models.yaml`,
	}
	chat.New(&server.Config{}).Attach(chatOnly)
	workerOnly := &cobra.Command{
		Use: "worker", Short: "Run llm-worker: an engine",
		Long: "Run llm-worker: an engine, token ids in, token ids out.",
		Example: `  whence worker --model DIR
  whence worker --engine openai --upstream http://127.0.0.1:8000 --model DIR
  whence worker --engine sim`,
	}
	worker.New(&llm.Config{}).Attach(workerOnly)
	return []*cobra.Command{all, front, edgeOnly, chatOnly, workerOnly}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "whence "+cli.Version())
			return err
		},
	}
}
