package check

// used remembers which receipts were settled: the last usedChunks times 512 numbers at least, if they are of a few
// checkers, whose numbers follow one another. It forgets the older half of them at a time.
type used struct {
	young, old map[usedAt]*[usedChunk / 64]uint64
}

type usedAt struct{ epoch, chunk uint64 }

const (
	usedChunk  = 512
	usedChunks = 1 << 13 // in each half
)

func (u *used) has(epoch, number uint64) bool {
	at := usedAt{epoch, number / usedChunk}
	return u.isIn(u.young[at], number) || u.isIn(u.old[at], number)
}

func (*used) isIn(bits *[usedChunk / 64]uint64, number uint64) bool {
	return bits != nil && bits[number%usedChunk/64]>>(number%64)&1 == 1
}

func (u *used) add(epoch, number uint64) {
	at := usedAt{epoch, number / usedChunk}
	bits := u.young[at]
	if bits == nil {
		if len(u.young) == usedChunks || u.young == nil {
			u.old, u.young = u.young, make(map[usedAt]*[usedChunk / 64]uint64)
		}
		bits = new([usedChunk / 64]uint64)
		u.young[at] = bits
	}
	bits[number%usedChunk/64] |= 1 << (number % 64)
}
