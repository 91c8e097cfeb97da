package rules

import (
	"net/netip"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// Throttle is what may pass beyond a rule's limit.
type Throttle struct {
	// Kind is Hard: nothing; Soft: Exceed more; Elastic: up to UpTo, while there is room elsewhere.
	Kind ThrottleKind
	// Exceed is, of Soft, the part of the limit that may pass beyond it: 0.1 is 10 %. More than 0,
	// at most 10.
	Exceed float64
	// UpTo is, of Elastic, how often the limit may pass: 2 is 200 %. More than 1, at most 100.
	UpTo float64
	// While names, of Elastic, the other rule of the set that says whether there is room: by how
	// much of its limit is used.
	While string
	// Below is the part of that limit under which there is room: 0.7 is 70 %. More than 0, at most
	// 1.
	Below float64
}

// OnLimit is what to do with a hit that does not fit.
type OnLimit struct {
	// Queue lets callers wait if they can; otherwise the hit is denied at once.
	Queue bool
	// MaxWait is the longest that a caller waits: a whole number of milliseconds, at most an hour.
	// Required if Queue.
	MaxWait time.Duration
	// MaxDepth is how many callers of one key may wait at a time at one checker: at most 1,000,000.
	// 0 is DefaultDepth if Queue, and so it is in a Set. A LeakyBucket has none: Burst is how many
	// wait.
	MaxDepth int
}

// DefaultDepth is OnLimit.MaxDepth if it is 0.
const DefaultDepth = 100

// Override gives some callers of a rule another limit.
type Override struct {
	// Match is what a caller's request must have. Not empty.
	Match []Condition
	// Limit of a counter of its own, 1 to window.MaxCount; or 0 for the rule's limit times Factor.
	Limit int64
	// Window that Limit holds over. Zero: the rule's. 0 buckets are as many as the rule's.
	Window window.Shape
	// Burst is, with Limit, that of a TokenBucket or LeakyBucket; 0 is Limit, and so it is in a
	// Set. Factor multiplies the rule's.
	Burst int64
	// Factor multiplies the rule's limit: 10 is 10x. 0.001 to 1,000,000; or 0 if there is a Limit.
	Factor float64
	// Action is Limited: Limit or Factor say how much; else both are 0.
	Action Action
	// Until is when it is over. Zero: never. One that is over has no effect. In a Set it is in UTC.
	Until time.Time
}

// List names callers by one of their attributes.
type List struct {
	// Attribute whose value is looked for.
	Attribute string
	// Values that are on the list. In a Set they are sorted, and those that are prefixes of
	// addresses, or under the attribute ip addresses, are in Prefixes.
	Values []string
	// Prefixes hold addresses that are on the list. The attribute's value is an address, or a
	// prefix, which must lie in one of them. In a Set they are sorted and do not overlap.
	Prefixes []netip.Prefix
}

// Priority divides a rule's limit among classes of traffic: each stops when the count of all
// reaches its share.
type Priority struct {
	// By is the attribute whose value is the class. Empty: no classes.
	By string
	// Shares are the parts of the limit, by class: 0.9 is 90 %. More than 0, at most 1. The class
	// DefaultClass, which there must be, stands for all others and for requests without the
	// attribute.
	Shares map[string]float64
}

// DefaultClass is the class of requests that have none with a share.
const DefaultClass = "default"
