package member

import (
	"slices"
	"testing"

	"github.com/offpath-io/offpath/pkg/events"
)

// BenchmarkMessage is what a message of another aggregator costs, in a fleet of 100 aggregators and
// as many shards as Redis Cluster has slots. Each aggregator receives 400 messages a second.
func BenchmarkMessage(b *testing.B) {
	const shards, others = 16_384, 99
	serves := slices.Repeat([]bool{true}, shards)
	now := start
	m := New(1)
	hear := func(said *events.Member) {
		if m.Observe(said, now) {
			m.Own(serves, now)
		}
	}
	said := func(i int, serves []bool) *events.Member {
		owns := make([]bool, shards)
		for s := i; s < shards; s += others {
			owns[s] = true
		}
		return &events.Member{Id: uint64(i)*977 + 5, Sent: now, Shards: shards, Serves: setOf(serves, true), Owns: setOf(owns, true)}
	}
	for i := range others {
		hear(said(i, serves))
	}
	for _, bm := range []struct {
		name    string
		message func(i int) *events.Member
	}{
		{"nothing new", func(i int) *events.Member { return said(i, serves) }},
		{"a shard moves", func(i int) *events.Member {
			s := said(i, serves)
			s.Owns[i%len(s.Owns)] ^= 1
			return s
		}},
		{"one that serves all", func(i int) *events.Member { return said(i, make([]bool, shards)) }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			var messages [2][others]*events.Member // which take turns
			for i := range others {
				messages[0][i], messages[1][i] = said(i, serves), bm.message(i)
			}
			turn := others
			for b.Loop() {
				hear(messages[turn/others%2][turn%others])
				turn++
			}
		})
	}
}
