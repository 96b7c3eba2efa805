// Package models holds the models that chat-service serves. A Card describes each: its files, its
// names, and the addresses of its workers. Cards can be replaced while streams run: a new Set takes
// effect completely or not at all, a model that stays keeps its workers, and a removed model takes
// no new streams and finishes its streams.
package models

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvcache"
	"github.com/whence-dev/whence/chat-service/route/policy"
	"github.com/whence-dev/whence/internal/gguf"
	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/discover"
	"github.com/whence-dev/whence/pkg/rpc"
)

// A Card configures one model.
type Card struct {
	Name    string   // the name in requests and on workers; "" is the directory's name
	Aliases []string // further names in requests
	// LoRA adapters of the model, by their names on the engines; requests use them like model names
	Adapters []string
	// Directory is a Hugging Face directory with tokenizer and chat template, or a GGUF file; "" is the
	// embedded model, and textonly.Model no files. In a file of cards it may be an id on the hub, which resolve replaces.
	Directory  string
	NoDownload bool     // the files of an id come from the local cache only
	Template   string   // file with a chat template; "" is the template of the directory
	ToolFormat string   // format of tool calls; "" detects it from the chat template
	Context    int      // maximum tokens of prompt and answer together; 0 takes it from config.json
	EOS        []uint32 // tokens that end an answer, besides those that workers know
	Workers    string   // a list or a discover.Source
	Policy     string   // routing policy; see policy.Parse; "" is policy.LeastLoaded
	KV         kvcache.Options

	Migrations   int           // maximum moves of a stream to another worker
	MigrateAfter time.Duration // maximum silence of a worker before its stream moves; 0 means no limit
	// FirstTokenMove is the maximum time to the first token of a short prompt before another worker
	// with a free place takes over; 0 means no limit.
	FirstTokenMove time.Duration
	QueueStreams   int           // maximum waiting streams in the fair queue; 0 means no queue
	QueueTokens    int           // maximum prompt tokens of the waiting streams together
	QueueOutage    time.Duration // maximum waiting time while no worker is healthy
	// HandoverAbove is the maximum number of uncached prompt tokens that a decode worker reads
	// itself.
	HandoverAbove int
	Timers        rpc.Timers
}

const (
	// maxName bounds names, in bytes, because messages contain them.
	maxName = 128
	// MaxAdapters bounds the adapters of a model, because their names are labels of metrics.
	MaxAdapters = 64
)

// MayBeName reports whether requests may use a name for a model or an adapter.
func MayBeName(name string) bool { return name != "" && len(name) <= maxName && utf8.ValidString(name) }

// names returns all names that requests may use for the model and its adapters.
func (c *Card) names() []string {
	return slices.Concat([]string{c.ID()}, c.Aliases, c.Adapters)
}

// ID returns the model's name in requests and on workers.
func (c *Card) ID() string {
	switch {
	case c.Name != "":
		return c.Name
	case c.Directory != "":
		return hub.Name(c.Directory)
	default:
		return whencetiny.Name
	}
}

// Validate returns an error that describes what is wrong with c by the names of flags, or nil.
func (c *Card) Validate() error {
	if n := len(c.Adapters); n > MaxAdapters {
		return fmt.Errorf("there are %d adapters; at most %d are allowed", n, MaxAdapters)
	}
	for _, name := range c.names() {
		if !MayBeName(name) {
			return fmt.Errorf("the name %.64q must be UTF-8 of 1 to %d bytes", name, maxName)
		}
	}
	if err := c.validateTextOnly(); err != nil {
		return err
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
		return fmt.Errorf("--worker: there are %d workers; at most %d are allowed", n, fleet.MaxWorkers)
	}
	if len(source.Static()) != 1 { // a lone worker is never left, so any timers are valid
		settled := c.settle()
		switch {
		case isLate(settled.MigrateAfter, settled.Timers.Stall):
			return fmt.Errorf("--migrate-after is %v; it must be less than --stall-timeout, which is %v", c.MigrateAfter, c.Timers.Stall)
		case isLate(settled.FirstTokenMove, settled.Timers.FirstToken):
			return fmt.Errorf("--first-token-move is %v; it must be less than --first-token-timeout, which is %v", c.FirstTokenMove, c.Timers.FirstToken)
		}
	}
	return c.Timers.Validate()
}

// textOnly reports whether no service has the model's files.
func (c *Card) textOnly() bool { return c.Directory == textonly.Model }

// validateTextOnly refuses options that need the files of a model without files.
func (c *Card) validateTextOnly() error {
	switch {
	case !c.textOnly():
		return nil
	case c.Name == "":
		return fmt.Errorf("--model %s needs --model-name: the name of the model in requests", textonly.Model)
	case c.Template != "" || len(c.EOS) > 0 || c.ToolFormat != "" && c.ToolFormat != chat.ToolFormatAuto:
		return fmt.Errorf("--model %s takes no chat template, no --tool-format and no eos: the server that generates renders conversations, and parses answers", textonly.Model)
	}
	return nil
}

// Defaults of the times after which a stream moves to another worker, and of the timers that end it.
// The timers are longer than the worker's and shorter than the edge's.
const (
	DefaultMigrateAfter   = 10 * time.Second
	DefaultFirstTokenMove = 10 * time.Second
	DefaultFirstToken     = 150 * time.Second
	DefaultStall          = 40 * time.Second
)

// settle returns c with timers that leave a stream time to move before they end it. A time that has
// its default yields to one that was set: a move comes after half of the timer, or the timer after
// twice the move. If both were set, both stay.
func (c *Card) settle() Card {
	settled := *c
	yield(&settled.MigrateAfter, DefaultMigrateAfter, &settled.Timers.Stall, DefaultStall)
	yield(&settled.FirstTokenMove, DefaultFirstTokenMove, &settled.Timers.FirstToken, DefaultFirstToken)
	return settled
}

func yield(move *time.Duration, defaultMove time.Duration, timer *time.Duration, defaultTimer time.Duration) {
	switch {
	case !isLate(*move, *timer):
	case *move == defaultMove:
		*move = *timer / 2
	case *timer == defaultTimer:
		*timer = 2 * *move
	}
}

// isLate reports whether a timer ends a stream before the stream would move; 0 means no limit.
func isLate(move, timer time.Duration) bool { return timer > 0 && move >= timer }

// AddID makes the model's id on the hub an alias, which other servers have as its name. A model with a
// name of its own has none: several cards may have the same files.
func (c *Card) AddID() {
	if id := hub.ID(c.Directory); id != "" && c.Name == "" && !slices.Contains(c.names(), id) {
		c.Aliases = append(slices.Clone(c.Aliases), id)
	}
}

// resolve replaces an id on the hub by the path of its files.
func (c *Card) resolve(ctx context.Context, log *slog.Logger) error {
	if filepath.IsAbs(c.Directory) || c.Directory == "" {
		return nil
	}
	path, err := hub.ResolveID(ctx, c.Directory, hub.Options{NoDownload: c.NoDownload, Log: log})
	if err != nil {
		return fmt.Errorf("model %s: %w", c.ID(), err)
	}
	c.Directory = path
	return nil
}

// files returns the model's directory, with the card's template if it has one, and the owner of the
// model.
func (c *Card) files() (dir fs.FS, owner string, err error) {
	dir, owner = whencetiny.FS(), whencetiny.Owner
	if c.textOnly() {
		return embed.FS{}, "", nil
	}
	if c.Directory != "" {
		if dir, err = gguf.Description(c.Directory); err != nil {
			return nil, "", err
		}
		owner = ""
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

// A templateOverride is a directory with a different chat template.
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
