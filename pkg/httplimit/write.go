package httplimit

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
)

// The names, as net/http writes them: header names have no case.
const (
	policyHeader = "Ratelimit-Policy"
	stateHeader  = "Ratelimit"
	retryHeader  = "Retry-After"
)

var (
	triple  = [3]string{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"}
	xTriple = [3]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
)

// largest is the largest integer of a structured field.
const largest = 999_999_999_999_999

// Write sets the headers for a decision by a rule of this set, in place of those of another decision. It does not set Retry-After;
// [SetRetryAfter] and [WriteProblem] do.
func (h Headers) Write(header http.Header, d check.Decision, set *rules.Set) {
	if r, ok := set.Lookup(d.Rule); ok {
		h.write(header, &d, h.texts(r))
	}
}

// write sets the headers, with the texts that the plan has, as long as that is for the set of the decision's rule.
func (l *Limit) write(header http.Header, d *check.Decision, p *plan) {
	r, ok := p.set.Lookup(d.Rule)
	if !ok {
		return
	}
	t := p.texts[r.Place()].Load()
	if t == nil {
		t = l.options.Headers.texts(r)
		p.texts[r.Place()].Store(t)
	}
	l.options.Headers.write(header, d, t)
}

// texts are what headers say of a rule whatever is decided.
type texts struct {
	rule    *rules.Rule
	silent  bool                    // there is nothing to say
	name    string                  // as a string of a structured field
	policy  string                  // of those who have the rule's own limit
	windows map[int64]time.Duration // of limits; 0 if that is ambiguous
}

func (h Headers) texts(r *rules.Rule) *texts {
	t := &texts{rule: r, silent: r.Unlimited || h == NoHeaders, windows: windows(r)}
	if t.silent {
		return t
	}
	// An error cannot be: the name is of the characters that strings have.
	t.name, _ = httpsfv.Marshal(httpsfv.NewItem(policyName(r.Name)))
	t.policy = h.policy(t, r.Limit)
	return t
}

// windows are those over which limits hold that a decision by this rule can have. A decision tells the limit alone.
func windows(r *rules.Rule) map[int64]time.Duration {
	all := map[int64]time.Duration{r.Limit: r.Window.Length}
	for i := range r.Overrides {
		terms := r.Terms(i)
		if w, ok := all[terms.Limit]; ok && w != terms.Window.Length {
			all[terms.Limit] = 0
		} else {
			all[terms.Limit] = terms.Window.Length
		}
	}
	return all
}

// policyName is a rule's name in the characters that structured fields have. Others, and "%", are written as bytes in hexadecimal, as in URLs.
func policyName(name string) string {
	if !strings.ContainsFunc(name, strange) {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; strange(rune(c)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func strange(c rune) bool { return c <= ' ' || c >= 0x7f || c == '%' }

// policy is the value of RateLimit-Policy for callers who have this limit, or "" if there is none.
func (h Headers) policy(t *texts, limit int64) string {
	draft, window := h.orNewest(), seconds(t.windows[limit])
	limit = min(limit, largest)
	var item httpsfv.Item
	switch {
	case draft < 0, draft < 8 && window == 0: // these drafts want a window
		return ""
	case draft < 8:
		item = httpsfv.NewItem(limit)
	default:
		item = httpsfv.NewItem(policyName(t.rule.Name))
		item.Params.Add("q", limit)
	}
	if window > 0 {
		item.Params.Add("w", window)
	}
	text, _ := httpsfv.Marshal(httpsfv.List{item}) // an error cannot be
	return text
}

// write sets the headers of a decision by the rule of t.
func (h Headers) write(header http.Header, d *check.Decision, t *texts) {
	if t.silent {
		return
	}
	draft := h.orNewest()
	v := values{header: header}
	if draft >= 7 {
		v.room = make([]string, 2)
	} else {
		v.room = make([]string, 4)
	}
	if draft > 0 {
		policy := t.policy
		if d.Limit != t.rule.Limit {
			policy = h.policy(t, d.Limit)
		}
		v.set(policyHeader, policy)
	}
	limit, left, reset := within(d.Limit), within(d.Remaining), untilMore(d)
	var room [128]byte
	text := room[:0]
	switch {
	case draft >= 8:
		text = appendInt(append(text, t.name...), ";r=", left)
		v.set(stateHeader, string(appendInt(text, ";t=", reset)))
	case draft == 7:
		text = appendInt(appendInt(text, "limit=", limit), ", remaining=", left)
		v.set(stateHeader, string(appendInt(text, ", reset=", reset)))
	default:
		names := &triple
		if draft == XTriple {
			names = &xTriple
		}
		for i, n := range [3]int64{limit, left, reset} {
			v.set(names[i], strconv.FormatInt(n, 10))
		}
	}
}

// appendInt appends an integer of a structured field, in the library's place: these change with each request, and the library
// would allocate ten times.
func appendInt(text []byte, before string, n int64) []byte {
	return strconv.AppendInt(append(text, before...), n, 10)
}

// values sets headers whose slices share one piece of memory. Each has no room to grow in, so that who appends to one gets a copy.
type values struct {
	header http.Header
	room   []string
}

func (v *values) set(name, value string) {
	if value == "" {
		delete(v.header, name)
		return
	}
	v.room[0] = value
	v.header[name], v.room = v.room[:1:1], v.room[1:]
}

func within(n int64) int64 { return min(max(n, 0), largest) }

// untilMore is in how many seconds there is room again: of a denial what Retry-After says, which must not be the earlier of
// the two; else how long hits stay counted.
func untilMore(d *check.Decision) int64 {
	if !d.Allowed && d.RetryAfter != check.Never {
		return retrySeconds(d)
	}
	return seconds(d.Reset)
}

// seconds rounds up, since who comes back early is denied again.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}
