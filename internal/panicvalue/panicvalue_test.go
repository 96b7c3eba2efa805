package panicvalue_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/panicvalue"
)

type fault struct{}

func (fault) DescribePanic() string { return "a known fault" }

// TestPanicsRevealNoPrompts: only errors of the runtime, and values that describe themselves, are
// quoted.
func TestPanicsRevealNoPrompts(t *testing.T) {
	const prompt = "my secret prompt"
	var none []int
	for _, test := range []struct {
		f    func()
		want string
	}{
		{func() { panic(prompt) }, "a value of type string;"},
		{func() { panic(errors.New(prompt)) }, "a value of type *errors.errorString;"},
		{func() { panic([]byte(prompt)) }, "a value of type []uint8;"},
		{func() { panic(fault{}) }, "a known fault"},
		{func() { _ = none[3] }, "runtime error: index out of range [3] with length 0"},
		{func() { var v any = prompt; _ = v.(int) }, "interface conversion: interface {} is string, not int"}, //nolint:forcetypeassert // it must panic
	} {
		func() {
			defer func() {
				if text := panicvalue.Text(recover()); !strings.HasPrefix(text, test.want) || strings.Contains(text, prompt) {
					t.Errorf("got %q; want %q", text, test.want)
				}
			}()
			test.f()
		}()
	}
}
