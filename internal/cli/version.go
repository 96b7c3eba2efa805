package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker for a release: -ldflags "-X github.com/whence-dev/whence/internal/cli.version=v1.2.3".
var version string

// Version describes the build: version, commit, time of the commit, Go and platform.
func Version() string {
	v, commit := version, ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if v == "" {
			v = info.Main.Version
		}
		commit = commitOf(info)
	}
	if v == "" {
		v = "(devel)"
	}
	return fmt.Sprintf("%s%s, %s %s/%s", v, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// commitOf returns the commit that a binary was built from, or "" if the build did not record it.
func commitOf(info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return ""
	}
	text := " (commit " + revision[:min(len(revision), 12)]
	if at := settings["vcs.time"]; at != "" {
		text += " of " + at
	}
	if settings["vcs.modified"] == "true" {
		text += ", modified"
	}
	return text + ")"
}
