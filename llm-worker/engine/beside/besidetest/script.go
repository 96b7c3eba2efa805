package besidetest

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Script answers a request. An error is sent as a status.
type Script func(*Answer) error

// Count answers with the requested number of tokens, one per millisecond.
func Count(a *Answer) error {
	if !a.Count(a.Max()) {
		return a.Aborted()
	}
	a.Complete("length")
	return nil
}

// A Misdeed is a way in which a server misbehaves, and the expected ending.
type Misdeed struct {
	Script Script
	Reason streamerr.Reason
	Tokens int    // tokens before the ending
	Says   string // text that the message contains
}

// fails answers with some tokens and then a status.
func fails(after int, code codes.Code, words string) Script {
	return func(a *Answer) error {
		a.Count(after)
		return status.Error(code, words)
	}
}

// after calls do after one token.
func after(do func(a *Answer)) Script {
	return func(a *Answer) error {
		a.Count(1)
		do(a)
		return nil
	}
}

var misdeeds = map[string]Misdeed{
	"closes at once":                     {func(*Answer) error { return nil }, streamerr.PeerLost, 0, "without an ending"},
	"closes in mid-answer":               {after(func(*Answer) {}), streamerr.PeerLost, 1, "without an ending"},
	"breaks the connection":              {after(func(a *Answer) { a.Server.CutOnceRead() }), streamerr.PeerLost, 1, "broke the connection"},
	"breaks it before it answers":        {func(a *Answer) error { a.Server.Cut(); return nil }, streamerr.Unavailable, 0, "cannot be reached"},
	"is aborted by somebody else":        {after(func(a *Answer) { a.Complete("abort") }), streamerr.PeerLost, 1, `"abort"`},
	"says that it has failed, in band":   {after(func(a *Answer) { a.Complete("error") }), streamerr.EngineFailed, 1, `"error"`},
	"ends without a finish reason":       {after(func(a *Answer) { a.Complete("") }), streamerr.EngineFailed, 1, `""`},
	"goes on behind its ending":          {after(func(a *Answer) { a.Complete("stop"); a.Chunk(7) }), streamerr.EngineFailed, 1, "continues"},
	"ends twice":                         {after(func(a *Answer) { a.Complete("stop"); a.Complete("stop") }), streamerr.EngineFailed, 1, "continues"},
	"fails behind its ending":            {func(a *Answer) error { a.Count(1); a.Complete("stop"); return status.Error(codes.Internal, "boom") }, streamerr.EngineFailed, 1, "boom"},
	"sends a message of nothing":         {after(func(a *Answer) { a.Send(nil) }), streamerr.EngineFailed, 1, "neither"},
	"sends only what nobody knows":       {after(func(a *Answer) { a.Send(Message(nil).AddUint(999, 1)) }), streamerr.EngineFailed, 1, "neither"},
	"sends no protobuf":                  {after(func(a *Answer) { a.Send(Message{0xFF, 0xFF, 0xFF}) }), streamerr.EngineFailed, 1, "wire-format"},
	"sends 5 MB":                         {after(func(a *Answer) { a.Chunk(make([]uint32, 5<<20)...) }), streamerr.EngineFailed, 1, "larger than max"},
	"sends a token that the model lacks": {after(func(a *Answer) { a.Chunk(1 << 20) }), streamerr.EngineFailed, 1, "vocabulary"},
	"never ends":                         {func(a *Answer) error { a.Count(1 << 30); return nil }, streamerr.EngineFailed, 50, "more tokens than the 50"},
	"refuses the request":                {fails(0, codes.InvalidArgument, "too long, by far"), streamerr.Invalid, 0, "too long, by far"},
	"refuses it in mid-answer":           {fails(1, codes.InvalidArgument, "grammar is wrong"), streamerr.Invalid, 1, "grammar is wrong"},
	"is out of range":                    {fails(0, codes.OutOfRange, "so long"), streamerr.Invalid, 0, "so long"},
	"does not know the model":            {fails(0, codes.NotFound, "no model m"), streamerr.NotFound, 0, "no model m"},
	"is overloaded":                      {fails(0, codes.ResourceExhausted, "queue is full"), streamerr.Overloaded, 0, "queue is full"},
	"drains":                             {fails(0, codes.Unavailable, "shutting down"), streamerr.Unavailable, 0, "shutting down"},
	"has a full queue":                   {fails(0, codes.Unavailable, "The engine is currently busy and cannot accept new requests."), streamerr.Overloaded, 0, "busy"},
	"has too many prompts to read":       {fails(0, codes.Unavailable, "The engine has reached its prefill token backlog limit."), streamerr.Overloaded, 0, "backlog"},
	"is overloaded in mid-answer":        {fails(1, codes.ResourceExhausted, "preempted"), streamerr.Overloaded, 1, "preempted"},
	"drains in mid-answer":               {fails(1, codes.Unavailable, "shutting down"), streamerr.Unavailable, 1, "shutting down"},
	"is too slow for itself":             {fails(0, codes.DeadlineExceeded, "30 s"), streamerr.Deadline, 0, "30 s"},
	"fails":                              {fails(0, codes.Internal, "CUDA out of memory"), streamerr.EngineFailed, 0, "CUDA out of memory"},
	"fails in mid-answer":                {fails(1, codes.Internal, "CUDA out of memory"), streamerr.EngineFailed, 1, "CUDA out of memory"},
	"fails without a word":               {fails(1, codes.Unknown, ""), streamerr.EngineFailed, 1, "no reason"},
	"cancels what nobody canceled":       {fails(1, codes.Canceled, "cancelled"), streamerr.EngineFailed, 1, "cancelled"},
	"wants a key":                        {fails(0, codes.Unauthenticated, "who are you"), streamerr.EngineFailed, 0, "who are you"},
	"does not know the method":           {fails(0, codes.Unimplemented, "Generate"), streamerr.EngineFailed, 0, "Generate"},
}
