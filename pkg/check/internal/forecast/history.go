package forecast

// history holds recent hits in slots of time, so that the hits since a time can be computed.
type history struct {
	now   int64
	width int64              // of a slot, in ns
	slots [historySlots]slot // by the number of the slot, modulo historySlots
}

// slot is the sums of one slot, as float32: slots take most of a forecast's memory, and each has
// few hits.
type slot struct{ asked, admitted, expected float32 }

// sums are numbers of hits: asked for here, admitted here, and expected to be admitted by the
// fleet.
type sums struct{ asked, admitted, expected float64 }

const (
	slotTime       = int64(4e6) // at least
	slotsPerUpdate = 4
	historySlots   = 16
)

func newHistory(now, interval int64) history {
	return history{now: now, width: slotTimeFor(interval)}
}

// slotTimeFor returns the width of slots if updates come at this interval, in ns.
func slotTimeFor(interval int64) int64 { return max(slotTime, interval/slotsPerUpdate) }

// horizon returns how far back the history reaches at least, in ns.
func (h *history) horizon() int64 { return h.width * (historySlots - 1) }

// fit clears the history if the time between updates has become so long that it would not reach
// back far enough.
func (h *history) fit(interval int64) {
	if width := slotTimeFor(interval); width > h.width {
		*h = history{now: h.now, width: width}
	}
}

func (h *history) slot(at int64) *slot { return &h.slots[uint64(at/h.width)%historySlots] }

// advance moves the history's time forward; glide returns the hits that are expected in a span of
// it.
func (h *history) advance(to int64, glide func(span float64) float64) {
	if to-h.now > 2*h.horizon() { // the hits expected in so long a silence would be forgotten again
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

// add adds own hits at the time of the last advance.
func (h *history) add(asked, admitted float64) {
	s := h.slot(h.now)
	s.asked += float32(asked)
	s.admitted += float32(admitted)
}

// since returns the hits since a time; of the slot that contains the time, a proportional part.
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
