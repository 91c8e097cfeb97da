package version

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestLine(t *testing.T) {
	build := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "abc123"}
	changed := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, test := range []struct {
		build *debug.BuildInfo
		want  string
	}{
		{build(""), "offpath tool devel (" + runtime.Version() + ")"},
		{build("(devel)"), "offpath tool devel (" + runtime.Version() + ")"},
		{build("v1.2.3"), "offpath tool v1.2.3 (" + runtime.Version() + ")"},
		{build("(devel)", commit), "offpath tool devel (commit abc123, " + runtime.Version() + ")"},
		{build("v1.2.3", commit, changed), "offpath tool v1.2.3 (commit abc123+changes, " + runtime.Version() + ")"},
	} {
		if got := from(test.build).Line("tool"); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	built := from(build("(devel)", commit))
	if got := built.stamped("", ""); got != built {
		t.Errorf("without a stamp: %+v", got)
	}
	if got, want := built.stamped("v1.2.3", "def456").Line("tool"), "offpath tool v1.2.3 (commit def456, "+runtime.Version()+")"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if Get().Version == "" {
		t.Error("this build has no version")
	}
}
