package forecast

import "github.com/offpath-io/offpath/pkg/window"

// LeavesAtOnce returns whether all hits of a bucket leave a window together, when another bucket
// begins: in a log and in a fixed window. All checkers know when that is, and about how many hits
// leave, so each can estimate at once how much of the room others take. Forecasts are told of every
// such moment, also of those since the last look.
func LeavesAtOnce(s window.Shape) bool { return s.Kind == window.Log || s.Fixed }

// Rotate records the hits that leave at once when this many new buckets follow the newest one.
// counts are the hits per bucket before that, newest first.
func (k *Key) Rotate(s window.Shape, newest, by int64, counts []int64) {
	counts = counts[:s.Live()]
	for i := range min(by, int64(len(counts))) {
		if hits := counts[int64(len(counts))-1-i]; hits > 0 {
			k.leave(s.End(newest+i), hits)
		}
	}
}

// leave records that hits left the window at once, at a time.
func (k *Key) leave(at, hits int64) {
	k.expect(at)
	k.room += float64(hits) / k.Unit()
}

// soonTime is how far LeavesSoon looks ahead, in ns: about the time to the next normal round.
const soonTime = int64(32e6)

// LeavesSoon returns how many hits per ns will soon leave a window at once. counts are the hits per
// bucket, newest first.
func LeavesSoon(s window.Shape, counts []int64) float64 {
	size := int64(s.BucketSize())
	n := min(max(soonTime/size, 1), int64(s.Buckets))
	var hits int64
	for _, h := range counts[s.Live()-int(n) : s.Live()] {
		hits += h
	}
	return float64(hits) / float64(n*size)
}
