package cmd_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

const operatorToken = "a-token-that-nobody-guesses"

// watchedFleet is two checkers and two aggregators, with a console each.
type watchedFleet struct {
	fleet
	rules string // file
}

func startWatchedFleet(t *testing.T, rules string) *watchedFleet {
	t.Helper()
	nats, redis := serverstest.JetStream(t).URL(), serverstest.Redis(t).URL()
	f := &watchedFleet{fleet{T: t, nats: nats, redis: redis}, writeFile(t, "rules.yaml", rules)}
	tokens := writeFile(t, "tokens", "# who may\nkristie:"+operatorToken+"\n")
	for range 2 {
		f.startAggregator("--console-token-file", tokens)
	}
	for range 2 {
		f.startChecker()
	}
	return f
}

// startChecker returns once the checker hears of the fleet.
func (f *watchedFleet) startChecker() *daemontest.Daemon {
	f.Helper()
	d := f.fleet.startChecker("--rules", f.rules)
	d.AwaitMetric(`offpath_freshness{state="fresh"}`, "1")
	return d
}

// read runs a command and reads its JSON.
func (f *watchedFleet) read(value any, args ...string) {
	f.Helper()
	text := f.do(append(args, "--json")...)
	if err := json.Unmarshal([]byte(text), value); err != nil {
		f.Fatalf("%q: %v\n%s", args, err, text)
	}
}

var decisionLine = regexp.MustCompile(`(?m)^offpath_decisions_total\{outcome="(allowed|denied)",rule="([^"]+)"\} (\S+)$`)

// decisions are the sums over the checkers' /metrics, by rule and outcome, without those that are
// 0.
func (f *watchedFleet) decisions() string {
	f.Helper()
	sums := make(map[string]int64)
	for _, d := range f.checkers {
		_, text := d.Get("/metrics")
		for _, m := range decisionLine.FindAllStringSubmatch(text, -1) {
			n, err := strconv.ParseFloat(m[3], 64)
			must(f.T, err)
			if n > 0 {
				sums[m[2]+" "+m[1]] += int64(n)
			}
		}
	}
	return fmt.Sprint(sums)
}

// topOutput is what "top" and a console's /api/view say.
type topOutput struct {
	Heard struct{ Checkers, Aggregators int }
	Rules []struct {
		Rule            string
		Allowed, Denied int64
	}
	Used, Denied []struct {
		Rule, Key string
		Rate      float64
	}
}

// decisions are those of watchedFleet's.
func (o topOutput) decisions() string {
	sums := make(map[string]int64)
	for _, r := range o.Rules {
		for outcome, n := range map[string]int64{"allowed": r.Allowed, "denied": r.Denied} {
			if n > 0 {
				sums[r.Rule+" "+outcome] = n
			}
		}
	}
	return fmt.Sprint(sums)
}

// TestConsoleNumbers: what "top" and the consoles of both aggregators say is the sum of the
// checkers' /metrics.
func TestConsoleNumbers(t *testing.T) {
	f := startWatchedFleet(t, "rules: [{name: small, key: [user], limit: 7/day}, {name: large, key: [api], limit: 1000/day}]\n")
	for i := range 60 {
		ask(t, f.checkers[i%2], fmt.Sprintf(`{"user":"user%d","api":"<script>alert(1)</script>"}`, i%4))
	}
	if sums := f.decisions(); !strings.Contains(sums, "small allowed") || !strings.Contains(sums, "small denied") {
		t.Fatalf("nothing to compare: %s", sums)
	}
	agrees := func(what string, read func(*topOutput)) {
		t.Helper()
		daemontest.Until(t, what, func() string {
			var got topOutput
			read(&got)
			want := f.decisions()
			if got.decisions() != want || got.Heard.Checkers != len(f.checkers) || got.Heard.Aggregators != 2 {
				return fmt.Sprintf("%+v, want %s", got, want)
			}
			return ""
		})
	}
	top := func(got *topOutput) { f.read(got, "top") }
	agrees("top", top)
	for _, d := range f.aggregators {
		agrees("a console", func(got *topOutput) {
			_, body := d.Get("/api/view")
			must(t, json.Unmarshal([]byte(body), got))
		})
	}
	f.checkers[1].Stop()
	f.checkers = f.checkers[:1] // one that stops is left out
	agrees("top without one", top)
	if text := f.do("fleet"); strings.Count(text, "fresh") != 1 || !strings.Contains(text, "1 checkers and 2 aggregators heard") {
		t.Errorf("fleet:\n%s", text)
	}
	if text := f.do("top"); !strings.Contains(text, "small") {
		t.Errorf("top:\n%s", text)
	}
}

