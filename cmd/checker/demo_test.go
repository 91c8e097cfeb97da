package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDemo: without flags there is a console, which sees the checker, its rules and who is denied; and nothing is left behind.
func TestDemo(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	d := startChecker(t)
	loads(d, 1)
	if found, _ := filepath.Glob(filepath.Join(temp, "offpath-embedded-*")); len(found) != 1 {
		t.Errorf("JetStream's files are in %q", found)
	}
	equal(t, "the console", d.Find(`console +(http://[^/ ]+/)`), d.Admin()+"/")
	asks(t, d, kristie, 200)
	asks(t, d, `{"attributes":{"user":"kristie"},"cost":16}`, 429) // its limit is 15 per second
	d.Await("the console shows it", func() bool {
		_, view := d.Get("/api/view")
		_, denied, _ := strings.Cut(view, `"denied":[`)
		return strings.Contains(view, `"heard":{"checkers":1,"silent":0,"aggregators":1,`) &&
			strings.Contains(view, `"rule":"per-user","allowed":1,`) && strings.Contains(denied, `"key":"kristie"`) &&
			strings.Contains(view, `"revision":1,`)
	})
	if status, page := d.Get("/"); status != 200 || !strings.Contains(page, "<title>offpath</title>") {
		t.Errorf("%d %s", status, page)
	}
	d.MustStop()
	if len(complaints(d.Stderr())) > 0 {
		t.Errorf("stderr:\n%s", d.Stderr())
	}
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
