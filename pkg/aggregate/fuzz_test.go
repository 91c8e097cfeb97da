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
	f.Add(uint8(events.KindHello), hello(f, 1, start))
	lease := leaseRequest(1, 1, perSecond(start), wish{key: "a", known: 1, want: 5}, wish{key: "a", age: -3, want: 1})
	lease.AddReturn(1, 7)
	f.Add(uint8(events.KindLease), encode(f, lease))
	f.Add(uint8(events.KindLease), encode(f, leaseRequest(3, 1, perMinute(start), wish{key: "b", age: 70, want: 1e15})))
	f.Fuzz(func(t *testing.T, kind uint8, payload []byte) {
		d := newFixture(t, memstore.New())
		reply := d.reply
		if events.Kind(kind) == events.KindHello {
			reply = func(data []byte) error {
				if _, err := events.DecodeWelcome(data); err != nil {
					t.Error(err)
				}
				return nil
			}
		}
		if events.Kind(kind) == events.KindLease {
			reply = d.replyGrant
		}
		d.worker.Receive(start, events.Kind(kind), payload, reply)
		d.step(start + 2*ms)
		d.worker.Receive(start, events.Kind(kind), payload, reply)
		d.step(start + 40*ms)

		good := report(2, 1, perSecond(start), own{"good", 0, 1})
		answers := len(d.answers)
		d.send(start+50*ms, good)
		d.step(start + 60*ms)
		if len(d.answers) != answers+1 {
			t.Error("a good report is not answered any more")
		}
		grants := len(d.grants)
		d.sendLease(start+70*ms, leaseRequest(2, 1, perSecond(start), wish{key: "good", want: 1}))
		d.step(start + 80*ms)
		if len(d.grants) != grants+1 {
			t.Error("a good lease request is not answered any more")
		}
	})
}
