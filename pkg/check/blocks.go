package check

import "time"

// Block keeps a key out for a time, whatever its count is, and whatever its rule's lists and
// overrides say.
type Block struct {
	// Rule is the rule's name. Those of its overrides are under it too.
	Rule string
	// Key is the key's text, as the rule makes it. With Options.KeyHash it may also be the hash of
	// it, which is all that those who look at the fleet from outside know.
	Key string
	// Until is when the block ends, by the fleet's time.
	Until time.Time
}
