package command

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/flags"
	"github.com/whence-dev/whence/internal/load"
)

const (
	defaultDuration = 10 * time.Second
	defaultClients  = 10  // of a closed loop
	maxClients      = 500 // of an open loop, by default
	defaultTokens   = 100
	defaultPrompt   = "Request {n}: tell me a long story about a fox in the harbor."
	numberMark      = "{n}" // in a prompt, stands for the number of the request
)

// benchOptions are the flags of the command.
type benchOptions struct {
	api      remote
	model    string
	clients  int
	rate     float64
	duration time.Duration
	requests int64
	tokens   int
	prompt   string
	body     string
	silence  time.Duration
	asJSON   bool
}

func (o *benchOptions) flags(fs *flag.FlagSet) {
	o.api.Flags(fs)
	fs.StringVar(&o.model, "model", "", "`name` of the model; empty for the first one that the service lists")
	fs.IntVar(&o.clients, "clients", 0, fmt.Sprintf("`number` of streams at a time; with --rate the maximum (default %d, and %d with --rate)", defaultClients, maxClients))
	fs.Float64Var(&o.rate, "rate", 0, "streams to begin per second, at random times, whether or not others have ended; 0 begins a stream when another has ended")
	fs.DurationVar(&o.duration, "duration", defaultDuration, "time after which the clients leave")
	fs.Int64Var(&o.requests, "requests", 0, "`number` of streams after which the load ends; 0 means no limit")
	fs.IntVar(&o.tokens, "max-tokens", defaultTokens, "maximum `tokens` of an answer")
	fs.StringVar(&o.prompt, "prompt", defaultPrompt, "`text` of the user's message; "+numberMark+" stands for the number of the request, so that no prompt is in a cache")
	fs.StringVar(&o.body, "body", "", "JSON `object` whose fields replace those of each request, such as {\"ignore_eos\":true}; null removes a field")
	fs.DurationVar(&o.silence, "timeout", time.Minute, "time without data after which a client gives a stream up")
	fs.BoolVar(&o.asJSON, "json", false, "print a JSON object")
	flags.NoEnvironment(fs, "model") // WHENCE_MODEL configures a service
}

// validate sets the defaults that depend on other flags, and returns an error for a wrong flag.
func (o *benchOptions) validate() error {
	if err := o.api.Validate(); err != nil {
		return err
	}
	if o.clients == 0 {
		o.clients = defaultClients
		if o.rate > 0 {
			o.clients = maxClients
		}
	}
	switch {
	case o.clients < 0:
		return cli.Misuse("--clients is %d; it must be positive", o.clients)
	case !(o.rate >= 0 && o.rate <= 1e6):
		return cli.Misuse("--rate is %v; it must be a number from 0 to 1000000", o.rate)
	case o.duration <= 0:
		return cli.Misuse("--duration is %v; it must be positive", o.duration)
	case o.requests < 0:
		return cli.Misuse("--requests is %d; it must not be negative", o.requests)
	case o.tokens < 1:
		return cli.Misuse("--max-tokens is %d; it must be positive", o.tokens)
	case o.silence <= 0:
		return cli.Misuse("--timeout is %v; it must be positive", o.silence)
	}
	return nil
}

// bodies returns a function that makes the body of each request.
func (o *benchOptions) bodies() (func() []byte, error) {
	fields := map[string]any{
		"model": o.model, "stream": true, "stream_options": map[string]bool{"include_usage": true}, "max_tokens": o.tokens,
	}
	if o.body != "" {
		var replace map[string]any
		if err := json.Unmarshal([]byte(o.body), &replace); err != nil || replace == nil {
			return nil, cli.Misuse("--body is %.128q; it must be a JSON object, such as {\"ignore_eos\":true}", o.body)
		}
		maps.Copy(fields, replace)
		maps.DeleteFunc(fields, func(_ string, value any) bool { return value == nil })
	}
	if fields["stream"] != true {
		return nil, cli.Misuse("--body must not turn off the field stream: bench measures streams")
	}
	_, own := fields["messages"]
	var requests atomic.Int64
	return func() []byte {
		all := maps.Clone(fields)
		if !own {
			prompt := strings.ReplaceAll(o.prompt, numberMark, strconv.FormatInt(requests.Add(1), 10))
			all["messages"] = []map[string]string{{"role": "user", "content": prompt}}
		}
		body, err := json.Marshal(all)
		if err != nil {
			panic(err) // cannot happen: the fields are strings, numbers and JSON
		}
		return body
	}, nil
}

// Bench returns the command bench, which loads a server of OpenAI's API with streams, and measures
// what their clients see.
func Bench() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use: "bench [flags]", Short: "Load a server with streams, and measure them",
		Long: "Load a server of OpenAI's API with streams, and print the time to the first token, the gaps between\nevents, the rates, and how the streams ended. Latencies count from the time at which a request was due,\nalso if it had to wait for a client. When the time is over, the clients leave.",
		Example: `  whence bench
  whence bench --clients 50 --duration 1m --body '{"ignore_eos":true}'
  whence bench --rate 20 --url http://127.0.0.1:8000 --model llama --json | jq .ttft_ms.p99`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	cli.Attach(cmd, o.flags)
	return cmd
}

func (o *benchOptions) run(cmd *cobra.Command) error {
	if err := o.validate(); err != nil {
		return err
	}
	ctx, ignore := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer ignore()
	if o.model == "" {
		var err error
		if o.model, err = o.api.FirstModel(ctx); err != nil {
			return err
		}
	}
	bodies, err := o.bodies()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(cmd.ErrOrStderr(), o.summary()); err != nil {
		return err
	}
	r := o.measure(ctx, bodies)
	if o.asJSON {
		err = r.writeJSON(cmd.OutOrStdout())
	} else {
		err = r.print(cmd.OutOrStdout())
	}
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return cli.Interrupted()
	case r.Streams.Completed == 0 && r.Streams.Failed > 0:
		return cli.Failed()
	}
	return nil
}

// summary describes the load that is about to run.
func (o *benchOptions) summary() string {
	how := fmt.Sprintf("%d streams at a time", o.clients)
	if o.rate > 0 {
		how = fmt.Sprintf("%v streams a second, at most %d at a time", o.rate, o.clients)
	}
	if o.requests > 0 {
		how += fmt.Sprintf(", %d streams", o.requests)
	}
	return fmt.Sprintf("%s from %s, for %v: %s; Ctrl-C ends it early", o.model, o.api.URL, o.duration, how)
}

// measure runs the load and returns the report.
func (o *benchOptions) measure(ctx context.Context, bodies func() []byte) *benchReport {
	var protocols http.Protocols
	protocols.SetHTTP1(true) // a connection for each stream at a time
	transport := &http.Transport{Protocols: &protocols, Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: o.clients, DisableCompression: true}
	defer transport.CloseIdleConnections()
	c := &benchCaller{
		url: o.api.URL + "/v1/chat/completions", key: o.api.Credential(), silence: o.silence,
		http: &http.Client{Transport: transport}, bodies: bodies, record: newBenchRecorder(),
	}
	ctx, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	begun := time.Now()
	l := load.Start(ctx, load.Plan{Clients: o.clients, Rate: o.rate, Requests: o.requests}, func(context.Context) load.Client { return c })
	l.Wait()
	r := c.record.report(time.Since(begun))
	r.URL, r.Model, r.Clients, r.Rate = o.api.URL, o.model, o.clients, o.rate
	r.Streams.Begun, r.Streams.Unsent = l.Begun(), l.Unsent()
	return r
}
