package servers

import (
	"errors"
	"strings"
	"testing"
)

func TestProgramsThatDoNotStart(t *testing.T) {
	asked := 0
	shell := func(script string) ProgramOptions {
		return ProgramOptions{Name: "sh", Prepare: func(int) ([]string, error) { asked++; return []string{"-c", script}, nil }}
	}
	for _, tt := range []struct {
		why     string
		options ProgramOptions
		want    []string
		asked   int
	}{
		{"none", ProgramOptions{Name: "no-such-proxy"}, []string{"start no-such-proxy", "install the package no-such-proxy"}, 0},
		{"it ends", shell("echo what is this line >&2; exit 1"), []string{"start sh", "it ended at once", "what is this line"}, 1},
		{"its port is taken, each time", shell("echo bind: Address already in use >&2; exit 1"), []string{errPortTaken.Error()}, portAttempts},
		{"no arguments for it", ProgramOptions{Name: "sh", Prepare: func(int) ([]string, error) { return nil, errors.New("no room") }}, []string{"no room"}, 0},
	} {
		asked = 0
		p, err := StartProgram(t.Context(), tt.options)
		if err == nil {
			t.Errorf("%s: it runs: %v", tt.why, p.Stop())
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", tt.why, err)
			}
		}
		if asked != tt.asked {
			t.Errorf("%s: started %d times", tt.why, asked)
		}
	}
}
