package limitheaders

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
)

// The names as net/http writes them: the names of header fields have no case.
const (
	policyHeader = "Ratelimit-Policy"
	stateHeader  = "Ratelimit"
)

var (
	triple  = [3]string{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"}
	xTriple = [3]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
)

// largest is the largest integer of a structured field.
const largest = 999_999_999_999_999

// Writer writes the fields for decisions by the rules of one set. Its methods are safe for
// concurrent use.
type Writer struct {
	format Format
	set    *rules.Set
	texts  []atomic.Pointer[texts] // by the place of the rule; made on first use
}

// NewWriter returns a Writer. The format must be valid.
func NewWriter(f Format, set *rules.Set) *Writer {
	return &Writer{f.orNewest(), set, make([]atomic.Pointer[texts], len(set.Rules()))}
}

// Write sets the fields for a decision, in place of those for an earlier one. It leaves header as
// it is if the set has no such rule, or one without a limit. It does not set Retry-After.
func (w *Writer) Write(header http.Header, d check.Decision) {
	r, ok := w.set.Lookup(d.Rule)
	if !ok || r.Unlimited || w.format == None {
		return
	}
	t := w.texts[r.Place()].Load()
	if t == nil {
		t = w.format.texts(r)
		w.texts[r.Place()].Store(t)
	}
	w.format.write(header, &d, t)
}

// texts are the parts of the fields that are the same for all decisions by a rule.
type texts struct {
	rule    *rules.Rule
	name    string                  // as a string of a structured field
	policy  string                  // of callers with the rule's own limit
	windows map[int64]time.Duration // by limit; 0 if the window is ambiguous
}

func (f Format) texts(r *rules.Rule) *texts {
	t := &texts{rule: r, windows: windows(r)}
	// No error: the name has only characters that strings may have.
	t.name, _ = httpsfv.Marshal(httpsfv.NewItem(PolicyName(r.Name)))
	t.policy = f.policy(t, r.Limit)
	return t
}

// windows returns the window of each limit that a decision by the rule can have: a decision has the
// limit, but not its window.
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

// PolicyName returns a rule's name in the characters that structured fields may have. Others, and
// "%", are written as bytes in hexadecimal, as in URLs.
func PolicyName(name string) string {
	if !strings.ContainsFunc(name, escaped) {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; escaped(rune(c)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func escaped(c rune) bool { return c <= ' ' || c >= 0x7f || c == '%' }

// policy returns the value of RateLimit-Policy for callers with this limit, "" for none.
func (f Format) policy(t *texts, limit int64) string {
	window := seconds(t.windows[limit])
	limit = min(limit, largest)
	var item httpsfv.Item
	switch {
	case f < 0, f < 8 && window == 0: // these drafts require a window
		return ""
	case f < 8:
		item = httpsfv.NewItem(limit)
	default:
		item = httpsfv.NewItem(PolicyName(t.rule.Name))
		item.Params.Add("q", limit)
	}
	if window > 0 {
		item.Params.Add("w", window)
	}
	text, _ := httpsfv.Marshal(httpsfv.List{item}) // no error, see texts
	return text
}

func (f Format) write(header http.Header, d *check.Decision, t *texts) {
	v := values{header: header}
	if f >= 7 {
		v.room = make([]string, 2)
	} else {
		v.room = make([]string, 4)
	}
	if f > 0 {
		policy := t.policy
		if d.Limit != t.rule.Limit {
			policy = f.policy(t, d.Limit)
		}
		v.set(policyHeader, policy)
	}
	limit, left, reset := clamp(d.Limit), clamp(d.Remaining), resetSeconds(d)
	var room [128]byte
	text := room[:0]
	switch {
	case f >= 8:
		text = appendInt(append(text, t.name...), ";r=", left)
		v.set(stateHeader, string(appendInt(text, ";t=", reset)))
	case f == 7:
		text = appendInt(appendInt(text, "limit=", limit), ", remaining=", left)
		v.set(stateHeader, string(appendInt(text, ", reset=", reset)))
	default:
		names := &triple
		if f == XTriple {
			names = &xTriple
		}
		for i, n := range [3]int64{limit, left, reset} {
			v.set(names[i], strconv.FormatInt(n, 10))
		}
	}
}

// appendInt appends an integer of a structured field. These change with each request, and the
// library would allocate ten times.
func appendInt(text []byte, before string, n int64) []byte {
	return strconv.AppendInt(append(text, before...), n, 10)
}

// values sets fields whose slices share one array. Each slice has no spare capacity, so that an
// append to one copies it.
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

func clamp(n int64) int64 { return min(max(n, 0), largest) }

// resetSeconds returns in how many seconds there is room again. For a denial that is Retry-After,
// which must not be the earlier of the two; otherwise it is how long hits stay counted.
func resetSeconds(d *check.Decision) int64 {
	if !d.Allowed && d.RetryAfter != check.Never {
		return RetrySeconds(d.RetryAfter)
	}
	return seconds(d.Reset)
}

// RetrySeconds returns the value of Retry-After: whole seconds, rounded up, at least 1. It is 0 for
// [check.Never], when waiting does not help.
func RetrySeconds(after time.Duration) int64 {
	if after == check.Never {
		return 0
	}
	return max(seconds(after), 1)
}

// seconds rounds up: a caller that comes back early is denied again.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}