// awaitDenials waits until every checker denies a user, or none does.
func (f *watchedFleet) awaitDenials(what, user string, denied bool) {
	f.Helper()
	begin := time.Now()
	for _, d := range f.checkers {
		d.Await(what, func() bool { return ask(f.T, d, asUser(user)) != denied })
	}
	f.Logf("%s: everywhere after %v", what, time.Since(begin).Round(time.Millisecond))
}

// TestBlocksReachTheFleet blocks a key by command and at a console: every checker denies it, also
// one that starts afterwards, until the block is lifted or ends; then resets another key's count.
// All of it is in the audit log.
func TestBlocksReachTheFleet(t *testing.T) {
	f := startWatchedFleet(t, "rules: [{name: per-user, key: [user], limit: 100000/day}, {name: few, key: [few], limit: 10/day}]\n")
	const user = "<script>"
	f.do("block", user, "--rule", "per-user", "--for", "1h")
	f.awaitDenials("blocked by command", user, true)
	if ask(t, f.startChecker(), asUser(user)) { // as after a restart: the bucket knows
		t.Error("a checker that has just started lets a blocked key pass")
	}
	daemontest.Until(t, "the block is shown", func() string { // the aggregator that answers hears of it by itself
		var found []struct {
			Key   string
			Block *struct{ By string }
		}
		f.read(&found, "get", user)
		if len(found) != 1 || found[0].Key != user || found[0].Block == nil || found[0].Block.By == "" {
			return fmt.Sprintf("%+v", found)
		}
		return ""
	})
	f.do("unblock", user, "--rule", "per-user")
	f.awaitDenials("unblocked by command", user, false)
	f.refused("is not blocked", "unblock", user, "--rule", "per-user")
	f.refused("there is few, per-user", "block", user, "--rule", "per-usr")

	console := f.aggregators[1]
	at := func(path, body string, status int) (answer string) {
		t.Helper()
		got, answer := daemontest.Do(t, "POST", console.Admin()+path, body,
			"Content-Type: application/json", "Authorization: Bearer "+operatorToken)
		if got != status {
			t.Errorf("%s: %d %s, want %d", path, got, answer, status)
		}
		return answer
	}
	const blocked = `{"rule":"per-user","key":"<script>"`
	at("/api/block", blocked+`,"seconds":3600}`, 200)
	f.awaitDenials("blocked at the console", user, true)
	at("/api/unblock", blocked+`}`, 200)
	f.awaitDenials("unblocked at the console", user, false)
	at("/api/unblock", blocked+`}`, 404)
	at("/api/block", blocked+`,"seconds":1}`, 200)
	f.awaitDenials("a short block has ended", user, false)

	for _, d := range f.checkers {
		d.Await("the limit is used up", func() bool { return !ask(t, d, `{"few":"greedy"}`) })
	}
	daemontest.Until(t, "the count is back", func() string {
		var after struct{ Count float64 }
		must(t, json.Unmarshal([]byte(at("/api/reset", `{"rule":"few","key":"greedy"}`, 200)), &after))
		for _, d := range f.checkers {
			if after.Count > 0 || !ask(t, d, `{"few":"greedy"}`) {
				return fmt.Sprintf("denied, count %v", after.Count)
			}
		}
		return ""
	})
	f.do("reset", "greedy", "--rule", "few")
	auditHas(t, console, "block", "unblock", "reset")

	// An operator is not in need of an aggregator to keep somebody out.
	for _, d := range f.aggregators {
		d.Stop()
	}
	f.do("block", "late", "--rule", "per-user")
	f.awaitDenials("blocked without an aggregator", "late", true)
	f.do("unblock", "late", "--rule", "per-user")
	f.refused("is not blocked", "unblock", "late", "--rule", "per-user")
	f.refused("no aggregator answers", "top")
}

// auditHas waits until a console shows changes of these kinds, each by the token's owner and by
// command.
func auditHas(t *testing.T, console *daemontest.Daemon, wanted ...string) {
	t.Helper()
	for _, what := range wanted {
		daemontest.Until(t, "audit", func() string {
			_, view := console.Get("/api/view")
			var v struct {
				Audit []struct {
					What string
					Who  struct{ Name, From string }
				}
			}
			must(t, json.Unmarshal([]byte(view), &v))
			byToken, byCommand := false, false
			for _, r := range v.Audit {
				if r.What == what && r.Who.From != "" {
					byToken = byToken || r.Who.Name == "kristie"
					byCommand = byCommand || r.Who.Name != "kristie" && r.Who.Name != ""
				}
			}
			if !byToken || !byCommand {
				return fmt.Sprintf("no %s by both: %+v", what, v.Audit)
			}
			return ""
		})
	}
}
