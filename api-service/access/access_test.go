package access

import "testing"

// TestBlankOperatorKeyIsNone: with a blank operator key, a request with a bare scheme is not the
// operator's.
func TestBlankOperatorKeyIsNone(t *testing.T) {
	for _, key := range []string{"", " ", " \t"} {
		g := Guard{Operator: key}
		for _, authorization := range []string{"", "Bearer", "Bearer ", "Bearer " + key} {
			if c, err := g.Caller(t.Context(), authorization); err != nil || c.Operates {
				t.Errorf("operator key %q, Authorization %q: operates %t, %v", key, authorization, c.Operates, err)
			}
		}
	}
	g := Guard{Operator: "op"}
	if c, err := g.Caller(t.Context(), "bearer  op"); err != nil || !c.Operates {
		t.Errorf("the operator's key does not identify the operator: %+v, %v", c, err)
	}
}
