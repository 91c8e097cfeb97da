package envoylimit

import (
	"context"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// scripted decides by the values of the attribute "does": what a peek says, and then what a check
// says, + or -. It writes down what it is asked: p(eek), c(heck) or a(cquire permits), and the
// value.
type scripted struct {
	t     *testing.T
	set   *rules.Set
	asked []string
	waits []time.Duration
}

func newScripted(t *testing.T) *scripted {
	t.Helper()
	set, err := rules.Parse([]byte("rules: [{name: r, key: [does], limit: 10/s, enforcement: strict}]"))
	must(t, err)
	return &scripted{t: t, set: set}
}

func (s *scripted) Rules() *rules.Set { return s.set }

func (s *scripted) decide(kind string, attrs identity.Attributes, place int) check.Decision {
	does, _ := attrs.Get("does")
	s.asked = append(s.asked, kind+does)
	if does[place] == '+' {
		return check.Decision{Allowed: true, Rule: "r", Limit: 10}
	}
	wait := time.Duration(len(s.asked)) * time.Second
	return check.Decision{Rule: "r", Limit: 10, RetryAfter: wait}
}

func (s *scripted) Do(r check.Request) check.Result {
	if r.Mode == check.Peek {
		return check.Result{Decision: s.decide("p", r.Attributes, 0)}
	}
	return check.Result{Decision: s.Check(r.Attributes, r.Cost)} // with a receipt
}

func (s *scripted) Check(attrs identity.Attributes, _ int64) check.Decision {
	return s.decide("c", attrs, 1)
}

func (s *scripted) Wait(ctx context.Context, r check.Request) (check.Result, error) {
	until, ok := ctx.Deadline()
	if !ok {
		s.t.Error("it waits for ever")
	}
	s.waits = append(s.waits, time.Until(until))
	return check.Result{Decision: s.decide("a", r.Attributes, 1)}, nil
}

func (s *scripted) Settle(string, int64) error { return nil }

// Who is asked, in which order, when several descriptors come together, and what that comes to.
func TestOrderOfQuestions(t *testing.T) {
	for _, test := range []struct {
		why, descriptors, asked, want string
	}{
		{"one is asked at once", "-+", "a-+", "+"},
		{"one that is only looked at", "0++", "p++", "+"},
		{"all pass", "++ ++", "p++ p++ a++ a++", "++"},
		{"one will not: it is asked alone", "++ --", "p++ p-- a--", "+-"},
		{"two will not: the second is not waited for", "-- ++ --", "p-- p++ p-- a-- c--", "-+-"},
		{"one lacked permits, and gets them", "++ -+", "p++ p-+ a-+ a++", "++"},
		{"another one was faster", "+- ++", "p+- p++ a+-", "-+"},
		{"another one was faster, in the end", "++ +-", "p++ p+- a++ a+-", "+-"},
		{"what is looked at denies, so nothing is charged", "0-- ++", "p-- p++", "-+"},
		{"what is looked at denies, so nobody waits", "-+ 0--", "p-+ p-- c-+", "+-"},
	} {
		s := newScripted(t)
		var all []*ratelimit.RateLimitDescriptor
		for _, does := range strings.Fields(test.descriptors) {
			d, look := strings.CutPrefix(does, "0")
			all = append(all, newDescriptor("does="+d))
			if look {
				withHits(all[len(all)-1], 0)
			}
		}
		answer, err := New(s, Options{Acquire: time.Minute}).ShouldRateLimit(t.Context(), request("d", 1, all...))
		must(t, err)
		got, overall := "", ok
		for _, status := range answer.Statuses {
			got += map[bool]string{true: "+", false: "-"}[status.Code == ok]
			overall = max(overall, status.Code)
		}
		if asked := strings.Join(s.asked, " "); asked != test.asked || got != test.want || answer.OverallCode != overall {
			t.Errorf("%s: asked %q, want %q; answered %q, want %q: %v", test.why, asked, test.asked, got, test.want, answer)
		}
		for _, wait := range s.waits {
			if wait > time.Minute {
				t.Errorf("%s: it waits for %v", test.why, wait)
			}
		}
	}
}

// Descriptors that count against one key pass together or not at all, though each would fit alone:
// what one of them was charged is given back, by whichever algorithm, and however often the client
// tries.
func TestOneKeyInSeveralDescriptors(t *testing.T) {
	for _, rule := range []string{
		"key: [user], limit: 3/day", "key: [user], limit: 3/day, algorithm: fixed_window", "key: [user], limit: 3/day, algorithm: sliding_log",
		"key: [user], limit: 3/day, algorithm: token_bucket, burst: 3", "key: [user], limit: 3/day, replaces: [other]", "key: [domain], limit: 3/day",
		"key: [user], limit: 3/day, enforcement: strict",
	} {
		checker := newChecker(t, "rules: [{name: r, "+rule+"}, {name: other, match: {path: /other}, key: [path], limit: 9/day}]")
		c := client(t, New(checker, Options{Acquire: time.Hour}))
		both := []*ratelimit.RateLimitDescriptor{newDescriptor("user=ann"), newDescriptor("user=ann", "path=/x")}
		if answer := ask(t, c, request("shop", 1, both...)); answer.OverallCode != ok {
			t.Errorf("%s: both fit: %v", rule, answer)
		}
		for range 3 {
			answer := ask(t, c, request("shop", 1, both...))
			if answer.OverallCode != over || answer.Statuses[0].Code != ok || answer.Statuses[1].Code != over {
				t.Errorf("%s: there is room for one of both: %v", rule, answer)
			}
		}
		if denied := checker.Stats().Rules[0].Denied; denied != 3 {
			t.Errorf("%s: %d denials are counted, want 3", rule, denied)
		}
		if answer := ask(t, c, request("shop", 1, both[0])); answer.OverallCode != ok || answer.Statuses[0].LimitRemaining != 0 {
			t.Errorf("%s: the third hit: %v", rule, answer)
		}
		if answer := ask(t, c, request("shop", 1, both[0])); answer.OverallCode != over {
			t.Errorf("%s: the fourth hit: %v", rule, answer)
		}
	}
}

// Nobody waits until his caller has given up, and without the option nobody waits.
func TestWaitsNoLongerThanItsCaller(t *testing.T) {
	for _, tt := range []struct {
		caller, acquire, most time.Duration
		asked                 string
	}{
		{time.Minute, time.Hour, time.Minute * 3 / 4, "a++"},
		{time.Hour, time.Minute, time.Minute, "a++"},
		{time.Hour, 0, 0, "c++"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), tt.caller)
		defer cancel()
		s := newScripted(t)
		_, err := New(s, Options{Acquire: tt.acquire}).ShouldRateLimit(ctx, request("d", 1, newDescriptor("does=++")))
		if err != nil || strings.Join(s.asked, " ") != tt.asked || tt.most > 0 && s.waits[0] > tt.most {
			t.Errorf("%+v: %v, asked %q, waits %v", tt, err, s.asked, s.waits)
		}
	}
}

// Of several denials the one that makes the caller wait longest is in the headers.
func TestLongestWait(t *testing.T) {
	for _, descriptors := range [][]string{{"does=--", "does=---"}, {"does=---", "does=--"}} {
		service := New(newScripted(t), Options{Headers: RateLimitHeaders})
		answer, err := service.ShouldRateLimit(t.Context(), request("d", 1, newDescriptor(descriptors[0]), newDescriptor(descriptors[1])))
		must(t, err)
		if h := answer.ResponseHeadersToAdd; len(h) != 4 || h[3].Value != "4" { // the fourth question is the last
			t.Errorf("%v", answer)
		}
	}
}
