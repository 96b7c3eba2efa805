// Package panicvalue describes the values of panics for logs. A value may contain a part of a prompt
// or of an answer, which logs must not have.
package panicvalue

import (
	"fmt"
	"runtime"
)

// A Describer is a value of a panic that describes itself without data of requests.
type Describer interface {
	// DescribePanic returns the description.
	DescribePanic() string
}

// Text describes v: the message of an error of the Go runtime, which has numbers and types only,
// or otherwise the type of v. The stack, which is logged with it, leads to the rest.
func Text(v any) string {
	switch v := v.(type) {
	case Describer:
		return v.DescribePanic()
	case runtime.Error:
		return v.Error()
	default:
		return fmt.Sprintf("a value of type %T; the log does not contain it, because it may be a part of a prompt", v)
	}
}
