package rules

import (
	"cmp"
	"slices"
	"strings"
)

// OnMissing is what a rule does with a request that lacks an attribute of its key.
type OnMissing uint8

const (
	Skip  OnMissing = iota // the rule does not apply (default)
	Deny                   // the request is denied
	Empty                  // what is missing counts as an empty value
)

// Algorithm is how hits are counted, and when they leave the count.
type Algorithm uint8

const (
	SlidingWindow Algorithm = iota // buckets, the oldest weighted (default)
	FixedWindow                    // one counter, from 0 at the start of each window
	SlidingLog                     // every bucket that touches the window, in full
	TokenBucket                    // hits spend tokens; Limit per window come back, up to Burst
	LeakyBucket                    // hits wait their turn, and leave evenly at Limit per window
)

// Enforcement is how strictly a rule's limit holds.
type Enforcement uint8

const (
	Async  Enforcement = iota // hits are reported later; a little more may pass (default)
	Strict                    // hits spend permits; never more than the limit passes
)

// OnOutage is what a rule says when offpath itself cannot know.
type OnOutage uint8

const (
	DefaultOnOutage OnOutage = iota // Share under Async, Closed under Strict
	Share                           // each checker keeps to its share of the limit
	Open                            // the request may pass
	Closed                          // the request is denied
)

// ThrottleKind is what may pass beyond a rule's limit.
type ThrottleKind uint8

const (
	Hard    ThrottleKind = iota // nothing (default)
	Soft                        // a fixed part more
	Elastic                     // more, while there is room elsewhere
)

// Count is which hits a rule counts.
type Count uint8

const (
	Admitted Count = iota // those that pass (default)
	All                   // those that it denies, too
)

// Action is what an override does.
type Action uint8

const (
	Limited   Action = iota // its own limit holds (default)
	Unlimited               // no limit holds
	Blocked                 // every hit is denied
)

// onLimit is what a rule does with a hit that does not fit.
type onLimit uint8

const (
	reject onLimit = iota // the hit is denied at once (default)
	queue                 // the caller may wait
)

// The words of YAML, by value; "" where a value has none.
var (
	onMissingWords = []string{Skip: "skip", Deny: "deny", Empty: "empty"}
	algorithmWords = []string{
		SlidingWindow: "sliding_window", FixedWindow: "fixed_window", SlidingLog: "sliding_log",
		TokenBucket: "token_bucket", LeakyBucket: "leaky_bucket",
	}
	enforcementWords = []string{Async: "async", Strict: "strict"}
	onOutageWords    = []string{DefaultOnOutage: "", Share: "share", Open: "open", Closed: "closed"}
	throttleWords    = []string{Hard: "hard", Soft: "soft", Elastic: "elastic"}
	onLimitWords     = []string{reject: "reject", queue: "queue"}
	countWords       = []string{Admitted: "admitted", All: "all"}
	actionWords      = []string{Limited: "", Unlimited: "unlimited", Blocked: "blocked"}
)

func (OnMissing) words() []string    { return onMissingWords }
func (Algorithm) words() []string    { return algorithmWords }
func (Enforcement) words() []string  { return enforcementWords }
func (OnOutage) words() []string     { return onOutageWords }
func (ThrottleKind) words() []string { return throttleWords }
func (onLimit) words() []string      { return onLimitWords }
func (Count) words() []string        { return countWords }
func (Action) words() []string       { return actionWords }

// String is the word of YAML, or "invalid".
func (o OnMissing) String() string { return wordOf(o) }

// String is the word of YAML, or "invalid".
func (a Algorithm) String() string { return wordOf(a) }

// String is the word of YAML, or "invalid".
func (e Enforcement) String() string { return wordOf(e) }

// String is the word of YAML, or "default", or "invalid".
func (o OnOutage) String() string { return cmp.Or(wordOf(o), "default") }

// String is the word of YAML, or "invalid".
func (k ThrottleKind) String() string { return wordOf(k) }

// String is the word of YAML, or "invalid".
func (c Count) String() string { return wordOf(c) }

// String is the word of YAML, or "limited", or "invalid".
func (a Action) String() string { return cmp.Or(wordOf(a), "limited") }

// words is a type whose values have words.
type words interface {
	~uint8
	words() []string
}

func wordOf[T words](value T) string {
	if int(value) >= len(value.words()) {
		return "invalid"
	}
	return value.words()[value]
}

// checkWord refuses values that have no word.
func checkWord[T words](value T) faults {
	if int(value) < len(value.words()) {
		return nil
	}
	return faultf("%d is not one of %s", value, strings.Join(wordsOf(value), ", "))
}

// wordsOf are the words of the value's type.
func wordsOf[T words](value T) []string {
	unnamed := func(word string) bool { return word == "" }
	return slices.DeleteFunc(slices.Clone(value.words()), unnamed)
}
