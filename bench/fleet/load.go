package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// A load is a set of conversations; equal seeds make equal loads.
type load struct {
	name, says    string
	conversations []conversation
}

// A conversation begins at a time and has turns. The prompt of each turn contains all previous
// turns.
type conversation struct {
	at     time.Duration // of simulated time
	id     string        // of the session; empty means none
	prefix []uint32      // prefix shared with other conversations
	turns  []turn
}

// A turn is a question, the length of its answer, and the time until the reader continues.
type turn struct {
	ask    []uint32
	answer int // tokens
	think  time.Duration
}

// vocabulary is the upper bound, exclusive, of the token ids of prompts.
const vocabulary = 1500

func tokens(random *rand.Rand, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = random.Uint32N(vocabulary)
	}
	return ids
}

// sharedPrefix returns questions about few documents: one of 64 prefixes of 4,096 tokens, drawn
// uniformly, then 256 tokens that no other request has.
func sharedPrefix(requests int, rate float64, seed uint64) load {
	random := rand.New(rand.NewPCG(seed, 1))
	documents := make([][]uint32, 64)
	for i := range documents {
		documents[i] = tokens(random, 4096)
	}
	l := load{name: "shared prefix", says: fmt.Sprintf("%d requests, %g a second: one of 64 prefixes of 4,096 tokens and 256 tokens of its own, 16 tokens of answer", requests, rate)}
	at := time.Duration(0)
	for range requests {
		at += exponential(random, 1/rate)
		l.conversations = append(l.conversations, conversation{
			at: at, prefix: documents[random.IntN(len(documents))], turns: []turn{{ask: tokens(random, 256), answer: 16}},
		})
	}
	return l
}

// trace returns a load with the shape of the traces that Mooncake published: conversations of
// several turns, shared prefixes with a power-law distribution, and turns with a long-tailed
// length.
func trace(requests int, rate float64, seed uint64) load {
	random := rand.New(rand.NewPCG(seed, 2))
	prefixes := make([][]uint32, 200)
	for i := range prefixes {
		prefixes[i] = tokens(random, 256*(1+random.IntN(12)))
	}
	popular := rand.NewZipf(random, 1.2, 4, uint64(len(prefixes)-1))
	const turns = 4 // on average
	l := load{name: "conversations", says: fmt.Sprintf("%d requests, about %g a second: conversations of %d turns on average, beginning with one of 200 prefixes of 256 to 3,072 tokens by a power law, with questions of 300 tokens (median) and answers of 8 to 40", requests, rate, turns)}
	at := time.Duration(0)
	for made := 0; made < requests; {
		at += exponential(random, turns/rate)
		c := conversation{at: at, id: strconv.Itoa(len(l.conversations)), prefix: prefixes[popular.Uint64()]}
		for ends := false; !ends && made < requests; ends = random.IntN(turns) == 0 {
			asked := min(4000, int(300*math.Exp(random.NormFloat64())))
			c.turns = append(c.turns, turn{ask: tokens(random, max(8, asked)), answer: 8 + random.IntN(33), think: exponential(random, 2)})
			made++
		}
		l.conversations = append(l.conversations, c)
	}
	return l
}

// exponential draws an exponentially distributed time with this mean, in seconds.
func exponential(random *rand.Rand, mean float64) time.Duration {
	return time.Duration(random.ExpFloat64() * mean * float64(time.Second))
}
