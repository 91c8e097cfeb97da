package aggregate_test

import (
	"bytes"
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events"
)

// BenchmarkMember is what a message of another aggregator costs that says nothing new, in a fleet
// of 100 aggregators and as many shards as Redis Cluster has slots.
func BenchmarkMember(b *testing.B) {
	const shards, others = 16_384, 99
	d := newFixture(b, memstore.New(), func(o *aggregate.Options) { o.Shards, o.ID = shards, 1 })
	d.pass(start + 2*second)
	var messages [others][]byte
	for i := range messages {
		m := &events.Member{
			Id: uint64(i + 2), Sent: d.now, Shards: shards, Time: d.now, Error: ms,
			Serves: bytes.Repeat([]byte{255}, shards/8), Owns: make([]byte, shards/8),
		}
		for s := i; s < shards; s += others {
			m.Owns[s/8] |= 1 << (s % 8)
		}
		for id := range uint64(others) {
			m.Echoes = append(m.Echoes, &events.Echo{Id: id + 1, Sent: d.now, Held: ms})
		}
		messages[i] = encode(b, m)
	}
	next := 0
	for b.Loop() {
		d.worker.Receive(d.now, events.KindMember, messages[next%others], nil)
		next++
	}
	b.ReportMetric(float64(len(messages[0])), "bytes")
}
