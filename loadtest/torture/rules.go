package torture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// The rules of a campaign. The key of the strict one changes every exactPeriod; with the longest
// wait for an answer that is less than its window, so that all of a key's hits count together.
// After a loss of Redis it grants nothing for its window and a bucket.
const (
	fastLimit, slowLimit, exactLimit = 200, 30, 50
	exactPeriod                      = 6 * time.Second
)

func rulesText(changing int) string {
	return fmt.Sprintf(`rules:
  - { name: fast, match: { api: fast }, key: [user], limit: %d/second }
  - { name: slow, match: { api: slow }, key: [user], limit: %d/2s, buckets: 4 }
  - { name: exact, match: { api: exact }, key: [user], limit: %d/24s, buckets: 4, enforcement: strict }
  - { name: changing, match: { api: changing }, key: [user], limit: %d/second }
`, fastLimit, slowLimit, exactLimit, changing)
}

// changing is the rule whose limit changes.
const changing = "changing"

// judged is a rule as it is judged.
type judged struct {
	name  string
	limit int64
	shape window.Shape
}

var judgedRules = []judged{
	{"fast", fastLimit, window.Shape{Length: time.Second, Buckets: 1}},
	{"slow", slowLimit, window.Shape{Length: 2 * time.Second, Buckets: 4}},
	{changing, int64(slices.Max(changingLimits)), window.Shape{Length: time.Second, Buckets: 1}},
}

// streams are the traffic: of each rule, one user above the limit and some below it. Those of slow
// and changing ask for more than all checkers would admit if each let pass the whole limit.
var streams = []*stream{
	{"fast", 300, named("hot")},
	{"fast", 20, among(20)},
	{"slow", 90, named("hot")},
	{"slow", 10, among(10)},
	{changing, 180, named("hot")},
	{"exact", 16, func(_ *rand.Rand, since time.Duration) string {
		return fmt.Sprint("period-", int64(since/exactPeriod))
	}},
}

func named(user string) func(*rand.Rand, time.Duration) string {
	return func(*rand.Rand, time.Duration) string { return user }
}

func among(n int) func(*rand.Rand, time.Duration) string {
	return func(random *rand.Rand, _ time.Duration) string { return fmt.Sprint("user-", random.IntN(n)) }
}
