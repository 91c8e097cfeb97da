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

func TestParseRequests(t *testing.T) {
	for _, test := range []struct{ request, method, path string }{
		{`GET /a?b=c%20d HTTP/1.1`, "GET", "/a?b=c%20d"},
		{`CONNECT example.com:443 HTTP/1.1`, "CONNECT", "example.com:443"},
		{`GET http://example.com/ HTTP/1.1`, "GET", "http://example.com/"},
		{`RPC_IN_DATA /rpc HTTP/1.1`, "RPC_IN_DATA", "/rpc"},
		{`GET /with a space HTTP/1.1`, "GET", "/with a space"},
		{`GET /a\"b\\ HTTP/1.1`, "GET", `/a\"b\\`},
		{`GET /the/oldest`, "GET", "/the/oldest"},
		{``, "", ""},
		{`GET`, "", ""},
		{`GET  HTTP/1.1`, "", ""},
		{`\x16\x03\x01\x02`, "", ""},
		{`\x16\x03 /a HTTP/1.1`, "", ""},
		{`HELP me`, "", ""},
		{"\x00\xff /a HTTP/1.1", "", ""},
	} {
		entry, err := parse(who + when + `"` + test.request + `" ` + how + agent)
		if err != nil {
			t.Errorf("%s: %v", test.request, err)
		}
		if entry.Method != test.method || entry.Path != test.path {
			t.Errorf("%s: method %q, path %q", test.request, entry.Method, entry.Path)
		}
		if entry.Client != "192.0.2.1" || entry.Status != 200 || entry.Time.IsZero() {
			t.Errorf("%s: %+v", test.request, entry)
		}
	}
}

func TestParseClients(t *testing.T) {
	for _, client := range []string{
		"192.0.2.1", "2001:db8::17", "::ffff:192.0.2.1", "fe80::1%eth0", "[2001:db8::1]:4711", "unix:", "2001:db8::/64",
		"localhost", "crawl-66-249-73-135.googlebot.com", "host_1.example.com", strings.Repeat("a", 255),
	} {
		for _, rest := range []string{" - - ", " - kristie ", " ident Ann Lee ", ` - "" `} {
			entry, err := parse(client + rest + when + what + how)
			if err != nil || entry.Client != client {
				t.Errorf("%s%s: %q, %v", client, rest, entry.Client, err)
			}
		}
	}
}

func TestParseTimesAndStatuses(t *testing.T) {
	want := time.Date(2015, time.May, 17, 10, 5, 3, 0, time.UTC)
	for _, test := range []struct {
		stamp, rest string
		status      int
	}{
		{"17/May/2015:10:05:03 +0000", "200 17", 200}, {"17/May/2015:06:35:03 -0330", "304 -", 304},
		{"18/May/2015:00:05:03 +1400", "- -", 0}, {"17/May/2015:10:05:03 -0000", "000 0", 0},
		{"17/May/2015:10:05:03 +0000", "200 999999999999999999999 ", 200},
		{"17/May/2015:10:05:03 +0000", `200 17 "-" "a \"b`, 200}, // cut off, as one line of the sample is
	} {
		entry, err := parse(who + "[" + test.stamp + "] " + what + test.rest)
		if err != nil || entry.Time != want || entry.Status != test.status { // also the same zone, whatever the machine's is
			t.Errorf("%s, %s: %v, %d, %v", test.stamp, test.rest, entry.Time, entry.Status, err)
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
