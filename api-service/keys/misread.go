package keys

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// lineOf finds the line that an error of the YAML library is about.
var lineOf = regexp.MustCompile(`^(?:yaml: )?(line \d+): `)

// withoutText returns an error of the YAML library without the text of the file that it quotes, which may be a part of a key.
func withoutText(err error) error {
	line := func(text string) string {
		if at := lineOf.FindStringSubmatch(text); at != nil {
			return at[1]
		}
		return "a line"
	}
	if misfit, ok := errors.AsType[*yaml.TypeError](err); ok {
		lines := make([]string, len(misfit.Errors))
		for i, text := range misfit.Errors {
			lines[i] = line(text)
		}
		return fmt.Errorf("%s: the field does not exist, has a value of the wrong type, or appears twice", strings.Join(slices.Compact(lines), ", "))
	}
	if strings.HasPrefix(err.Error(), "yaml: ") {
		return fmt.Errorf("%s: the file is not valid YAML", line(err.Error()))
	}
	return err // of the type of a field
}
