// Package version says which build of offpath is running.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by scripts/build-static.sh, through the linker, in a release; else empty.
var released, commit string

// Info names a build.
type Info struct {
	// Version of the release or the module, "devel" if it was built from a checkout.
	Version string
	// Commit is what it was built from, with "+changes" behind it if that was not all; "" if the
	// build does not know.
	Commit string
	// Go is the version of Go.
	Go string
}

// Get returns this build's name.
func Get() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = new(debug.BuildInfo)
	}
	return from(build).stamped(released, commit)
}

// stamped is the build's name as a release has it.
func (i Info) stamped(version, commit string) Info {
	if version != "" {
		i.Version, i.Commit = version, commit
	}
	return i
}

func from(build *debug.BuildInfo) Info {
	info := Info{Version: build.Main.Version, Go: runtime.Version()}
	if info.Version == "" || info.Version == "(devel)" {
		info.Version = "devel"
	}
	changed := false
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.Commit = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	if changed && info.Commit != "" {
		info.Commit += "+changes"
	}
	return info
}

// Line returns the line that a command prints for --version.
func (i Info) Line(command string) string {
	if i.Commit == "" {
		return fmt.Sprintf("offpath %s %s (%s)", command, i.Version, i.Go)
	}
	return fmt.Sprintf("offpath %s %s (commit %s, %s)", command, i.Version, i.Commit, i.Go)
}
