package models

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/textonly"
)

const (
	// maxFile bounds the size of a models file, in bytes.
	maxFile = 1 << 20
	// maxModels bounds the number of models.
	maxModels = 64
)

// A fileCard is a card in a file. The flags are the defaults for missing keys.
type fileCard struct {
	Name         string         `yaml:"name"`
	Aliases      []string       `yaml:"aliases"`
	Adapters     []string       `yaml:"adapters"`
	Directory    string         `yaml:"directory"`
	Template     string         `yaml:"template"`
	ToolFormat   string         `yaml:"tool-format"`
	Context      int            `yaml:"context"`
	EOS          []uint32       `yaml:"eos"`
	Workers      addresses      `yaml:"workers"`
	Policy       string         `yaml:"policy"`
	Migrations   *int           `yaml:"migrations"`
	MigrateAfter *time.Duration `yaml:"migrate-after"`
	FirstMove    *time.Duration `yaml:"first-token-move"`
	QueueStreams *int           `yaml:"queue-streams"`
	QueueTokens  *int           `yaml:"queue-tokens"`
	QueueOutage  *time.Duration `yaml:"queue-outage"`
	Above        *int           `yaml:"handover-above"`
	Deadline     *time.Duration `yaml:"deadline"`
	FirstToken   *time.Duration `yaml:"first-token-timeout"`
	Stall        *time.Duration `yaml:"stall-timeout"`
}

// addresses is a list, or a text, in YAML. A list becomes a text with commas.
type addresses string

// UnmarshalYAML implements yaml.Unmarshaler.
func (a *addresses) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.SequenceNode {
		return node.Decode((*string)(a))
	}
	var list []string
	if err := node.Decode(&list); err != nil {
		return err
	}
	*a = addresses(strings.Join(list, ","))
	return nil
}

// read returns the content of a models file.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes; at most %d are allowed", path, info.Size(), maxFile)
	}
	return os.ReadFile(path)
}

// parse parses the cards of the file at path. Paths in the file are relative to its directory.
// defaults has the values of missing keys.
func parse(text []byte, path string, defaults Card) ([]Card, error) {
	var file struct {
		Models []fileCard `yaml:"models"`
	}
	in := yaml.NewDecoder(strings.NewReader(string(text)))
	in.KnownFields(true) // a misspelt key must not pass as a missing key
	if err := in.Decode(&file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := in.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is more than one document; put all models into one list", path)
	}
	dir := filepath.Dir(path)
	var cards []Card
	for i := range file.Models {
		card := file.Models[i].card(dir, defaults)
		if err := card.Validate(); err != nil {
			return nil, fmt.Errorf("%s: model %.64q: %s", path, card.ID(), keys.Replace(err.Error()))
		}
		cards = append(cards, card)
	}
	if err := check(cards); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cards, nil
}

// keys replaces the names of flags in errors of Validate by the keys of the file.
var keys = strings.NewReplacer("--worker", "workers", "--", "")

func (f *fileCard) card(dir string, c Card) Card {
	c.Name, c.Aliases, c.Adapters, c.Context, c.EOS = f.Name, f.Aliases, f.Adapters, f.Context, f.EOS
	c.Directory, c.Template = modelAt(dir, f.Directory), within(dir, f.Template)
	c.AddID()
	if f.ToolFormat != "" {
		c.ToolFormat = f.ToolFormat
	}
	if f.Workers != "" {
		c.Workers = string(f.Workers)
	}
	if f.Policy != "" {
		c.Policy = f.Policy
	}
	replace(&c.Migrations, f.Migrations)
	replace(&c.MigrateAfter, f.MigrateAfter)
	replace(&c.FirstTokenMove, f.FirstMove)
	replace(&c.QueueStreams, f.QueueStreams)
	replace(&c.QueueTokens, f.QueueTokens)
	replace(&c.QueueOutage, f.QueueOutage)
	replace(&c.HandoverAbove, f.Above)
	replace(&c.Timers.Deadline, f.Deadline)
	replace(&c.Timers.FirstToken, f.FirstToken)
	replace(&c.Timers.Stall, f.Stall)
	return c
}

func replace[T any](value, by *T) {
	if by != nil {
		*value = *by
	}
}

func within(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// modelAt returns the absolute path of a model, or an id on the Hugging Face hub as it is, unless dir has
// a model of that name.
func modelAt(dir, reference string) string {
	if reference == textonly.Model {
		return reference
	}
	path := within(dir, reference)
	if path == "" {
		return ""
	}
	if _, err := os.Stat(path); err != nil && hub.IsID(reference) {
		return reference
	}
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	return path
}

// check returns an error if the cards cannot be served together.
func check(cards []Card) error {
	if len(cards) == 0 {
		return errors.New("there are no models")
	}
	if len(cards) > maxModels {
		return fmt.Errorf("there are %d models; at most %d are allowed", len(cards), maxModels)
	}
	taken := map[string]bool{}
	for i := range cards {
		for _, name := range cards[i].names() {
			if taken[name] {
				return fmt.Errorf("the name %q is used twice", name)
			}
			taken[name] = true
		}
	}
	return nil
}
