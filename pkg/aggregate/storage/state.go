package storage

import "fmt"

// State names a shard's state: each batch raises the version; a shard that has lost data starts a
// new, higher generation. The zero State is below every other.
type State struct {
	Generation, Version uint64
}

// Less reports whether s is an earlier state than t.
func (s State) Less(t State) bool {
	return s.Generation < t.Generation || s.Generation == t.Generation && s.Version < t.Version
}

// Latest is the later of two states of each shard; one of the slices may have more shards than the
// other.
func Latest(a, b []State) []State {
	all := make([]State, max(len(a), len(b)))
	copy(all, a)
	for i, s := range b {
		if all[i].Less(s) {
			all[i] = s
		}
	}
	return all
}

// Loss is a store's loss of a shard's data: an aggregator remembered a later state than the one
// found in the shard, or one of its own batches that the shard has not had. The zero Loss is one of
// unknown size.
type Loss struct {
	Remembered, Found State
}

// Batches returns how many batches are lost, at least, and how many were remembered since the
// shard's generation began; both are 0 if that is not known. A shard that came back as it was
// before an earlier generation has lost all of this one, and more. One that has had as many others
// since it came back has lost at least one.
func (l Loss) Batches() (lost, of uint64) {
	of = l.Remembered.Version
	switch {
	case l.Found.Generation != l.Remembered.Generation:
		return of, of
	case l.replaced():
		return min(1, of), of
	}
	return of - l.Found.Version, of
}

// replaced says whether the shard has had as many batches as were remembered, and others among them.
func (l Loss) replaced() bool {
	return l.Found.Generation == l.Remembered.Generation && l.Found.Version >= l.Remembered.Version
}

func (l Loss) String() string {
	switch lost, of := l.Batches(); {
	case l.Remembered == State{}:
		return "an unknown number of batches"
	case l.replaced():
		return fmt.Sprintf("some of %d batches, in whose place others were counted", of)
	case lost == of:
		return fmt.Sprintf("all of %d batches", of)
	default:
		return fmt.Sprintf("the last %d of %d batches", lost, of)
	}
}
