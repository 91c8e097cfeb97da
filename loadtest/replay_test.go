package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/loadtest/result"
)

const sample = "accesslog/testdata/sample.log"

// TestReplay: the same log simulated at its own speed and live at a higher one.
func TestReplay(t *testing.T) {
	f, stderr := figures(t, "sim", "replay", sample, "--checkers", "2", "--route", "hash")
	if !strings.Contains(stderr, "lines are no entries") {
		t.Error(stderr)
	}
	if len(f.Runs) != 2 || f.Runs[0].Params.Limit != 10 || f.Runs[1].Params.Limit != 30 || f.Runs[0].Params.WindowMS != 60_000 || f.Runs[0].Params.Speed != 1 {
		t.Fatalf("%d runs: %+v", len(f.Runs), f.Runs[0].Params)
	}
	hits := f.Runs[0].Hits
	for _, r := range f.Runs { // by address, so that one checker gets all of an address: nothing is lost by distribution
		if r.Hits != hits || hits < 10 || r.Admitted != r.OracleAdmitted || r.WrongAllowShareExact != 0 || r.FalseDenialShareExact != 0 {
			t.Errorf("%s: %d hits of %d, %d admitted, the oracle %d; %+v", r.Variant, r.Hits, hits, r.Admitted, r.OracleAdmitted, r.Accuracy)
		}
	}

	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
	f, _ = figures(t, "replay", sample, "--limit", "3", "--max-gap", "1s", "--speed", "100")
	r := f.Runs[0]
	if r.Hits+r.MissedHits != hits || r.Params.Limit != 3 || r.Params.WindowMS != 600 || r.Params.Speed != 100 || r.Mode != result.Live {
		t.Errorf("%d hits of %d; %+v", r.Hits, hits, r.Params)
	}
}

// TestReplayFits: live, a log is squeezed into a minute, with the window or without.
func TestReplayFits(t *testing.T) {
	log, err := readLog(sample, io.Discard)
	must(t, err)
	for _, test := range []struct {
		fit        time.Duration
		realWindow bool
		scaled     bool
	}{{liveLength, false, true}, {liveLength, true, false}, {0, false, false}} {
		r := newReplay()
		r.add(&cobra.Command{})
		r.realWindow, r.maxGap = test.realWindow, time.Hour
		list, err := r.scenarios(log, test.fit)
		if err != nil || len(list) != 2 {
			t.Fatalf("%d scenarios, error %v", len(list), err)
		}
		sc := list[0]
		if test.fit > 0 && (sc.Duration > time.Minute || sc.Speed < 2) || test.fit == 0 && sc.Speed != 1 {
			t.Errorf("%+v: %v at %v times the speed", test, sc.Duration, sc.Speed)
		}
		want := time.Minute
		if test.scaled {
			want = time.Duration(float64(time.Minute)/sc.Speed + 0.5)
		}
		if got := sc.Rules[0].Window.Length; got != want {
			t.Errorf("%+v: a window of %v at %v times the speed, want %v", test, got, sc.Speed, want)
		}
	}
}

func TestScaled(t *testing.T) {
	for _, test := range []struct {
		length    time.Duration
		buckets   int
		speed     float64
		short     time.Duration
		realSpeed float64
	}{
		{time.Minute, 1, 1, time.Minute, 1},
		{time.Minute, 1, 397, 151 * time.Millisecond, 60_000.0 / 151},
		{time.Minute, 60, 397, 180 * time.Millisecond, 60_000.0 / 180},
		{time.Second, 1, 1e9, time.Millisecond, 1000},
	} {
		short, speed := scaled(test.length, test.buckets, test.speed)
		if short != test.short || speed != test.realSpeed {
			t.Errorf("%v in %d buckets at %v: %v at %v; want %v at %v", test.length, test.buckets, test.speed, short, speed, test.short, test.realSpeed)
		}
	}
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", time.Hour: "1h", 90 * time.Second: "1m30s", time.Second: "1s", 61 * time.Minute: "1h1m", 150 * time.Millisecond: "150ms",
	} {
		if got := brief(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// TestReplayGroups: one customer's IPv6 addresses share a limit, whatever they are logged with, and
// others do not.
func TestReplayGroups(t *testing.T) {
	log := filepath.Join(t.TempDir(), "access.log")
	var text strings.Builder
	for _, client := range []string{
		"2001:db8:1:2::1", "2001:db8:1:2:ffff::", "[2001:db8:1:2::2]:4711", "2001:db8:1:3::1", // two of /64
		"192.0.2.1", "192.0.2.1:4711", "::ffff:192.0.2.1", "192.0.2.2", "host.example.com", // two of IPv4, and a name
	} {
		fmt.Fprintf(&text, "%s - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1\n", client)
	}
	must(t, os.WriteFile(log, []byte(text.String()), 0o600))
	for flags, want := range map[string]int64{ // how many clients: one hit each passes
		"": 5, "--ipv6-prefix 128": 7, "--ipv6-prefix 48": 4, "--ipv4-prefix 24": 4, "--ipv4-prefix 24 --ipv6-prefix 32": 3,
	} {
		args := append([]string{"sim", "replay", log, "--checkers", "1", "--limit", "1"}, strings.Fields(flags)...)
		f, _ := figures(t, args...)
		if r := f.Runs[0]; int64(r.Admitted) != want || int64(r.OracleAdmitted) != want || r.Hits != 9 {
			t.Errorf("%q: %d of %d hits pass, by the oracle %d; want %d", flags, r.Admitted, r.Hits, r.OracleAdmitted, want)
		}
	}
}
