package pace

import "testing"

// Many short prompts hold up the worker's other streams no more than a few long ones.
func TestShortPromptsMoveTogether(t *testing.T) {
	m := Moves{}
	for range Streams {
		if m.Full(1<<20, Tokens) {
			t.Errorf("%+v is full", m)
		}
		m = m.Add(1, 100)
	}
	if left := Tokens - Streams*100; m.Full(left, Tokens) || !m.Full(left+1, Tokens) {
		t.Errorf("%+v", m)
	}
	if m = m.Add(-1, -100); m.Full(1<<20, Tokens) {
		t.Errorf("%+v is full", m)
	}
}
