package torture

import (
	"context"
	"slices"

	"github.com/offpath-io/offpath/loadtest/torture/found"
)

// Kind is what a fault does.
type Kind string

// The kinds of faults.
const (
	Kill       Kind = "kill"       // a process, as a crash does; it is started again
	Stop       Kind = "stop"       // a process, in order; likewise
	Version    Kind = "version"    // a process, in order; another version starts in its place
	Pause      Kind = "pause"      // a process, or Redis: it stands still
	Partition  Kind = "partition"  // a part from another one, one way or both
	Slow       Kind = "slow"       // all links of a part: delay, jitter, loss, a narrow line
	Cut        Kind = "cut"        // all connections of a part, once
	Restart    Kind = "restart"    // Redis, in order: it keeps its data
	Failover   Kind = "failover"   // of a Redis that has a replica, as an operator does it
	Lose       Kind = "lose"       // all data of Redis
	Rollback   Kind = "rollback"   // Redis goes back to an older snapshot
	Full       Kind = "full"       // Redis takes no more data: maxmemory is reached
	Disk       Kind = "disk"       // Redis cannot save, and so takes no more data
	ReadOnly   Kind = "readonly"   // Redis takes no more data: its replicas are gone, or it is one
	StoreClock Kind = "storeclock" // Redis' clock is set
	Rules      Kind = "rules"      // a limit changes, or the file is invalid for a while
	Clock      Kind = "clock"      // a daemon is killed, and its clock is wrong when it starts
	Secrets    Kind = "secrets"    // passwords and certificates change
)

// Drill is none that is drawn: see Options.Drills.
const Drill Kind = "drill"

// kinds are all of them: how often each is drawn, beside the others, and what plays it.
var kinds = []struct {
	kind   Kind
	weight int
	play   func(*storm, context.Context, fault, *found.Fault) error
}{
	{Kill, 4, (*storm).end},
	{Stop, 3, (*storm).end},
	{Version, 2, (*storm).change},
	{Pause, 5, (*storm).pause},
	{Partition, 6, (*storm).disturb},
	{Slow, 4, (*storm).disturb},
	{Cut, 3, (*storm).cut},
	{Restart, 1, (*storm).hurtStore},
	{Failover, 2, (*storm).failover},
	{Lose, 1, (*storm).hurtStore},
	{Rollback, 1, (*storm).hurtStore},
	{Full, 1, (*storm).hurtStore},
	{Disk, 1, (*storm).hurtStore},
	{ReadOnly, 1, (*storm).hurtStore},
	{StoreClock, 1, (*storm).setStoreClock},
	{Rules, 2, (*storm).changeRules},
	{Clock, 2, (*storm).setClock},
	{Secrets, 2, (*storm).rotate},
}

// Kinds are all of them.
func Kinds() (list []Kind) {
	for _, k := range kinds {
		list = append(list, k.kind)
	}
	return list
}

// kinds are those that a campaign can play.
func (o Options) kinds() []Kind {
	return slices.DeleteFunc(Kinds(), func(k Kind) bool {
		switch k {
		case Failover:
			return o.Mode == Single
		case Rollback:
			return o.Mode != Single // a replica has what a snapshot has not
		case Version:
			return o.Previous == ""
		}
		return false
	})
}
