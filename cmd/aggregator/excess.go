package main

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath/pkg/aggregate"
)

// excessFor is how long a rule's largest excess is told, at least; twice as long at most.
const excessFor = time.Minute

var excessDesc = describe("over_limit_ratio",
	"Largest count of any of the rule's keys beyond its limit in the last one to two minutes, as part of the limit. 0 if there was none.", "rule")

// peaks tells Prometheus by how much rules were exceeded at most, lately. It has as many rules as
// there are labels.
type peaks struct {
	now func() time.Time

	mu         sync.Mutex
	began      time.Time
	this, last map[string]float64 // by label, of this span and the one before
}

func newPeaks(now func() time.Time) *peaks {
	return &peaks{now: now, this: make(map[string]float64)}
}

// note takes in a rule's excess, or with 0 that there is such a rule.
func (p *peaks) note(label string, ratio float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turnLocked()
	p.this[label] = max(p.this[label], ratio)
}

// forget takes a label away.
func (p *peaks) forget(label string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.this, label)
	delete(p.last, label)
}

// turnLocked begins a new span if it is time. Labels stay, with no excess.
func (p *peaks) turnLocked() {
	switch age := p.now().Sub(p.began); {
	case age < excessFor:
		return
	case age < 2*excessFor:
		p.last = maps.Clone(p.this)
	default:
		p.last = nil
	}
	p.began = p.now()
	for label := range p.this {
		p.this[label] = 0
	}
}

// Describe sends the one description.
func (p *peaks) Describe(descs chan<- *prometheus.Desc) { descs <- excessDesc }

// Collect sends the larger of the two spans.
func (p *peaks) Collect(out chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turnLocked()
	for label, ratio := range p.this {
		out <- prometheus.MustNewConstMetric(excessDesc, prometheus.GaugeValue, max(ratio, p.last[label]), label)
	}
}

// exceedLocked counts the excesses of a batch that was applied.
func (a *applies) exceedLocked(info aggregate.ApplyInfo) {
	for _, e := range info.Excess {
		label := a.labels.Of(info.Batch.Rules[e.Rule].Name)
		a.over.WithLabelValues(label).Add(e.Hits)
		a.peaks.note(label, e.Most)
	}
}
