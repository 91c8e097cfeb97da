package main

import (
	"encoding/json"
	"fmt"
	"os/user"
	"slices"
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

// TestAuditLogNamesPeople: the name that --as gives or, without it, that of the account, is in the
// audit log of each change; a rehearsal and what changes nothing are not in it.
func TestAuditLogNamesPeople(t *testing.T) {
	url := serverstest.JetStream(t).URL()
	account, err := user.Current()
	must(t, err)
	path := file(t, twoRules)
	for _, args := range []string{
		"rules apply -f " + path + " --dry-run --as nobody", "rules apply -f " + path, "rules apply -f " + path + " --as nobody",
		"rules delete create --as deploy-bot", "block k --rule per-user --as kristie", "unblock k --rule per-user",
	} {
		ends(t, nil, append(strings.Fields(args), "--nats", url), 0, "")
	}
	stream, err := serverstest.JetStreamOf(t, serverstest.Connect(t, url)).Stream(t.Context(), "offpath-audit")
	must(t, err)
	var got []string
	for n := range stream.CachedInfo().State.Msgs {
		m, err := stream.GetMsg(t.Context(), n+1)
		must(t, err)
		var r console.Record
		must(t, json.Unmarshal(m.Data, &r))
		got = append(got, strings.TrimSpace(fmt.Sprint(r.Who.Name, " ", r.What, " ", r.Detail, r.Error)))
	}
	want := []string{
		"command: " + account.Username + " apply revision 1: added per-user, added create", "command: deploy-bot apply revision 2: removed create",
		"command: kristie block for 1h0m0s", "command: " + account.Username + " unblock",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, name := range []string{strings.Repeat("x", maxName+1), "a\x1bb"} {
		ends(t, nil, []string{"block", "k", "--rule", "r", "--nats", url, "--as", name}, 2, "--as")
	}
}

// TestCount: one of a thing is not several.
func TestCount(t *testing.T) {
	for want, h := range map[string]console.Heard{
		"0 checkers and 1 aggregator heard\n":                                                   {Aggregators: 1},
		"1 checker and 2 aggregators heard; 1 checker is silent, and left out of all sums\n":    {Checkers: 1, Aggregators: 2, Silent: 1},
		"2 checkers and 0 aggregators heard; 3 checkers are silent, and left out of all sums\n": {Checkers: 2, Silent: 3},
	} {
		equal(t, "heard", heardText(h), want)
	}
}
