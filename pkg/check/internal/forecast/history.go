package forecast

// history holds what happened lately, in slots of time, so that it can be told how much of it came
// since some moment.
type history struct {
	now   int64
	width int64              // of a slot, in ns
	slots [historySlots]slot // by the number of the slot, modulo how many there are
}

// slot is the sums of one. There are as many as make up most of a forecast's memory, and few hits
// in each.
type slot struct{ asked, admitted, expected float32 }

// sums are numbers of hits: asked here, admitted here, and expected to be admitted by everybody.
type sums struct{ asked, admitted, expected float64 }

const (
	slotTime     = int64(4e6) // at least
	slotsPerFast = 4
	historySlots = 16
)

func newHistory(now, fast int64) history { return history{now: now, width: slotTimeFor(fast)} }

func slotTimeFor(fast int64) int64 { return max(slotTime, fast/slotsPerFast) }

// horizon is how far back a history reaches at least.
func (h *history) horizon() int64 { return h.width * (historySlots - 1) }

// fit forgets everything if fast rounds have become so long that the history would not reach back
// far enough.
func (h *history) fit(fast int64) {
	if width := slotTimeFor(fast); width > h.width {
		*h = history{now: h.now, width: width}
	}
}

func (h *history) slot(at int64) *slot { return &h.slots[uint64(at/h.width)%historySlots] }

// advance lets time pass; glide is asked for the hits that are expected in each stretch of it.
func (h *history) advance(to int64, glide func(span float64) float64) {
	if to-h.now > 2*h.horizon() { // what is expected in so long a silence would be forgotten again
		glide(float64(to - h.now - h.horizon()))
		h.now = to - h.horizon()
		clear(h.slots[:])
	}
	for h.now < to {
		next := min(h.now-h.now%h.width+h.width, to)
		h.slot(h.now).expected += float32(glide(float64(next - h.now)))
		h.now = next
		if next%h.width == 0 {
			*h.slot(next) = slot{}
		}
	}
}

// add puts own hits down at the time of the last advance.
func (h *history) add(asked, admitted float64) {
	s := h.slot(h.now)
	s.asked += float32(asked)
	s.admitted += float32(admitted)
}

// since is what came since then; of the slot that it lies in, in proportion.
func (h *history) since(then int64) (n sums) {
	first := h.now - h.now%h.width // of the newest slot
	end := h.now
	for range historySlots {
		if end <= then {
			break
		}
		part := 1.0
		if then > first {
			part = float64(end-then) / float64(end-first)
		}
		s := h.slot(first)
		n.asked += part * float64(s.asked)
		n.admitted += part * float64(s.admitted)
		n.expected += part * float64(s.expected)
		first, end = first-h.width, first
	}
	return n
}

func (n sums) minus(m sums) sums {
	return sums{n.asked - m.asked, n.admitted - m.admitted, n.expected - m.expected}
}
