package rules

import "strings"

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

// String is the word of YAML, or "invalid".
func (o OnMissing) String() string { return wordOf(o, "skip", "deny", "empty") }

// String is the word of YAML, or "invalid".
func (a Algorithm) String() string {
	return wordOf(a,
		"sliding_window", "fixed_window", "sliding_log", "token_bucket", "leaky_bucket")
}

// String is the word of YAML, or "invalid".
func (e Enforcement) String() string { return wordOf(e, "async", "strict") }

// String is the word of YAML, or "default", or "invalid".
func (o OnOutage) String() string { return wordOf(o, unset, "share", "open", "closed") }

// String is the word of YAML, or "invalid".
func (k ThrottleKind) String() string { return wordOf(k, "hard", "soft", "elastic") }

// String is the word of YAML, or "invalid".
func (c Count) String() string { return wordOf(c, "admitted", "all") }

// String is the word of YAML, or "limited", or "invalid".
func (a Action) String() string { return wordOf(a, "limited", "unlimited", "blocked") }

// String is the word of YAML, or "invalid".
func (o onLimit) String() string { return wordOf(o, "reject", "queue") }

const (
	unset   = "default" // the word of a value that has none in YAML
	invalid = "invalid" // the word of a number that is no value of its type
)

// wordOf is the word of a value by the words of all values of its type.
func wordOf[T ~uint8](value T, words ...string) string {
	if int(value) >= len(words) {
		return invalid
	}
	return words[value]
}

// worded is a type whose values have words.
type worded interface {
	~uint8
	String() string
}

// wordsOf are the words that the type has in YAML.
func wordsOf[T worded]() (words []string) {
	for value := T(0); value.String() != invalid; value++ {
		if value.String() != unset {
			words = append(words, value.String())
		}
	}
	return words
}

// checkWord refuses values that have no word.
func checkWord[T worded](value T) faults {
	if value.String() != invalid {
		return nil
	}
	return faultf("%d is not one of %s", value, strings.Join(wordsOf[T](), ", "))
}
