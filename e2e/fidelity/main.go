// Command fidelity compares the tokenizer and the chat templates with their references, over the
// files of published models: the Rust library "tokenizers", and Jinja2 in the setup of
// transformers. It prints tables and the differences.
//
//	fidelity [FLAGS] [tokenizer] [trained] [patterns] [files] [templates] [stream] [speed]
//
// compares all of them by default; the reference of stream is Whence's own engine. The status is 1
// if there is a difference. The models and references are not in the repository: scripts/fidelity
// installs them and then runs this command.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/whence-dev/whence/e2e/fidelity/streams"
)

// A comparison holds the options of the command line.
type comparison struct {
	root, packages   string // directories: the repository, and the installation of scripts/fidelity
	also             string // a directory of further templates; "" for none
	strings, renders int    // for each family
	requests         int
	seed             uint64
}

func main() {
	c := comparison{}
	flag.StringVar(&c.root, "root", ".", "the `directory` of the repository, whose texts are used to measure speed")
	flag.StringVar(&c.packages, "packages", ".cache/fidelity", "the `directory` of the references and models")
	flag.StringVar(&c.also, "also", "", "a `directory` with additional templates (*.jinja) to compare")
	flag.IntVar(&c.strings, "strings", 5000, "texts to encode and decode, for each family")
	flag.IntVar(&c.renders, "renders", 500, "conversations to render, for each family")
	flag.IntVar(&c.requests, "requests", 2000, "requests whose streams are compared")
	flag.Uint64Var(&c.seed, "seed", 1, "seed of the texts and conversations")
	flag.Parse()
	parts := flag.Args()
	if len(parts) == 0 {
		parts = []string{"tokenizer", "trained", "patterns", "files", "templates", "stream", "speed"}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := c.run(ctx, os.Stdout, parts)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run prints the table of each part. A difference in any of them is an error.
func (c *comparison) run(ctx context.Context, out io.Writer, parts []string) error {
	known := map[string]func(context.Context) (table string, differs bool, err error){
		"tokenizer": c.tokenizers, "trained": c.trained, "patterns": c.patterns, "files": c.files, "templates": c.templates, "stream": c.streams, "speed": c.speed,
	}
	for _, part := range parts {
		if known[part] == nil {
			return fmt.Errorf("unknown part %q; the parts are tokenizer, trained, patterns, files, templates, stream and speed", part)
		}
	}
	differs := false
	for _, part := range parts {
		table, differ, err := known[part](ctx)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, table); err != nil {
			return err
		}
		differs = differs || differ
	}
	if differs {
		return errors.New("there are differences")
	}
	return nil
}

func (c *comparison) tokenizers(ctx context.Context) (string, bool, error) {
	var rows []*tokenizerRow
	for _, f := range families(c.packages) {
		row, err := compareTokenizers(ctx, c.packages, f, c.strings, c.seed)
		if err != nil {
			return "", false, err
		}
		rows = append(rows, row)
	}
	return tokenizerTable(rows) + fmt.Sprintf("\n%d tokenizers of published models were compared.\n", len(rows)) + differences(rows), differences(rows) != "", nil
}

// trained says so if the programs that train tokenizers are not installed.
func (c *comparison) trained(ctx context.Context) (string, bool, error) {
	if !hasPrograms(c.packages) {
		return "trained: not compared: tokenizers and sentencepiece cannot be installed from PyPI\n", false, nil
	}
	rows, err := compareTrained(ctx, c.packages, c.strings, c.seed)
	if err != nil {
		return "", false, err
	}
	return tokenizerTable(rows) + differences(rows), differences(rows) != "", nil
}

func (c *comparison) patterns(ctx context.Context) (string, bool, error) {
	var rows []*patternRow
	for _, class := range patternClasses {
		row, err := comparePatterns(ctx, c.packages, class, c.strings/10, c.seed)
		if err != nil {
			return "", false, err
		}
		rows = append(rows, row)
	}
	return patternTable(rows), differences(rows) != "", nil
}

// files says so if the programs of the formats are not installed.
func (c *comparison) files(ctx context.Context) (string, bool, error) {
	if !hasPrograms(c.packages) {
		return "files: not compared: tiktoken, sentencepiece and mistral-common cannot be installed\n", false, nil
	}
	rows, err := compareFiles(ctx, c.packages, c.strings, c.seed)
	if err != nil {
		return "", false, err
	}
	return fileTable(rows), differences(rows) != "", nil
}

func (c *comparison) templates(ctx context.Context) (string, bool, error) {
	var rows []*templateRow
	subjects, err := subjects(c.packages, c.also)
	if err != nil {
		return "", false, err
	}
	for _, s := range subjects {
		row, err := compareTemplates(ctx, s, c.renders, c.seed)
		if err != nil {
			return "", false, err
		}
		rows = append(rows, row)
	}
	return templateTable(rows), differences(rows) != "", nil
}

func (c *comparison) streams(ctx context.Context) (string, bool, error) {
	row, err := streams.Compare(ctx, c.requests, c.seed)
	if err != nil {
		return "", false, err
	}
	return row.Table(), len(row.Differences()) > 0, nil
}

// timed has the tokenizers whose speed is measured: one or more of each kind.
var timed = []string{"Llama 3", "Qwen 3", "Gemma 3", "WordPiece, BERT uncased", "Unigram, T5", "Unigram, XLM-R"}

func (c *comparison) speed(ctx context.Context) (string, bool, error) {
	texts, err := speedTexts(c.root, c.seed)
	if err != nil {
		return "", false, err
	}
	all := families(c.packages)
	if hasPrograms(c.packages) {
		dir, err := os.MkdirTemp("", "fidelity")
		if err != nil {
			return "", false, err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
		trained, err := train(ctx, c.packages, dir, c.seed)
		if err != nil {
			return "", false, err
		}
		all = append(all, trained...)
	}
	var rows []speedRow
	for _, f := range all {
		if !slices.Contains(timed, f.name) {
			continue
		}
		some, err := compareSpeed(ctx, c.packages, f, texts)
		if err != nil {
			return "", false, err
		}
		rows = append(rows, some...)
	}
	return speedTable(rows), false, nil
}

// A row of a table has its first differences.
type row interface{ differences() []string }

// differences returns the differences of all rows.
func differences[R row](rows []R) string {
	var b strings.Builder
	for _, r := range rows {
		for _, difference := range r.differences() {
			b.WriteString("\n" + difference + "\n")
		}
	}
	return b.String()
}
