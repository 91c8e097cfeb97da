package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/offpath-io/offpath/cmd/internal/console"
	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// TestCommandsThatAreForbidden: who may ask nobody, or not do himself what no aggregator is there
// to do, is told so, and what NATS did not let him do.
func TestCommandsThatAreForbidden(t *testing.T) {
	none, ask := &server.SubjectPermission{Deny: []string{">"}}, &server.SubjectPermission{Allow: []string{"offpath.console.v1.*"}}
	n := serverstest.NATSWith(t, servers.NATSOptions{JetStream: true, Configure: func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "guest", Password: "pw", Permissions: &server.Permissions{Publish: none}},
			{Username: "asks", Password: "pw", Permissions: &server.Permissions{Publish: ask}},
		}
	}})
	for _, test := range []struct{ user, args, want string }{
		{"guest", "top", "offpath.console.v1.view"},
		{"guest", "block k --rule r", "offpath.console.v1.block"},
		{"asks", "block k --rule r", "KV_offpath-entries"},
		{"asks", "unblock k --rule r", "KV_offpath-entries"},
	} {
		t.Run(test.user+" "+test.args, func(t *testing.T) {
			t.Parallel() // NATS does not say that it refuses an answer, so these wait
			url := strings.Replace(n.URL(), "//", "//"+test.user+":pw@", 1)
			code, stdout, stderr := daemontest.Run(t, run, nil, append(strings.Fields(test.args), "--nats", url)...)
			if code != 1 || stdout != "" || !strings.Contains(stderr, "does not let this user") || !strings.Contains(stderr, test.want) {
				t.Errorf("%d %q\n%s", code, stdout, stderr)
			}
		})
	}
}

// TestTablesAreHarmless: what comes from the fleet gives a terminal no orders, and breaks no table.
func TestTablesAreHarmless(t *testing.T) {
	const evil = "\x1b]0;owned\a\tx\ny\u202e"
	part := status.Part{Name: evil, Host: evil, Version: evil, Problem: evil}
	v := console.View{
		Checkers:    []console.CheckerView{{Part: part, Freshness: evil}},
		Aggregators: []console.AggregatorView{{Part: part}},
		Rules:       []console.RuleView{{Rule: evil}},
		Used:        []console.TopView{{Rule: evil, Key: evil}},
		Denied:      []console.TopView{{Rule: evil, Key: evil}},
		Blocks:      []console.BlockView{{Rule: evil, Key: evil, By: evil}},
		BlocksWhy:   evil,
		Heard:       console.Heard{Checkers: 1000, Silent: 1, Rules: 700, Blocks: 5},
	}
	keys := []console.KeyView{{Rule: status.Rule{Name: evil}, Key: evil}}
	for name, test := range map[string]struct {
		text  string
		lines int
	}{"top": {topText(v), 11}, "fleet": {fleetText(v), 13}, "get": {keysText(keys), 2}} {
		if strings.ContainsAny(test.text, "\x1b\a\t\u202e") || strings.Count(test.text, "\n") != test.lines {
			t.Errorf("%s, in %d lines: %q", name, strings.Count(test.text, "\n"), test.text)
		}
	}
	for text, want := range map[string]string{
		topText(v): "the first 1 of 700 rules", fleetText(v): "the first 1 of 1001 checkers", fleetText(v) + " ": "the first 1 of 5 blocked keys",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

// TestFleetAsJSONSaysWhatItCannotRead: a list of blocks that is empty since nobody could read it is
// none.
func TestFleetAsJSONSaysWhatItCannotRead(t *testing.T) {
	for why, want := range map[string]bool{"JetStream does not answer": true, "": false} {
		text, err := json.Marshal(fleetParts(console.View{BlocksWhy: why}))
		says := strings.Contains(string(text), `"blocks_why":"JetStream does not answer"`)
		if err != nil || says != want || !want && strings.Contains(string(text), "why") {
			t.Errorf("%q: %s, %v", why, text, err)
		}
	}
}
