package main

import (
	"context"
	"os"
)

// corpusTexts is the number of texts with which tokenizers are trained. The texts that are compared are
// others.
const corpusTexts = 1500

type trainedQuestion struct {
	Texts     [][]byte `json:"texts"`
	Directory string   `json:"directory"`
}

// compareTrained compares tokenizers of kinds that the packages of published models lack, trained for
// the comparison: those of embedding models.
func compareTrained(ctx context.Context, packages string, n int, seed uint64) ([]*tokenizerRow, error) {
	dir, err := os.MkdirTemp("", "fidelity")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	trained, err := train(ctx, packages, dir, seed)
	if err != nil {
		return nil, err
	}
	var rows []*tokenizerRow
	for _, f := range trained {
		row, err := compareTokenizers(ctx, packages, f, n, seed)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// train writes the tokenizers into directories in dir.
func train(ctx context.Context, packages, dir string, seed uint64) ([]family, error) {
	q := trainedQuestion{Directory: dir}
	for _, text := range newWriter(seed + 1).texts(corpusTexts) {
		q.Texts = append(q.Texts, []byte(text))
	}
	var files []struct{ Name, Directory string }
	if err := ask(ctx, []string{filesPython(packages), "-c", trainedScript}, q, &files); err != nil {
		return nil, err
	}
	var trained []family
	for _, f := range files {
		trained = append(trained, family{f.Name, f.Directory})
	}
	return trained, nil
}
