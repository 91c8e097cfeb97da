package fleet

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// OwnTime is a machine's own time. It runs steadily when the machine's clock is set, and goes on
// while the machine is suspended, if /proc/uptime says for how long it was, as on Linux. Else an
// aggregator that wakes would not notice that others have taken its shards, and would refuse hits
// of now as those of the future. A virtual machine that is stopped from outside cannot know it.
//
// Its methods are safe for concurrent use.
type OwnTime struct {
	clock    func() time.Time
	began    time.Time
	measured func() int64 // for how long the machine has been suspended since then

	mu    sync.Mutex
	ahead atomic.Int64 // by how much more the machine's clock has gone on since then than its counter
	slept atomic.Int64 // what was measured then
}

// jump is how far the machine's clock and counter must drift apart before the machine is asked how
// long it was suspended; shorter suspensions do not count.
const jump = int64(time.Second)

// NewOwnTime returns own time, which begins by the machine's clock: time.Now, but for tests.
func NewOwnTime(clock func() time.Time) *OwnTime {
	began, up := clock(), uptime()
	return &OwnTime{clock: clock, began: began, measured: func() int64 {
		if up == 0 {
			return 0
		}
		now := uptime()
		return int64(now - up - clock().Sub(began)) // in this order no delay counts as sleep
	}}
}

// Now is own time, in Unix nanoseconds.
func (o *OwnTime) Now() int64 {
	now := o.clock()
	return o.at(now.UnixNano()-o.began.UnixNano(), int64(now.Sub(o.began)))
}

// at is own time when the machine's clock has gone on by clock since the beginning, and by counter
// its counter, which stands still while the machine is suspended.
func (o *OwnTime) at(clock, counter int64) int64 {
	if abs(clock-counter-o.ahead.Load()) >= jump { // it was suspended, or its clock was set
		o.measure(clock - counter)
	}
	return o.began.UnixNano() + counter + o.slept.Load()
}

func (o *OwnTime) measure(ahead int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slept := o.measured(); slept >= o.slept.Load()+jump {
		o.slept.Store(slept)
	}
	o.ahead.Store(ahead)
}

// uptime is for how long the machine has run, or been suspended, since it was started; 0 if it does
// not say.
func uptime() time.Duration {
	data, _ := os.ReadFile("/proc/uptime")
	text, _, _ := strings.Cut(string(data), " ")
	seconds, _ := strconv.ParseFloat(text, 64)
	return time.Duration(seconds * float64(time.Second))
}
