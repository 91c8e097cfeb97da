package envoylimit

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc/status"
)

// original is testdata/original.yaml, which says how it is written.
type original struct {
	Differences []string
	Cases       []struct{ Name, Configuration, Requests string }
}

// What envoyproxy/ratelimit has answered is answered here, but for the differences that the
// documents tell of.
func TestAnswersOfTheOriginal(t *testing.T) {
	text, err := os.ReadFile("testdata/original.yaml")
	must(t, err)
	var o original
	must(t, yaml.Unmarshal(text, &o))
	apis, err := os.ReadFile("../../docs/adapters.md")
	must(t, err)
	unused := slices.Clone(o.Differences)
	for _, c := range o.Cases {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, d := range replay(t, c.Configuration, strings.Split(strings.TrimSpace(c.Requests), "\n")) {
					if !slices.Contains(o.Differences, d) {
						t.Errorf("%q is not among the differences", d)
					}
					unused = slices.DeleteFunc(unused, func(known string) bool { return known == d })
				}
			})
		})
	}
	for _, d := range o.Differences {
		if !strings.Contains(string(apis), "**"+d+"**") {
			t.Errorf("docs/adapters.md does not tell of the difference %q", d)
		}
	}
	if len(unused) > 0 {
		t.Errorf("no answer shows that %q", unused)
	}
}

// replay sends the requests again, each at its time, and returns the differences that their
// answers are said to show.
func replay(t *testing.T, configuration string, lines []string) (differences []string) {
	t.Helper()
	service, start := New(newChecker(t, configuration), Options{Headers: RateLimitHeaders}), time.Now()
	for i, line := range lines {
		asked, want, ok := strings.Cut(line, " => ")
		if !ok {
			continue // it is about the request before it
		}
		if i+1 < len(lines) {
			if here, ok := strings.CutPrefix(strings.TrimSpace(lines[i+1]), "here "); ok {
				here, difference, _ := strings.Cut(here, " because ")
				if here == want {
					t.Errorf("%s: there is no difference", line)
				}
				want, differences = here, append(differences, difference)
			}
		}
		at, r := parseRequest(t, asked)
		time.Sleep(time.Until(start.Add(at)))
		if got := textOf(service.ShouldRateLimit(t.Context(), r)); got != want {
			t.Errorf("%s\n  here %s", line, got)
		}
	}
	return differences
}

// parseRequest reads a request, and when it comes.
func parseRequest(t *testing.T, line string) (at time.Duration, r *ratelimitv3.RateLimitRequest) {
	t.Helper()
	seconds, rest, _ := strings.Cut(line, " ")
	s, err := strconv.ParseFloat(seconds, 64)
	must(t, err)
	r = &ratelimitv3.RateLimitRequest{Domain: "d"}
	for _, one := range strings.Split(rest, " | ") {
		d := new(ratelimit.RateLimitDescriptor)
		for _, word := range strings.Fields(one) {
			key, value, isEntry := strings.Cut(word, "=")
			number, negative := strings.CutPrefix(strings.TrimPrefix(word, "x"), "-")
			hits, err := strconv.ParseUint(number, 10, 32)
			switch {
			case strings.HasPrefix(word, "in:"):
				r.Domain = word[len("in:"):]
			case isEntry:
				d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
			case word[0] == '@':
				number, unit, _ := strings.Cut(word[1:], "/")
				most, err := strconv.ParseUint(number, 10, 32)
				must(t, err)
				d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: uint32(most), Unit: typev3.RateLimitUnit(typev3.RateLimitUnit_value[strings.ToUpper(unit)]),
				}
			case err != nil:
				t.Fatalf("%s: %v", line, err)
			case len(d.Entries) == 0:
				r.HitsAddend = uint32(hits)
			default:
				withHits(d, hits).IsNegativeHits = negative
			}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return time.Duration(s * float64(time.Second)), r
}

// textOf writes an answer, but for what is never the same: the names of limits, codes of errors,
// and Retry-After, which the original does not send.
func textOf(answer *ratelimitv3.RateLimitResponse, err error) string {
	if err != nil {
		return "error: " + status.Convert(err).Message()
	}
	var all []string
	overall := ok
	for _, s := range answer.Statuses {
		overall = max(overall, s.Code)
		text := map[ratelimitv3.RateLimitResponse_Code]string{ok: "ok", over: "over"}[s.Code]
		if l := s.CurrentLimit; l != nil {
			unit := strings.ToLower(l.Unit.String())
			text += fmt.Sprintf(" %d of %d/%s %ds", s.LimitRemaining, l.RequestsPerUnit, unit, s.DurationUntilReset.GetSeconds())
		} else if s.LimitRemaining > 0 {
			text += fmt.Sprintf(" %d", s.LimitRemaining)
		}
		all = append(all, text)
	}
	text := strings.Join(all, " | ")
	if answer.OverallCode != overall {
		text += " overall " + answer.OverallCode.String()
	}
	for i, h := range answer.ResponseHeadersToAdd {
		if h.Key != "Retry-After" {
			text += [...]string{" ; ", " ", " "}[i] + h.Value
		}
	}
	return text
}

// A descriptor that a replaced rule limits, and another one does not, may pass.
func TestReplacedBesideUnlimited(t *testing.T) {
	service := New(newChecker(t, `
rules:
  - {name: free, match: {plan: "*"}, unlimited: true}
  - {name: plan, match: {plan: "*"}, key: [plan], limit: 1/day}
  - {name: coupon, match: {coupon: "*"}, key: [coupon], limit: 9/day, replaces: [plan]}
`), Options{})
	for range 3 {
		answer, err := service.ShouldRateLimit(t.Context(), request("d", 1, newDescriptor("plan=a"), newDescriptor("coupon=b")))
		must(t, err)
		if answer.OverallCode != ok || answer.Statuses[0].LimitRemaining != math.MaxUint32 {
			t.Errorf("%v", answer)
		}
	}
}
