package main

import (
	"strings"
	"testing"
)

// The demo has a console, which sees the checker, its rules and who is denied.
func TestConsoleOfTheDemo(t *testing.T) {
	d := start1(t)
	if page := d.Find(`console +(http://[^/ ]+/)`); page != d.Admin()+"/" {
		t.Errorf("the console is at %s, and the admin door at %s", page, d.Admin())
	}
	for range 20 {
		ask(t, d, `{"attributes":{"user":"kristie"}}`)
	}
	view := ""
	d.Await("the console shows it", func() bool {
		_, view = d.Get("/api/view")
		denied := view[strings.Index(view, `"denied":[`):]
		return strings.Contains(view, `"heard":{"checkers":1,"silent":0,"aggregators":1,`) && strings.Contains(view, `"rule":"per-user","allowed":1`) &&
			strings.Contains(denied, `"key":"kristie"`) && strings.Contains(view, `"revision":1,`)
	})
	if status, page := d.Get("/"); status != 200 || !strings.Contains(page, "<title>offpath</title>") {
		t.Errorf("%d %s", status, page)
	}
	if status, _ := d.Get("/metrics"); status != 200 {
		t.Errorf("/metrics: %d", status)
	}
}

// Elsewhere the aggregators have the console, and a checker has none.
func TestMembersHaveNoConsole(t *testing.T) {
	d := start1(t, "--rules", writeFile(t, slowRules), "--nats", "nats://127.0.0.1:1")
	if status, _ := d.Get("/"); status != 404 || strings.Contains(d.Stdout(), "console") {
		t.Errorf("%d; %s", status, d.Stdout())
	}
}
