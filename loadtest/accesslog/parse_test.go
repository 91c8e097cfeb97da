package accesslog

import (
	"strings"
	"testing"
	"time"
)

// Parts of a line, of which a test changes one.
const (
	who   = `192.0.2.1 - - `
	when  = `[20/May/2015:21:05:02 +0000] `
	what  = `"GET /a HTTP/1.1" `
	how   = `200 381`
	agent = ` "http://example.com/" "Mozilla/5.0 (X11)"`
)

// TestParse: what servers log is understood.
func TestParse(t *testing.T) {
	at := time.Date(2015, time.May, 20, 21, 5, 2, 0, time.UTC)
	for _, client := range []string{
		"192.0.2.1", "2001:db8::17", "::ffff:192.0.2.1", "fe80::1%eth0", "[2001:db8::1]:4711", "unix:",
		"2001:db8::/64", "localhost", "crawl-66-249-73-135.googlebot.com", "host_1.example.com",
		strings.Repeat("a", 255),
	} {
		for _, rest := range []string{
			" - - " + when + what + how + agent,
			" - kristie [20/May/2015:17:35:02 -0330] " + what + "304 -",
			" ident Ann Lee [21/May/2015:11:05:02 +1400] " + what + "- -",
			` - "" ` + when + what + "200 999999999999999999999 ",
			" - - " + when + what + `200 17 "-" "a \"b`, // cut off, as one line of the sample is
			" - - " + when + `"GET /a\"b\\ HTTP/1.1" ` + how,
			" - - " + when + `"" ` + how,
			" - - " + when + "\"\x00\xff /a\" " + how,
		} {
			entry, err := parse(client + rest)
			if err != nil || entry != (Entry{Time: at, Client: client}) {
				t.Errorf("%s%s: %+v, %v", client, rest, entry, err)
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ line, reason string }{
		{`x`, "no time in brackets"},
		{`[20/May/2015:21:05:02 +0000] ` + what + how, "no time in brackets"},
		{`192.0.2.1 - ` + when + what + how, "want client, identity and user"},
		{` - - ` + when + what + how, "neither an address nor a host name"},
		{`- - - ` + when + what + how, "client is not known"},
		{"192.0.2.1\xff - - " + when + what + how, "neither an address nor a host name"},
		{`a"b - - ` + when + what + how, "neither an address nor a host name"},
		{strings.Repeat("a", 256) + ` - - ` + when + what + how, "neither an address nor a host name"},
		{`192.0.2.1, 192.0.2.2 - - ` + when + what + how, "neither an address nor a host name"},
		{`example.com:80 192.0.2.1 - - ` + when + what + how, "second field is an address"},
		{who + `[20/May/2015:21:05:02 +0000]`, "nothing after the time"},
		{who + `[20/May/2015:21:05:02] ` + what + how, "the time"},
		{who + `[20/May/2015:21:05:02 UTC] ` + what + how, "the time"},
		{who + `[20/May/2015:21:05:02.5 +0000] ` + what + how, "the time"},
		{who + `[2015-05-20T21:05:02Z] ` + what + how, "the time"},
		{who + when + `GET / HTTP/1.1 ` + how, "no request in quotes"},
		{who + when, "no request in quotes"},
		{who + when + `"GET /\" 200 17`, "request has no end"},
		{who + when + `"GET /\`, "request has no end"},
		{who + when + `"`, "request has no end"},
		{who + when + what, "want status and size"},
		{who + when + what + `200`, "want status and size"},
		{who + when + `"GET /"quote HTTP/1.1" 200 17`, "want status and size"},
		{who + when + what + `20 17`, `status "20"`},
		{who + when + what + `OK! 17`, `status "OK!"`},
		{who + when + what + `+20 17`, `status "+20"`},
		{who + when + what + `200 "-"`, `size "\"-\""`},
		{who + when + what + `200 `, `size ""`},
		{who + when + what + `200 -17`, `size "-17"`},
	} {
		if entry, err := parse(test.line); err == nil || !strings.Contains(err.Error(), test.reason) {
			t.Errorf("%.60q: %v, want %q; %+v", test.line, err, test.reason, entry)
		}
	}
}
