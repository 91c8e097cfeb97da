package main

import (
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

const signalRules = `rules:
  - name: per-user
    key: [user]
    limit: 15/second
  - name: by-cpu
    key: [user, api]
    limit: 100/hour
    elastic:
      up_to: 200%
      while: {below: 70%, signal: cpu}
    throttle: elastic
  - {name: by-disk, key: [user], limit: 3/hour, throttle: elastic, elastic: {up_to: 110%, while: {signal: disk, below: 5%}}}
`

// TestSignalsAreWarnedOf: a set that every daemon would refuse is good, and whoever writes it is
// told.
func TestSignalsAreWarnedOf(t *testing.T) {
	s := shell{t, serverstest.JetStream(t).URL()}
	set, plain := file(t, signalRules), file(t, twoRules)
	want := []string{
		set + `:10:35: rule "by-cpu": elastic: while: signal: the checker command has no signals`, `supply "cpu"`,
		set + `:12:107: rule "by-disk": `, `supply "disk"`,
	}
	for _, args := range [][]string{
		{"validate", "-f"}, {"validate", "--json", "-f"}, {"diff", "-f"}, {"apply", "--dry-run", "-f"}, {"apply", "-f"},
	} {
		status, stdout, stderr := s.try(append(args, set)...)
		if status != 0 || stdout == "" || strings.Contains(stdout, "warning") {
			t.Errorf("%q: status %d, stdout %q", args, status, stdout)
		}
		for _, words := range want {
			if !strings.Contains(stderr, words) {
				t.Errorf("%q: stderr %q, want %q in it", args, stderr, words)
			}
		}
		equal(t, "warnings, one for each signal", strings.Count(stderr, "warning: "), 2)
		s.do(append(args, plain)...) // which sees that nothing is said of rules without
	}
}
