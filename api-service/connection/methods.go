package connection

import (
	"slices"
	"strings"

	"github.com/cloudwego/hertz/pkg/route"
)

// Methods returns the methods that routes accepts at a path.
func Methods(routes route.RoutesInfo, path string) []string {
	var allowed []string
	for _, r := range routes {
		if fits(r.Path, path) && !slices.Contains(allowed, r.Method) {
			allowed = append(allowed, r.Method)
		}
	}
	return allowed
}

// fits reports whether a path matches a route, such as /v1/streams/:id/events, whatever the method.
func fits(route, path string) bool {
	if prefix, _, rest := strings.Cut(route, "*"); rest {
		return strings.HasPrefix(path, prefix)
	}
	return slices.EqualFunc(strings.Split(route, "/"), strings.Split(path, "/"), func(want, has string) bool {
		return want == has || strings.HasPrefix(want, ":") && has != ""
	})
}
