// Package found is what a fault campaign found: the figures of its table, its page and its JSON.
// It imports nothing, so that whoever shows them needs none of the servers and clients of package
// torture.
package found

// Result is what a campaign found. Times are seconds since its start.
type Result struct {
	Mode    string  `json:"mode"`
	Seed    uint64  `json:"seed"`
	Command string  `json:"command"` // repeats the faults
	Seconds float64 `json:"seconds"`
	Rounds  int     `json:"rounds"`
	// StoodStill is the share of the time in which the machine itself stood still.
	StoodStill  float64      `json:"stood_still_share"`
	Interrupted bool         `json:"interrupted"`
	Faults      []Fault      `json:"faults"`
	Masters     []Master     `json:"masters,omitempty"`
	Rests       []Rest       `json:"rests"`
	Drills      []Drill      `json:"drills,omitempty"`
	Requests    Requests     `json:"requests"`
	Counts      Conservation `json:"conservation"`
	Rules       []Rule       `json:"rules"`
	Unknown     Unknown      `json:"unknown_at_rest"`
	Violations  []Violation  `json:"violations"`
}

// Unknown is how long a hit may be unknown to other checkers at rest, by what reports take.
type Unknown struct {
	P50     float64 `json:"p50_ms"` // of half seconds
	Longest float64 `json:"longest_ms"`
}

// Fault is one fault: what was done to whom.
type Fault struct {
	At     float64 `json:"at_s"`
	For    float64 `json:"for_s"` // 0: over at once
	Kind   string  `json:"kind"`
	Target string  `json:"target"`
	Detail string  `json:"detail,omitempty"`
}

// Master is a node of Redis that became a master, or is one no longer.
type Master struct {
	At      float64 `json:"at_s"`
	Node    string  `json:"node"`
	Becomes bool    `json:"becomes"`
	Ledger  int64   `json:"ledger"` // of the node; if there was a master before, less is lost
}

// Rest is how the fleet came to rest after the faults of a round.
type Rest struct {
	At    float64 `json:"at_s"`    // when the last fault had ended
	After float64 `json:"after_s"` // until everything was ready and fresh; negative: it was not in time
}

// Drill is how the hot key of the rule "fast" fared in one drill.
type Drill struct {
	Name       string  `json:"name"`
	At         float64 `json:"at_s"`
	For        float64 `json:"for_s"`
	Passed     float64 `json:"passed"`           // as a part of what the limit allows in that time
	Worst      float64 `json:"over_worst"`       // in any window, as a share of the limit
	WorstLater float64 `json:"over_worst_later"` // from 24 s on: checkers keep to their local share
	Unanswered int64   `json:"unanswered"`       // of live checkers
	Longest    float64 `json:"longest_ms"`       // of live checkers
	RestAfter  float64 `json:"rest_after_s"`     // as in Rest
}

// Requests are those that clients made, by what became of them.
type Requests struct {
	Asked     int64   `json:"asked"`
	Allowed   int64   `json:"allowed"`
	Denied    int64   `json:"denied"`
	Strict    int64   `json:"strict"`  // allowed, by the strict rule
	Excused   int64   `json:"excused"` // asked of a checker that was killed, stopped or frozen meanwhile
	Late      int64   `json:"late"`    // of a live checker, but not answered within 100 ms
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	Longest   float64 `json:"longest_ms"`
	OverRLS   int64   `json:"over_rls"`
	Uncertain int64   `json:"uncertain"` // without an answer: they may have been charged
}

// Conservation says where all hits are that were allowed:
//
//	allowed - held ≤ ledger + dropped + lost by the store (and perhaps lost)
//	ledger + dropped + lost by the store ≤ allowed + uncertain + counted again
type Conservation struct {
	Allowed   int64 `json:"allowed"`
	Uncertain int64 `json:"uncertain"`
	Ledger    int64 `json:"ledger"`  // counted, late and refused
	Dropped   int64 `json:"dropped"` // overflow and lost, as checkers say, those too that were killed since
	// Held is what checkers held that were killed, or could not deliver before they had to stop.
	Held int64 `json:"held_by_killed_checkers"`
	// StoreLost is what was in the ledger before the store lost data, and not after: when it was
	// emptied, and when a replica took over that had not got all.
	StoreLost int64 `json:"lost_by_the_store"`
	// StoreLostMore is what replicas that took over either had got in the last moment, or counted
	// in the first: then as much more was lost.
	StoreLostMore int64 `json:"perhaps_lost_by_the_store"`
	// CountedAgain is how much of what the store lost checkers had not heard of, at most: they
	// report it again.
	CountedAgain int64 `json:"perhaps_counted_again"`
}

// Bounds says how many hits were found, and between which numbers that has to be.
func (n *Conservation) Bounds() (least, found, most int64) {
	return n.Allowed - n.Held - n.StoreLostMore, n.Ledger + n.Dropped + n.StoreLost,
		n.Allowed + n.Uncertain + n.CountedAgain
}

// AddFailovers adds what is in no ledger any more of what masters had counted. It includes what is
// in StoreLost already.
func (n *Conservation) AddFailovers(lost, more int64) {
	n.CountedAgain += max(lost+more-n.StoreLost, 0)
	n.StoreLost, n.StoreLostMore = lost, more
}

// Rule is how one rule fared: its worst key at each moment.
type Rule struct {
	Rule     string  `json:"rule"`
	Limit    int64   `json:"limit"`
	Worst    float64 `json:"over_worst"`         // in any window, as a share of the limit
	AtRest   float64 `json:"over_worst_at_rest"` // in windows of rest
	Step     float64 `json:"step_s"`
	Limits   []int64 `json:"limits"` // at each step
	Counts   []int64 `json:"counts"` // the worst key's
	Admitted []int64 `json:"admitted"`
	Denied   []int64 `json:"denied"`
}

// Violation is something that must not be.
type Violation struct {
	At   float64 `json:"at_s"`
	What string  `json:"what"` // which promise is broken
	Text string  `json:"text"` // how
}
