// Package promises holds what every release has promised to those after it, as it was recorded: what its parts said to
// each other, what it read from rule files, what it left in Redis, its Go API, flags and metrics. The tests hold this
// build to all of that; docs/stability.md says what is promised, and for how long.
//
// A recording is a directory of testdata, named like a version of this module. Command record makes one, of the build
// that it is part of. Recordings are never changed; what is taken back on purpose is listed in the recording's file
// gone.txt, with the reason.
package promises
