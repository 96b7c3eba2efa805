package metrics

import (
	"reflect"
	"testing"
)

// TestUsersOfMetricsDoNotCompileTheSDK: a package that knows a type whose fields lead to the SDK's
// MeterProvider compiles the SDK's generic aggregations anew.
func TestUsersOfMetricsDoNotCompileTheSDK(t *testing.T) {
	const sdk = "go.opentelemetry.io/otel/sdk/metric"
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type, path string)
	walk = func(typ reflect.Type, path string) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		if typ.PkgPath() == sdk {
			t.Errorf("%s is a %s: have an interface or a function there", path, typ)
			return
		}
		switch typ.Kind() {
		case reflect.Struct:
			for i := range typ.NumField() {
				walk(typ.Field(i).Type, path+"."+typ.Field(i).Name)
			}
		case reflect.Map:
			walk(typ.Key(), path)
			walk(typ.Elem(), path)
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
			walk(typ.Elem(), path)
		default: // no type is behind it, or only in signatures
		}
	}
	walk(reflect.TypeFor[Metrics](), "Metrics")
	if len(seen) < 20 {
		t.Errorf("the fields of Metrics lead to %d types", len(seen))
	}
}
