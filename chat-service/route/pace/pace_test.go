package pace

import (
	"testing"
	"time"
)

// Many short prompts hold up the worker's other streams no more than a few long ones.
func TestShortPromptsMoveTogether(t *testing.T) {
	m := Moves{}
	for range Streams {
		if m.Full(1<<20, Tokens) {
			t.Errorf("%+v is full", m)
		}
		m = m.Add(100)
	}
	if left := Tokens - Streams*100; m.Full(left, Tokens) || !m.Full(left+1, Tokens) {
		t.Errorf("%+v", m)
	}
	if m = m.Done(100, false, 0); m.Full(1<<20, Tokens) {
		t.Errorf("%+v is full", m)
	}
}

// rounds moves as many streams of 150 tokens as are admitted, until the worker has read all of
// them, and returns the number of rounds. In each round, first tokens come after the same time.
func rounds(streams int, after time.Duration) (n int) {
	m := Moves{}
	for ; streams > 0; n++ {
		admitted := 0
		for ; admitted < streams && !m.Full(150, Tokens); admitted++ {
			m = m.Add(150)
		}
		for range admitted {
			m = m.Done(150, true, after)
		}
		streams -= admitted
	}
	return n
}

// A worker that reads prompts promptly is given more of them together; a slow one is not.
func TestLimitGrowsWhileTokensComePromptly(t *testing.T) {
	if got := rounds(250, Prompt); got != 10 { // 13 streams, then 26, and 27 at a time
		t.Errorf("a prompt worker has read 250 streams after %d rounds", got)
	}
	if got := rounds(250, Prompt+1); got != 20 { // 13 streams at a time
		t.Errorf("a slow worker has read 250 streams after %d rounds", got)
	}
}

// One late token is enough to fall back to the first limit, and the limit has a bound.
func TestLimitFallsBack(t *testing.T) {
	m := Moves{}
	for range 1000 {
		m = m.Add(1000).Done(1000, true, 0)
	}
	for range Streams {
		m = m.Add(1)
	}
	if m.Full(MostTokens-Streams, Tokens) || !m.Full(MostTokens-Streams+1, Tokens) {
		t.Errorf("%+v: the limit must be %d", m, MostTokens)
	}
	m = m.Add(1).Done(1, true, Prompt+1)
	if m.Full(Tokens-Streams, Tokens) || !m.Full(Tokens-Streams+1, Tokens) {
		t.Errorf("%+v: the limit must be %d again", m, Tokens)
	}
}
