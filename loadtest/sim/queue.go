package sim

// queue says when whose next step is due: a heap of numbers by time, then by number. Numbers are small
// and dense.
type queue struct {
	heap  []int
	place []int // in the heap, by number
	at    []int64
}

// first returns who is due first, and when.
func (q *queue) first() (number int, at int64) { return q.heap[0], q.at[q.heap[0]] }

// set says when a number is due. A number that was never set must be the next one.
func (q *queue) set(number int, at int64) {
	if number == len(q.at) {
		q.at, q.place, q.heap = append(q.at, at), append(q.place, number), append(q.heap, number)
		q.up(number)
		return
	}
	q.at[number] = at
	q.up(q.place[number])
	q.down(q.place[number])
}

// sooner says that a number is due at this time, unless it is due before anyway.
func (q *queue) sooner(number int, at int64) {
	if at < q.at[number] {
		q.set(number, at)
	}
}

func (q *queue) less(i, j int) bool {
	a, b := q.heap[i], q.heap[j]
	return q.at[a] < q.at[b] || q.at[a] == q.at[b] && a < b
}

func (q *queue) swap(i, j int) {
	q.heap[i], q.heap[j] = q.heap[j], q.heap[i]
	q.place[q.heap[i]], q.place[q.heap[j]] = i, j
}

func (q *queue) up(i int) {
	for i > 0 && q.less(i, (i-1)/2) {
		q.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (q *queue) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(q.heap) {
			return
		}
		if child+1 < len(q.heap) && q.less(child+1, child) {
			child++
		}
		if !q.less(child, i) {
			return
		}
		q.swap(i, child)
		i = child
	}
}
