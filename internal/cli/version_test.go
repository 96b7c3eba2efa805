package cli

import (
	"runtime/debug"
	"testing"
)

func TestVersionPrefersWhatTheReleaseHasSet(t *testing.T) {
	recorded := &debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-2"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-11-24T10:00:00Z"}, {Key: "vcs.modified", Value: "true"},
	}}
	for _, test := range []struct {
		version, commit, date string
		info                  *debug.BuildInfo
		want                  string
	}{
		{"v1.2.3", "fedcba9876543210", "2026-11-25T10:00:00Z", nil, "v1.2.3 (commit fedcba987654 of 2026-11-25T10:00:00Z)"},
		{"v1.2.3", "fedcba9876543210", "2026-11-25T10:00:00Z", recorded, "v1.2.3 (commit fedcba987654 of 2026-11-25T10:00:00Z, modified)"},
		{"v1.2.3", "", "", recorded, "v1.2.3 (commit 0123456789ab of 2026-11-24T10:00:00Z, modified)"},
		{"", "", "", recorded, "v0.0.0-2 (commit 0123456789ab of 2026-11-24T10:00:00Z, modified)"},
		{"", "abc", "", nil, "(devel) (commit abc)"},
		{"", "", "", &debug.BuildInfo{}, "(devel)"},
		{"", "", "", nil, "(devel)"},
	} {
		if got := describe(test.version, test.commit, test.date, test.info); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
