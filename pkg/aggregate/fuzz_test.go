package aggregate_test

import (
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events"
)

// FuzzReceive hands a worker arbitrary bytes: it neither panics nor loses its senses, and whatever
// it answers can be read.
func FuzzReceive(f *testing.F) {
	whole := report(1, 1, perSecond(start), own{"a", 0, 3}, own{"b", 1, 1}, own{"b", -1, 1})
	whole.Late = []uint64{4}
	f.Add(uint8(events.KindReport), encode(f, whole))
	f.Add(uint8(events.KindReport), encode(f, report(1, 1, perMinute(start), own{"a", 59, 1e15})))
	f.Add(uint8(events.KindReport), encode(f, &events.Report{Epoch: 1, Sequence: 1, Shards: 9, Shard: 8}))
	f.Add(uint8(events.KindReport), []byte{9, 1, 0, 0, 0, 0, 0, 0, 0, 0x20, 1, 0xff})
	f.Add(uint8(events.KindHello), encode(f, &events.Hello{Epoch: 1, Sent: start}))
	lease := leaseRequest(1, 1, perSecond(start), wish{key: "a", known: 1, want: 5}, wish{key: "a", age: -3, want: 1})
	lease.AddReturn(1, 7)
	f.Add(uint8(events.KindLease), encode(f, lease))
	f.Add(uint8(events.KindLease), encode(f, leaseRequest(3, 1, perMinute(start), wish{key: "b", age: 70, want: 1e15})))
	f.Fuzz(func(t *testing.T, kind uint8, payload []byte) {
		d := newFixture(t, memstore.New())
		reply := d.reply(events.Kind(kind))
		d.worker.Receive(start, events.Kind(kind), payload, reply)
		d.step(start + 2*ms)
		d.worker.Receive(start, events.Kind(kind), payload, reply)
		d.step(start + 40*ms)

		// Good ones are still answered.
		d.exchange(start+50*ms, report(2, 1, perSecond(start), own{"good", 0, 1}))
		d.lease(start+70*ms, leaseRequest(2, 1, perSecond(start), wish{key: "good", want: 1}))
	})
}
