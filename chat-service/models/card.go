// Package models is the models that chat-service serves, each as its card says: its files, its names, and where its workers
// are. Cards are replaced while streams run: a new Set takes effect as a whole or not at all, a model that stays keeps its
// workers, and one that is gone takes no new streams and finishes those it has.
package models

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvcache"
	"github.com/whence-dev/whence/chat-service/route/policy"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/discover"
	"github.com/whence-dev/whence/pkg/rpc"
)

// A Card says how one model is served.
type Card struct {
	Name       string   // what requests and workers call it; "" is the directory's name
	Aliases    []string // what requests may call it, too
	Adapters   []string // LoRA adapters of the model, by their names on its engines, which requests may name like models
	Directory  string   // Hugging Face directory with tokenizer and template; "" is the embedded model
	Template   string   // file with a chat template; "" is the directory's
	ToolFormat string   // how the model writes calls of tools; "" is what its template says
	Context    int      // tokens of prompt and answer together; 0 is as config.json says
	EOS        []uint32 // tokens that end an answer, beside those that workers know
	Workers    string   // a list or a discover.Source
	Policy     string   // which of them gets a stream, as policy.Parse reads it; "" is policy.LeastLoaded
	KV         kvcache.Options

	Migrations   int           // how often a stream may go on with another worker
	MigrateAfter time.Duration // how long a worker may be silent until another one goes on; 0 is for ever
	// FirstTokenMove is the maximum time for the first token of a short prompt before another worker with a free
	// place takes over; 0 means no limit.
	FirstTokenMove time.Duration
	QueueStreams   int           // how many streams wait here for a worker with room, in a fair order; 0 is none: they wait at the workers
	QueueTokens    int           // how many tokens their prompts may have together
	QueueOutage    time.Duration // how long they wait while no worker is healthy
	// HandoverAbove is how many tokens of a prompt a worker reads itself at most, where others read for it.
	HandoverAbove int
	Timers        rpc.Timers
}

const (
	// maxName bounds names, in bytes. They stand in messages.
	maxName = 128
	// maxAdapters bounds the adapters of a model. Their names are labels of metrics.
	maxAdapters = 64
)

// names returns everything that requests may call the model and its adapters.
func (c *Card) names() []string {
	return slices.Concat([]string{c.ID()}, c.Aliases, c.Adapters)
}

// ID returns what requests and workers call the model.
func (c *Card) ID() string {
	switch {
	case c.Name != "":
		return c.Name
	case c.Directory != "":
		return filepath.Base(c.Directory)
	default:
		return whencetiny.Name
	}
}

// Validate reports what is wrong with c, by the names of flags.
func (c *Card) Validate() error {
	if n := len(c.Adapters); n > maxAdapters {
		return fmt.Errorf("there are %d adapters; %d are the most", n, maxAdapters)
	}
	for _, name := range c.names() {
		if name == "" || len(name) > maxName || !utf8.ValidString(name) {
			return fmt.Errorf("the name %.64q must be UTF-8 of 1 to %d bytes", name, maxName)
		}
	}
	if c.Context < 0 {
		return fmt.Errorf("context is %d; it must not be negative", c.Context)
	}
	if c.Migrations < 0 || c.MigrateAfter < 0 || c.FirstTokenMove < 0 {
		return errors.New("--migrations, --migrate-after and --first-token-move must not be negative")
	}
	if c.HandoverAbove < 0 {
		return errors.New("--handover-above must not be negative")
	}
	if c.QueueStreams < 0 || c.QueueStreams > 0 && c.QueueTokens < 1 {
		return errors.New("--queue-streams must not be negative, and --queue-tokens must be at least 1")
	}
	if c.QueueOutage < 0 {
		return fmt.Errorf("--queue-outage is %v; it must not be negative", c.QueueOutage)
	}
	if err := c.KV.Validate(); err != nil {
		return err
	}
	if _, err := policy.Parse(c.Policy, policy.Options{}); err != nil {
		return fmt.Errorf("--policy: %w", err)
	}
	source, err := discover.Parse(c.Workers)
	if err != nil {
		return fmt.Errorf("--worker: %w", err)
	}
	if n := len(source.Static()); n > fleet.MaxWorkers {
		return fmt.Errorf("--worker: there are %d workers; %d are the most", n, fleet.MaxWorkers)
	}
	if len(source.Static()) != 1 { // a lone worker is never left, so its streams may have any timers
		switch {
		case c.Timers.Stall > 0 && c.MigrateAfter >= c.Timers.Stall:
			return fmt.Errorf("--migrate-after is %v; it must be less than --stall-timeout, which is %v", c.MigrateAfter, c.Timers.Stall)
		case c.Timers.FirstToken > 0 && c.FirstTokenMove >= c.Timers.FirstToken:
			return fmt.Errorf("--first-token-move is %v; it must be less than --first-token-timeout, which is %v", c.FirstTokenMove, c.Timers.FirstToken)
		}
	}
	return c.Timers.Validate()
}

// files returns the model's directory, with the card's template in place of its own, and who made the model.
func (c *Card) files() (dir fs.FS, owner string, err error) {
	dir, owner = whencetiny.FS(), whencetiny.Owner
	if c.Directory != "" {
		dir, owner = os.DirFS(c.Directory), ""
	}
	if c.Template == "" {
		return dir, owner, nil
	}
	template, err := os.ReadFile(c.Template)
	if err != nil {
		return nil, "", err
	}
	return templateOverride{dir, template}, owner, nil
}

// A templateOverride is a directory with another chat template.
type templateOverride struct {
	fs.FS
	template []byte
}

const templateFile = "chat_template.jinja"

// ReadFile implements fs.ReadFileFS.
func (t templateOverride) ReadFile(name string) ([]byte, error) {
	if name == templateFile {
		return t.template, nil
	}
	return fs.ReadFile(t.FS, name)
}
