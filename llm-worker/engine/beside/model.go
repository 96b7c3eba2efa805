package beside

import (
	"errors"
	"path"
	"slices"
)

// A Model is the server's description of its model. Fields that the server does not report are 0 or
// "".
type Model struct {
	Name       string // usually a path
	Context    int
	Vocab      int
	EOS        []uint32
	Generation bool // the model generates, and does not only embed
}

// Upstream returns the Upstream of the model, without the fields that depend on the kind of server.
// config is the operator's description of the model, or nil; it fills in what the server does not
// report.
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
		return nil, errors.New("the server reports neither its context length nor the size of its vocabulary; name a model directory that has them with --model")
	}
	return up, nil
}
