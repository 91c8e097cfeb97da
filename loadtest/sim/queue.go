package sim

import "container/heap"

// queue says whose next step is due when: a heap of numbers by time, then by number. Numbers are
// small and dense.
type queue struct {
	numbers []int
	place   []int // in numbers, by number
	at      []int64
}

// Len is for package heap, as are Less, Swap, Push and Pop.
func (q *queue) Len() int { return len(q.numbers) }

// Less orders by time, then by number.
func (q *queue) Less(i, j int) bool {
	a, b := q.numbers[i], q.numbers[j]
	return q.at[a] < q.at[b] || q.at[a] == q.at[b] && a < b
}

// Swap keeps the places in step.
func (q *queue) Swap(i, j int) {
	q.numbers[i], q.numbers[j] = q.numbers[j], q.numbers[i]
	q.place[q.numbers[i]], q.place[q.numbers[j]] = i, j
}

// Push adds a number.
func (q *queue) Push(number any) {
	q.place, q.numbers = append(q.place, len(q.numbers)), append(q.numbers, number.(int))
}

// Pop is never called: nobody leaves.
func (q *queue) Pop() any { return nil }

// first returns who is due first, and when.
func (q *queue) first() (number int, at int64) { return q.numbers[0], q.at[q.numbers[0]] }

// set says when a number is due. A number that was never set must be the next one.
func (q *queue) set(number int, at int64) {
	if number == len(q.at) {
		q.at = append(q.at, at)
		heap.Push(q, number)
		return
	}
	q.at[number] = at
	heap.Fix(q, q.place[number])
}

// sooner says that a number is due at this time, unless it is due before anyway.
func (q *queue) sooner(number int, at int64) {
	if at < q.at[number] {
		q.set(number, at)
	}
}
