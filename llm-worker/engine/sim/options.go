package sim

import (
	"errors"
	"flag"
	"fmt"
	"time"
)

// Options describe the simulated machine. A zero field has its default, unless its comment says
// otherwise.
type Options struct {
	// PrefillToken is the time per prompt token that is not in the KV cache.
	PrefillToken time.Duration
	// Step is the fixed time of a step; Stream is the time that each answering stream adds to it.
	Step, Stream time.Duration
	// Transfer is the time to fetch a prompt that another worker has prefilled; TransferToken is
	// the time that each of its tokens adds unless it is in the KV cache.
	Transfer, TransferToken time.Duration
	// Chunk is the maximum number of prompt tokens per step.
	Chunk int
	// Speed divides all times: 10 is ten times as fast.
	Speed float64
	// ContextLength is the maximum number of tokens of a prompt and its answer together; 0 means
	// the model's.
	ContextLength int
	// KVTokens is the size of the KV cache, rounded up to whole blocks, and Block the size of a
	// block, both in tokens.
	KVTokens, Block int
	// Quiet suppresses the reports of the KV cache's content.
	Quiet bool
	// Answer is the average number of tokens of an answer that no other limit ends.
	Answer int
	// Fail and Stall are the fractions of all streams that fail or stall, from 0 to 1; 0 means
	// none. StallFor is the length of a stall; 0 means until the stream is stopped. Seed selects
	// the streams.
	Fail, Stall float64
	StallFor    time.Duration
	Seed        uint64
}

// The defaults approximate a model of eight billion parameters on one GPU of 80 GB: 20,000 prompt
// tokens per second, steps of eight milliseconds, 32 GB of KV cache at 128 kB per token, and a
// network of 400 Gbit/s.
const (
	DefaultPrefillToken = 50 * time.Microsecond
	DefaultStep         = 8 * time.Millisecond
	DefaultStream       = 50 * time.Microsecond
	DefaultTransfer     = 5 * time.Millisecond
	DefaultPerToken     = 3 * time.Microsecond
	DefaultChunk        = 512
	DefaultSpeed        = 1
	DefaultKVTokens     = 1 << 18
	DefaultBlock        = 16
	DefaultAnswer       = 256
)

// Flags adds the flags of o to fs, except for the size of the KV cache, a flag that all engines
// share.
func (o *Options) Flags(fs *flag.FlagSet) {
	fs.DurationVar(&o.PrefillToken, "sim-prefill-token", DefaultPrefillToken, "simulated time per prompt token that is not in the KV cache")
	fs.DurationVar(&o.Step, "sim-step", DefaultStep, "simulated fixed time of a step")
	fs.DurationVar(&o.Stream, "sim-stream", DefaultStream, "simulated time that each stream adds to a step")
	fs.DurationVar(&o.Transfer, "sim-transfer", DefaultTransfer, "simulated fixed time to fetch a prompt that another worker has read")
	fs.DurationVar(&o.TransferToken, "sim-transfer-token", DefaultPerToken, "simulated time that each token adds to --sim-transfer unless it is in the KV cache")
	fs.IntVar(&o.Chunk, "sim-chunk", DefaultChunk, "maximum prompt `tokens` per simulated step")
	fs.Float64Var(&o.Speed, "sim-speed", DefaultSpeed, "divisor of all simulated times: 10 is ten times as fast")
	fs.IntVar(&o.ContextLength, "sim-context", 0, "maximum `tokens` of a prompt and its answer together, in the simulator; 0 for the model's")
	fs.IntVar(&o.Block, "sim-block", DefaultBlock, "`tokens` in a block of the simulator's KV cache")
	fs.BoolVar(&o.Quiet, "sim-quiet", false, "do not report the content of the simulator's KV cache")
	fs.IntVar(&o.Answer, "sim-answer", DefaultAnswer, "average `tokens` of the simulator's answers that nothing else ends")
	fs.Float64Var(&o.Fail, "sim-fail", 0, "fraction of the simulator's streams that fail, from 0 to 1")
	fs.Float64Var(&o.Stall, "sim-stall", 0, "fraction of the simulator's streams that stall, from 0 to 1")
	fs.DurationVar(&o.StallFor, "sim-stall-for", 0, "duration of a simulated stall; 0 until the stream is stopped")
	fs.Uint64Var(&o.Seed, "sim-seed", 0, "seed that selects the simulator's streams that fail or stall")
}

// Validate checks o. Its errors name the flags.
func (o *Options) Validate() error {
	switch {
	case o.Transfer < 0 || o.TransferToken < 0:
		return errors.New("--sim-transfer and --sim-transfer-token must not be negative")
	case o.PrefillToken < 0 || o.Step < 0 || o.Stream < 0 || o.StallFor < 0:
		return errors.New("--sim-prefill-token, --sim-step, --sim-stream and --sim-stall-for must not be negative")
	case o.Chunk < 0 || o.Block < 0 || o.Answer < 0 || o.ContextLength < 0:
		return errors.New("--sim-chunk, --sim-block, --sim-answer and --sim-context must not be negative")
	case o.Block > maxBlock:
		return fmt.Errorf("--sim-block is %d; it must be at most %d", o.Block, maxBlock)
	case o.Speed < 0 || o.Speed != o.Speed:
		return fmt.Errorf("--sim-speed is %v; it must be over 0", o.Speed)
	case !(o.Fail >= 0 && o.Fail <= 1) || !(o.Stall >= 0 && o.Stall <= 1):
		return fmt.Errorf("--sim-fail is %v and --sim-stall %v; they must be from 0 to 1", o.Fail, o.Stall)
	}
	return nil
}

const maxBlock = 1024

// withDefaults returns o with its zero fields set to their defaults.
func withDefaults(o Options) Options {
	orTime := func(v *time.Duration, def time.Duration) {
		if *v <= 0 {
			*v = def
		}
	}
	orTime(&o.PrefillToken, DefaultPrefillToken)
	orTime(&o.Step, DefaultStep)
	orTime(&o.Stream, DefaultStream)
	orTime(&o.Transfer, DefaultTransfer)
	orTime(&o.TransferToken, DefaultPerToken)
	or := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	or(&o.Chunk, DefaultChunk)
	or(&o.KVTokens, DefaultKVTokens)
	or(&o.Block, DefaultBlock)
	or(&o.Answer, DefaultAnswer)
	if !(o.Speed > 0) {
		o.Speed = DefaultSpeed
	}
	return o
}
