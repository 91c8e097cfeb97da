package fleet

import (
	"fmt"
	"runtime"

	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Fewer keys say nothing about the memory of one: everything else would be most of it.
const (
	fewestKeys = 10_000
	sampleKeys = 50_000
)

// checkerMemory measures the memory of one key in a checker, its text included, with a checker of
// its own: with the scenario's keys if there are enough of them, else with more like them. It
// returns nil if that fails.
func checkerMemory(sc *scenario.Scenario, p *plan) *float64 {
	set, err := rules.NewSet(sc.Rules...)
	if err != nil {
		return nil
	}
	c, err := check.New(check.Options{Rules: set})
	if err != nil {
		return nil
	}
	limiter, _ := c.Limiter(sc.Rules[0].Name)
	before := heap()
	for i := range sampleKeys {
		limiter.Check(p.sampleText(i), 1)
	}
	used := heap() - before
	runtime.KeepAlive(c)
	return new(float64(used) / sampleKeys)
}

// storeMemory returns what Redis held for each key at the end of the measured part, or nil if there
// were too few, or there is no Redis. A bucket stays there until two windows after its end.
func (r *run) storeMemory(all []decided, end int64) *float64 {
	if !sameLives(r.empty, r.used[1]) {
		return nil
	}
	keys := make(map[int32]struct{})
	for _, d := range all {
		length := int64(r.scenario.Rules[r.plan.rules[d.hit.Key]].Window.Length)
		if d.allowed && d.at < end && d.at >= end-3*length {
			keys[d.hit.Key] = struct{}{}
		}
	}
	if len(keys) < fewestKeys {
		return nil
	}
	return new(float64(r.used[1].memory-r.empty.memory) / float64(len(keys)))
}

// sampleText returns a text of its own for the i-th sampled key, as long as the scenario's are.
func (p *plan) sampleText(i int) string {
	length := 8
	if len(p.texts) > 0 {
		length = max(length, len(p.texts[i%len(p.texts)]))
	}
	return fmt.Sprintf("%0*d", length, i)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
