package command

import (
	"cmp"
	"context"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/flags"
	"github.com/whence-dev/whence/internal/printable"
)

// Results of checks.
const (
	resultGood    = "ok"
	resultWarning = "warning" // works, with a loss that the finding names
	resultWrong   = "wrong"
	resultSkipped = "skipped"
)

// A finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Text   string `json:"text"`
	Do     string `json:"do,omitempty"` // what mends it
}

// A doctor checks a running service from a client's side.
type doctor struct {
	api    remote
	model  string
	admins flags.List
	report func(finding)
	failed bool
	server string // of the answer to the first request: the headers Server and Via
	via    string
}

// Doctor returns the command doctor, which checks a running service.
func Doctor() *cobra.Command {
	var (
		d      doctor
		asJSON bool
	)
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check a running service, and say what to change",
		Long: "Check a running service as its clients reach it, through all proxies: addresses, certificate, clocks, key,\nmodels, workers, one streamed answer, one that is left in the middle, one that is resumed, and metrics.\nEach line has a result, and what to do. The status is 1 if something is wrong.",
		Example: `  whence doctor
  whence doctor --url https://llm.example --key "$KEY"
  whence doctor --admin http://127.0.0.1:9080 --operator-key "$OPERATOR_KEY" --json`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := d.api.Validate(); err != nil {
				return err
			}
			var all []finding
			d.report = func(f finding) {
				d.failed = d.failed || f.Result == resultWrong
				if all = append(all, f); !asJSON {
					_ = f.print(cmd.OutOrStdout()) // there is nowhere to report an error
				}
			}
			d.examine(cmd.Context())
			if asJSON {
				if err := writeJSON(cmd.OutOrStdout(), all); err != nil {
					return err
				}
			}
			if d.failed {
				return cli.Failed()
			}
			return nil
		},
	}
	cli.Attach(cmd, func(fs *flag.FlagSet) {
		d.api.Flags(fs)
		fs.StringVar(&d.model, "model", "", "`name` of the model to ask; empty for the first one that the service lists")
		fs.Var(&d.admins, "admin", "`url` of a listener with /metrics, such as that of --admin-listen or --metrics-listen; repeated, or separated by commas")
		fs.BoolVar(&asJSON, "json", false, "print the findings as JSON")
		flags.Group(fs, flags.Connections, "admin")
		flags.NoEnvironment(fs, "model") // WHENCE_MODEL configures a service
	})
	return cmd
}

// print writes the finding for people. The text cannot control a terminal.
func (f *finding) print(w io.Writer) error {
	text := fmt.Sprintf("%-7s  %-9s  %s\n", f.Result, f.Check, f.Text)
	if f.Do != "" {
		text += fmt.Sprintf("%-7s  %-9s  -> %s\n", "", "", f.Do)
	}
	_, err := io.WriteString(w, printable.Text(text))
	return err
}

// say reports a finding.
func (d *doctor) say(result, check, do, format string, args ...any) {
	d.report(finding{check, result, fmt.Sprintf(format, args...), do})
}

// examine runs the checks. Without an address, a key or a model, the later ones are left out.
func (d *doctor) examine(ctx context.Context) {
	if !d.address(ctx) || !d.models(ctx) {
		return
	}
	d.ready(ctx)
	d.workers(ctx)
	d.answer(ctx)
	d.leave(ctx)
	d.resume(ctx)
	for _, url := range d.admins {
		d.metrics(ctx, url)
	}
}

// An httpReply is an answer to a GET.
type httpReply struct {
	code          int
	status, proto string
	header        http.Header
	certificate   *x509.Certificate // nil without TLS
	body          string
}

// getReply sends a GET without a key, and reads at most limit bytes of the answer.
func getReply(ctx context.Context, url string, limit int64) (*httpReply, error) {
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end, or too long
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	r := &httpReply{code: resp.StatusCode, status: resp.Status, proto: resp.Proto, header: resp.Header, body: strings.TrimSpace(string(body))}
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		r.certificate = resp.TLS.PeerCertificates[0]
	}
	return r, err
}

// proxies names the servers between this client and api-service, as far as they name themselves.
func (d *doctor) proxies() string {
	return cmp.Or(strings.TrimSpace(strings.Join([]string{d.server, d.via}, " ")), "a proxy")
}
