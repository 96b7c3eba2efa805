package tinyllama

import (
	"fmt"
	"math"
)

// ropeJSON is rope_scaling, or rope_parameters, of config.json.
type ropeJSON struct {
	Type       string   `json:"rope_type"`
	OldType    string   `json:"type"`
	Theta      *float64 `json:"rope_theta"`
	Factor     float64  `json:"factor"`
	LowFactor  float64  `json:"low_freq_factor"`
	HighFactor float64  `json:"high_freq_factor"`
	Original   float64  `json:"original_max_position_embeddings"`
	// Factors divide the frequency of each pair. Only internal/gguf writes them: its files have the
	// result of llama3 instead of its parameters.
	Factors []float64 `json:"factors"`
}

// rope returns the angle by which each pair of a head turns from one position to the next.
func (j *configJSON) rope(headDim int) ([]float64, error) {
	scaling := ropeJSON{}
	switch {
	case j.RopeParams != nil:
		scaling = *j.RopeParams
	case j.RopeScaling != nil:
		scaling = *j.RopeScaling
	}
	theta := or(scaling.Theta, or(j.RopeTheta, 10000))
	if !positive(theta) {
		return nil, fmt.Errorf("rope_theta is %v", theta)
	}
	if scaling.Type == "" {
		scaling.Type = scaling.OldType
	}
	scale, err := scaling.scale()
	if err != nil {
		return nil, err
	}
	frequencies := make([]float64, headDim/2)
	for i := range frequencies {
		frequencies[i] = scale(math.Pow(theta, -2*float64(i)/float64(headDim)))
	}
	if scaling.Type != "factors" {
		return frequencies, nil
	}
	if len(scaling.Factors) != len(frequencies) {
		return nil, fmt.Errorf("rope_scaling has %d factors for %d pairs", len(scaling.Factors), len(frequencies))
	}
	for i, factor := range scaling.Factors {
		if !positive(factor) {
			return nil, fmt.Errorf("rope_scaling has the factor %v", factor)
		}
		frequencies[i] /= factor
	}
	return frequencies, nil
}

// scale returns how a frequency changes for contexts longer than the model was first trained on.
func (r *ropeJSON) scale() (func(float64) float64, error) {
	switch r.Type {
	case "", "default", "factors":
		return func(f float64) float64 { return f }, nil
	case "linear":
		if !positive(r.Factor) {
			return nil, fmt.Errorf("rope_scaling factor is %v", r.Factor)
		}
		return func(f float64) float64 { return f / r.Factor }, nil
	case "llama3":
		if !positive(r.Factor) || !positive(r.LowFactor) || !positive(r.HighFactor) || !positive(r.Original) || r.HighFactor <= r.LowFactor {
			return nil, fmt.Errorf("rope_scaling %+v is not what llama3 needs", *r)
		}
		return r.llama3, nil
	default:
		return nil, fmt.Errorf("rope_scaling of type %q is not supported, only linear and llama3", r.Type)
	}
}

// llama3 slows low frequencies down by the factor, leaves high ones alone, and blends between.
func (r *ropeJSON) llama3(f float64) float64 {
	turns := r.Original * f / (2 * math.Pi) // within the original context
	switch {
	case turns < r.LowFactor:
		return f / r.Factor
	case turns > r.HighFactor:
		return f
	default:
		blend := (turns - r.LowFactor) / (r.HighFactor - r.LowFactor)
		return (1-blend)*f/r.Factor + blend*f
	}
}
