package beside

import (
	"errors"
	"path"
	"slices"
)

// A Model is what a server says of the model that it runs; 0 and "" where it does not say.
type Model struct {
	Name       string // a path, as a rule
	Context    int
	Vocab      int
	EOS        []uint32
	Generation bool // it generates, and does not only embed
}

// Upstream returns the upstream of such a model, without what depends on the server's make. config is what the operator says
// that the model is, nil for nothing: it fills what the server leaves out.
func (m *Model) Upstream(config *Config) (*Upstream, error) {
	if config == nil {
		config = new(Config)
	}
	up := &Upstream{Name: path.Base(m.Name), Context: m.Context, Vocab: m.Vocab, EOS: slices.Concat(m.EOS, config.EOS)}
	if config.Context > 0 && (up.Context <= 0 || config.Context < up.Context) {
		up.Context = config.Context
	}
	if up.Vocab <= 0 {
		up.Vocab = config.Vocab
	}
	slices.Sort(up.EOS)
	up.EOS = slices.Compact(up.EOS)
	switch {
	case !m.Generation:
		return nil, errors.New("the server runs a model that does not generate")
	case up.Context <= 0 || up.Vocab <= 0:
		return nil, errors.New("the server does not say how long contexts are and how large the vocabulary is; --model names a directory that does")
	}
	return up, nil
}
