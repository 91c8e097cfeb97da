package evaluation

import (
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// TestOrderOfLocks: counters are locked in the order in which their limiters were made, whatever
// the set says, so that no two checks wait for each other.
func TestOrderOfLocks(t *testing.T) {
	var h counter.Host
	h.Init(fleetstate.Config{MaxLiveKeys: 100, Local: true})
	made := make(map[string]*ruleset.Limiter)
	from := ruleset.Source{
		Find: func(missing []counter.ID) []*ruleset.Limiter {
			found := make([]*ruleset.Limiter, len(missing))
			for i, id := range missing {
				found[i] = made[id.Name]
			}
			return found
		},
		Make: func(r *rules.Rule) *ruleset.Limiter {
			l := new(ruleset.Limiter)
			l.Init(&h, uint64(len(made)+1), r)
			made[r.Name] = l
			return l
		},
	}
	for _, names := range []string{"abd", "dba", "bda", "ba", "dba"} {
		var list []rules.Rule
		for _, name := range names {
			shape := window.Shape{Length: time.Minute, Buckets: 1}
			list = append(list, rules.Rule{Name: string(name), Key: []string{"user"}, Limit: 1, Window: shape})
		}
		set, err := rules.NewSet(list...)
		if err != nil {
			t.Fatal(err)
		}
		p := ruleset.Compile(set, 1, 0, nil, nil, &h, from)
		for _, e := range p.Entries {
			e.Limiter.SetLimits(e.Limits)
		}
		var a evaluation
		if !a.match(p, identity.Attributes{{Name: "user", Value: "kristie"}}, 1, 1, Charging) || len(a.decisions) != len(names) {
			t.Fatalf("%s: asks %d rules", names, len(a.decisions))
		}
		for i, q := range a.decisions {
			if i > 0 && a.decisions[i-1].limiter.Order >= q.limiter.Order || a.key(i) != "kristie" {
				t.Errorf("%s: locked in another order: %s is number %d, key %q", names, q.limiter.Group.Name, i, a.key(i))
			}
		}
	}
}
