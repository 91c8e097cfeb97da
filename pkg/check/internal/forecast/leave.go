package forecast

import "github.com/offpath-io/offpath/pkg/window"

// LeavesAtOnce says whether all hits of a bucket leave a window together, when another bucket
// begins: those of a log and of a fixed window. All checkers know when that is, and about how many
// hits leave, so each can reckon with what others take of the room at once. Forecasts are told of
// every such moment, also of those that have passed since anybody looked.
func LeavesAtOnce(s window.Shape) bool { return s.Kind == window.Log || s.Fixed }

// Rotate takes in the hits that leave at once when so many new buckets come after the newest one.
// counts are the hits per bucket before that, newest first.
func (k *Key) Rotate(s window.Shape, newest, by int64, counts []int64) {
	counts = counts[:s.Live()]
	for i := range min(by, int64(len(counts))) {
		if hits := counts[int64(len(counts))-1-i]; hits > 0 {
			k.leave(s.End(newest+i), hits)
		}
	}
}

// leave takes in that hits left the window at once at a time, or had left it by then.
func (k *Key) leave(at, hits int64) {
	k.expect(at)
	k.room += float64(hits)
}

// soonTime is for how long LeavesSoon looks ahead, in ns: about as long as it is to the next calm
// round.
const soonTime = int64(32e6)

// LeavesSoon is how many hits per ns will leave a window at once soon. counts are the hits per
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
