package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReplayGroups: one customer's IPv6 addresses share a limit, whatever they are logged with, and others do not.
func TestReplayGroups(t *testing.T) {
	log := filepath.Join(t.TempDir(), "access.log")
	var text strings.Builder
	for _, client := range []string{
		"2001:db8:1:2::1", "2001:db8:1:2:ffff::", "[2001:db8:1:2::2]:4711", "2001:db8:1:3::1", // two of /64
		"192.0.2.1", "192.0.2.1:4711", "::ffff:192.0.2.1", "192.0.2.2", "host.example.com", // two of IPv4, and a name
	} {
		fmt.Fprintf(&text, "%s - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1\n", client)
	}
	if err := os.WriteFile(log, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]int64{ // how many clients: one hit each passes
		"": 5, "--ipv6-prefix 128": 7, "--ipv6-prefix 48": 4, "--ipv4-prefix 24": 4, "--ipv4-prefix 24 --ipv6-prefix 32": 3,
	} {
		args := append([]string{"sim", "replay", log, "--json=-", "--html=", "--no-sweep", "--checkers", "1", "--limit", "1"}, strings.Fields(flags)...)
		status, stdout, stderr := invoke(t.Context(), args...)
		if status != 0 {
			t.Fatalf("%s: status %d: %s", flags, status, stderr)
		}
		if r := read(t, []byte(stdout)).Runs[0]; int64(r.Admitted) != want || int64(r.OracleAdmitted) != want || r.Hits != 9 {
			t.Errorf("%q: %d of %d hits pass, by the oracle %d; want %d", flags, r.Admitted, r.Hits, r.OracleAdmitted, want)
		}
	}
}
