// Package rules holds what is limited: rules, and immutable sets of them, made in Go or
// read from YAML.
//
// A rule applies to the requests that it matches, and says who is limited (its key),
// how many hits that one has (its limit), per what window, and what to do when the
// request or offpath itself lacks what is needed. A set that exists is valid: NewSet,
// Parse and Load refuse everything else, with the place and the reason.
package rules

import (
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/window"
)

// Rule is one limit. Those in a Set are shared: they must not be changed.
type Rule struct {
	// Name tells rules apart: in answers, metrics, the store and the ledger. 1 to 128
	// bytes of UTF-8, printable and without spaces, unique in its set.
	Name string
	// Match is what a request must have, all of it, for the rule to apply. Empty
	// matches every request. At most 64, no name twice.
	Match []identity.Attribute
	// Key names the attributes whose values say who is limited. 1 to 64, none twice.
	Key []string
	// OnMissing is what to do with a request that lacks an attribute of Key.
	OnMissing OnMissing
	// Limit is the most hits that may lie in the window: 1 to window.MaxCount.
	Limit int64
	// Window is over how long Limit holds, and how it is cut. 0 buckets count as 1.
	Window window.Shape
	// Enforcement is how strictly Limit holds.
	Enforcement Enforcement
	// OnOutage is what the rule says when offpath itself cannot know. In a Set it is Open or Closed;
	// Open together with Strict is refused.
	OnOutage OnOutage
}

// OnMissing is what a rule does with a request that lacks an attribute of its key.
type OnMissing uint8

const (
	Skip  OnMissing = iota // the rule does not apply (default)
	Deny                   // the request is denied
	Empty                  // what is missing counts as an empty value
)

// Enforcement is how strictly a rule's limit holds.
type Enforcement uint8

const (
	Async  Enforcement = iota // hits are counted behind, and the limit may be exceeded a little (default)
	Strict                    // hits spend permits granted beforehand, and the limit is never exceeded
)

// OnOutage is what a rule says when offpath itself cannot know.
type OnOutage uint8

const (
	DefaultOnOutage OnOutage = iota // Open under Async, Closed under Strict
	Open                            // the request may pass
	Closed                          // the request is denied
)

// The words of YAML, by value.
var (
	onMissingWords = []string{Skip: "skip", Deny: "deny", Empty: "empty"}
	onOutageWords  = []string{DefaultOnOutage: "default", Open: "open", Closed: "closed"} // the first only here

	enforcementWords = []string{Async: "async", Strict: "strict"}
)

// String is the word of YAML, or "invalid".
func (o OnMissing) String() string { return wordOf(onMissingWords, int(o)) }

// String is the word of YAML, or "invalid".
func (e Enforcement) String() string { return wordOf(enforcementWords, int(e)) }

// String is the word of YAML, or "default", or "invalid".
func (o OnOutage) String() string { return wordOf(onOutageWords, int(o)) }

func wordOf(words []string, value int) string {
	if value >= len(words) {
		return "invalid"
	}
	return words[value]
}

// Matches reports whether the rule applies: all of Match is there and equal. A missing
// attribute does not equal an empty one. It does not allocate.
func (r *Rule) Matches(attrs identity.Attributes) bool {
	for i := range r.Match {
		if value, ok := attrs.Get(r.Match[i].Name); !ok || value != r.Match[i].Value {
			return false
		}
	}
	return true
}

// AppendKey appends to dst the key of the one whom the rule limits; see
// identity.AppendKey. ok is false if an attribute is missing and OnMissing is not
// Empty; key is dst then. An attribute with an empty value is not missing.
func (r *Rule) AppendKey(dst []byte, attrs identity.Attributes) (key []byte, ok bool) {
	if r.OnMissing != Empty {
		for _, name := range r.Key {
			if _, ok := attrs.Get(name); !ok {
				return dst, false
			}
		}
	}
	return identity.AppendKey(dst, r.Key, attrs), true
}
