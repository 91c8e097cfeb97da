package promises

import (
	"slices"
	"strings"
	"testing"
)

// Rule files of a release say today what they said then: every request is decided alike.
func TestRuleFilesOfReleases(t *testing.T) {
	recordings(t, "rules/*.yaml", func(t *testing.T, files []string) {
		if !slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, "plain.yaml") }) {
			t.Errorf("only %v were recorded", files)
		}
		for _, file := range files {
			got, err := Decide(read(t, file))
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			want := strings.Split(strings.TrimSpace(string(read(t, file+".txt"))), "\n")
			if len(want) != 12*len(requests) || len(got) != len(want) {
				t.Fatalf("%s: %d decisions, want %d", file, len(got), len(want))
			}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("%s: request %d\nis  %s\nwas %s", file, i, got[i], want[i])
				}
			}
		}
	})
}
