package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// A release sets these with the linker, as in -ldflags "-X
// github.com/whence-dev/whence/internal/cli.version=v1.2.3". Without them, Version uses the data
// that Go has recorded in the binary, which an image's build does not have: its source is not a
// repository.
var (
	version string // such as v1.2.3
	commit  string // its full hash
	date    string // of the commit, as RFC 3339
)

// Version describes the build: version, commit, time of the commit, Go and platform.
func Version() string {
	info, _ := debug.ReadBuildInfo()
	return fmt.Sprintf("%s, %s %s/%s", describe(version, commit, date, info), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Release returns the version of the build alone, such as v1.2.3.
func Release() string {
	if info, ok := debug.ReadBuildInfo(); ok && version == "" {
		return cmp.Or(info.Main.Version, unreleased)
	}
	return cmp.Or(version, unreleased)
}

// unreleased is the version of a build that knows none.
const unreleased = "(devel)"

// describe prefers what the linker has set to what Go has recorded. info may be nil.
func describe(version, commit, date string, info *debug.BuildInfo) string {
	settings := map[string]string{}
	if info != nil {
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		version = cmp.Or(version, info.Main.Version)
	}
	text := cmp.Or(version, unreleased)
	modified := settings["vcs.modified"] == "true"
	if commit == "" {
		commit, date = settings["vcs.revision"], settings["vcs.time"]
	}
	if commit == "" {
		return text
	}
	text += " (commit " + commit[:min(len(commit), 12)]
	if date != "" {
		text += " of " + date
	}
	if modified {
		text += ", modified"
	}
	return text + ")"
}
