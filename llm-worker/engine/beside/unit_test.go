package beside_test

import (
	"math"
	"testing"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

func TestVectorsWithoutADirectionAreRefused(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, v := range [][]float32{nil, {0, 0}, {1, inf}, {nan, 1}, {1}, {-inf, inf}} {
		if values, err := beside.Unit(v); err == nil {
			t.Errorf("%v became %v", v, values)
		}
	}
	if values, err := beside.Unit([]float32{math.MaxFloat32, 0}); err != nil || values[0] != 1 {
		t.Error(values, err)
	}
}
