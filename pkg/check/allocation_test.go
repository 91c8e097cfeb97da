package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/alloctest"
)

// TestChecksDoNotAllocate in the common case.
func TestChecksDoNotAllocate(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 1e9, time.Minute, 1), rule("tight", 1, time.Hour, 60))
	l, tight, k := limiter(t, c, "r"), limiter(t, c, "tight"), user("k")
	tight.CheckAt(noon, "k", 1)
	clauses := ofYAML(t, Options{}, everything)
	stretch, analytics := limiter(t, clauses, "stretch"), request("user=a class=analytics tokens=3")
	blocks := newChecker(t, Options{}, rule("r", 1e9, time.Hour, 1))
	blocks.SetBlocks([]Block{{"r", "bad", time.Unix(0, noon+second)}})
	blocked, good, bad := limiter(t, blocks, "r"), user("good"), user("bad")
	hashed, byHash := checkerAndLimiter(t, Options{KeyHash: hasher(t, keySecret)}, rule("r", 1e9, time.Hour, 1))
	for name, f := range map[string]func(){
		"by rule and key":         func() { l.CheckAt(noon, "k", 1) },
		"cost above 1":            func() { l.CheckAt(noon, "k", 7) },
		"denied":                  func() { tight.CheckAt(noon, "k", 1) },
		"by attributes":           func() { c.CheckAt(noon, k, 1) },
		"a peek":                  func() { c.PeekAt(noon, k, 1) },
		"by rules with clauses":   func() { clauses.CheckAt(noon, analytics, 1) },
		"by one of them":          func() { stretch.CheckAt(noon, "k", 1) },
		"a record":                func() { clauses.RecordAt(noon, analytics, 1) },
		"a blocked key":           func() { blocked.CheckAt(noon, "bad", 1) },
		"another key":             func() { blocked.CheckAt(noon, "good", 1) },
		"a blocked key's request": func() { blocks.CheckAt(noon, bad, 1) },
		"another request":         func() { blocks.CheckAt(noon, good, 1) },
		"a hashed key":            func() { byHash.CheckAt(noon, "k", 1) },
		"a hashed key's request":  func() { hashed.CheckAt(noon, k, 1) },
	} {
		alloctest.AtMost(t, 0, name, f)
	}
}
