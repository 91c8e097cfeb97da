package settlement

// used remembers which receipts were settled: the last chunks times chunkSize numbers at least, if
// they are of a few checkers, whose numbers follow one another. It forgets the older half of them
// at a time.
type used struct {
	young, old map[chunkID]*chunk
}

type chunkID struct{ epoch, number uint64 }

type chunk [chunkSize / 64]uint64 // a bit for each number

const (
	chunkSize = 512
	chunks    = 1 << 13 // in each half
)

func (u *used) has(epoch, number uint64) bool {
	id := chunkID{epoch, number / chunkSize}
	return u.young[id].has(number) || u.old[id].has(number)
}

func (c *chunk) has(number uint64) bool {
	return c != nil && c[number%chunkSize/64]>>(number%64)&1 == 1
}

func (u *used) add(epoch, number uint64) {
	id := chunkID{epoch, number / chunkSize}
	c := u.young[id]
	if c == nil {
		if len(u.young) == chunks || u.young == nil {
			u.old, u.young = u.young, make(map[chunkID]*chunk)
		}
		c = new(chunk)
		u.young[id] = c
	}
	c[number%chunkSize/64] |= 1 << (number % 64)
}
