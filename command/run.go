package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/client"
	"github.com/whence-dev/whence/internal/flags"
)

// maxPrompt bounds the standard input, in bytes. api-service refuses larger bodies by default.
const maxPrompt = 2 << 20

// runOptions are the flags of the command.
type runOptions struct {
	api         remote
	model       string
	system      string
	maxTokens   int
	temperature string // "" for the service's default
	leave       string
	verbose     bool
}

func (o *runOptions) flags(fs *flag.FlagSet) {
	o.api.Flags(fs)
	fs.StringVar(&o.model, "model", "", "`name` of the model; empty for the first one that the service lists")
	fs.StringVar(&o.system, "system", "", "`text` of the system message")
	fs.IntVar(&o.maxTokens, "max-tokens", 0, "maximum `tokens` of an answer; 0 for the service's default")
	fs.StringVar(&o.temperature, "temperature", "", "sampling temperature, a `number` from 0 to 2; empty for the service's default")
	fs.StringVar(&o.leave, "leave", "", "`policy` for the stream if this command is killed: cancel, linger:30s, detach or drain; empty for the service's default")
	flags.NoEnvironment(fs, "model", "system", "leave") // WHENCE_MODEL and WHENCE_LEAVE configure a service
	fs.BoolVar(&o.verbose, "verbose", false, "also print the ending of a completed stream if the standard error is not a terminal")
}

// request returns the request that o describes, without messages.
func (o *runOptions) request() (client.Request, error) {
	req := client.Request{Model: o.model, MaxTokens: o.maxTokens, Leave: o.leave}
	if o.maxTokens < 0 {
		return req, cli.Misuse("--max-tokens is %d; it must not be negative", o.maxTokens)
	}
	if o.temperature != "" {
		n, err := strconv.ParseFloat(o.temperature, 64)
		if err != nil || !(n >= 0 && n <= 2) {
			return req, cli.Misuse("--temperature is %.64q; it must be a number from 0 to 2", o.temperature)
		}
		req.Temperature = &n
	}
	if o.system != "" {
		req.Messages = []client.Message{{Role: "system", Content: o.system}}
	}
	return req, nil
}

// Run returns the command run: a chat in the terminal, or one question.
func Run() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use: "run [PROMPT ...]", Short: "Chat in the terminal, or ask one question",
		Long: "Chat in the terminal. With a prompt, or with a standard input that is not a terminal, ask one question,\nprint the answer, and exit. The argument - stands for the standard input.\n\nCtrl-C stops the answer and prints who ended it and why. A broken connection is resumed.",
		Example: `  whence run
  whence run "What is a token?"
  git diff | whence run "Review this:" -
  whence run --url https://llm.example --key "$KEY" --model llama-3.1-8b hello`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := newChat(cmd.Context(), &o, cmd.OutOrStdout(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if len(args) == 0 && screenOf(os.Stdin).Terminal() && c.screen.Terminal() {
				return c.converse(cmd.Context(), os.Stdin)
			}
			prompt, err := readPrompt(args, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return c.askOnce(cmd.Context(), prompt)
		},
	}
	cli.Attach(cmd, o.flags)
	return cmd
}

// readPrompt joins the arguments. Without arguments, or for the argument -, it reads in.
func readPrompt(args []string, in io.Reader) (string, error) {
	if len(args) == 0 {
		args = []string{"-"}
	}
	var parts []string
	for _, arg := range args {
		if arg != "-" {
			parts = append(parts, arg)
			continue
		}
		text, err := io.ReadAll(io.LimitReader(in, maxPrompt+1))
		if err != nil {
			return "", fmt.Errorf("standard input: %w", err)
		}
		if len(text) > maxPrompt {
			return "", cli.Misuse("the standard input is larger than %d bytes", maxPrompt)
		}
		parts = append(parts, "\n"+strings.TrimRight(string(text), "\n"))
	}
	prompt := strings.TrimSpace(strings.ReplaceAll(strings.Join(parts, " "), " \n", "\n"))
	if prompt == "" {
		return "", cli.Misuse("the prompt is empty")
	}
	return prompt, nil
}

// askOnce asks one question. An answer that is not completed is an error.
func (c *chat) askOnce(ctx context.Context, prompt string) error {
	a, err := c.answer(ctx, prompt)
	if errors.Is(err, errInterrupted) {
		return cli.Interrupted()
	}
	if err != nil {
		return c.options.api.Explain(err)
	}
	if a.text != "" && !strings.HasSuffix(a.text, "\n") {
		if _, err := fmt.Fprintln(c.out); err != nil {
			return err
		}
	}
	completed := a.ending.Reason == client.Completed
	if !completed || c.options.verbose || c.notesScreen.Terminal() {
		c.note(a.summary())
	}
	switch {
	case a.interrupted:
		return cli.Interrupted()
	case !completed:
		return cli.Failed()
	}
	return nil
}
