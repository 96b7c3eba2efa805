package streamerr_test

import (
	"errors"
	"fmt"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// An error names its reason, and each hop that it leaves adds its name to the path. The stream
// ended on the first hop of the path.
func ExampleVia() {
	failed := streamerr.New(streamerr.EngineFailed, "the GPU is on fire")
	worker := streamerr.Via("llm-worker/0", failed)
	chat := streamerr.Via("chat-service", worker)
	fmt.Println(chat)
	fmt.Println(chat.Path.Origin(), errors.Is(chat, streamerr.EngineFailed))
	// Output:
	// engine failed: the GPU is on fire [llm-worker/0 > chat-service]
	// llm-worker/0 true
}

// An error crosses gRPC as a status with details. The caller reads the same error.
func ExampleFromGRPC() {
	full := &streamerr.Error{Reason: streamerr.Overloaded, Path: streamerr.NewPath("llm-worker/0"), Message: "the queue is full"}
	overTheWire := full.GRPCStatus().Err()
	fmt.Println(streamerr.FromGRPC("llm-worker/0", overTheWire))
	fmt.Println(full.Reason.Code(), full.Reason.HTTPStatus())
	// Output:
	// overloaded: the queue is full [llm-worker/0]
	// ResourceExhausted 429
}
