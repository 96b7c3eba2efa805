package guide

import (
	"runtime"
	"strings"
	"testing"
)

// mergedWithoutEnd are schemas whose intersection grows with each level.
var mergedWithoutEnd = map[string]string{
	"two recursive objects": `{"$defs":{"a":{"properties":{` + each(8, `"N":{"$ref":"#/$defs/a"}`) + `}},"b":{"properties":{` + each(8, `"N":{"$ref":"#/$defs/b"}`) + `}}},"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}`,
	"nested branches":       strings.Repeat(`{"properties":{`+each(50, `"N":{}`)+`},"anyOf":[{},`, 60) + `{}` + strings.Repeat(`]}`, 60),
	"many parts":            `{"allOf":[` + each(1200, `{"properties":{"N":{"maxLength":N}}}`) + `]}`,
	"one part again":        `{"$defs":{"a":{"properties":{` + each(500, `"N":{"maxLength":N}`) + `}}},"allOf":[` + each(2000, `{"$ref":"#/$defs/a"}`) + `]}`,
	"itself":                `{"allOf":[{"$ref":"#"},{"$ref":"#"}]}`,
}

// TestMergingIsBounded checks the memory that hostile schemas cost, in place of the time.
func TestMergingIsBounded(t *testing.T) {
	v, _ := vocabulary(t)
	for name, schema := range mergedWithoutEnd {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := New(v, forms(schema))
		runtime.ReadMemStats(&after)
		allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
		t.Logf("%s: %d MiB, %v", name, allocated, err)
		if allocated > 500 {
			t.Errorf("%s: %d MiB were allocated", name, allocated)
		}
	}
}
