package decisionlog

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Sink is where entries go.
type Sink interface {
	// Name tells sinks apart, in metrics.
	Name() string
	// Write takes lines of JSON, each of which ends in a line break, all or none. After an error it
	// is called again with the same bytes and number. One goroutine calls it.
	Write(ctx context.Context, number uint64, lines []byte) error
}

const (
	// batchText bounds the bytes that are written at a time, well below what NATS carries.
	batchText = 64 << 10
	// lineText is what a line takes, in bytes: queues have room for so many of it. One with a long
	// key that JSON has to escape takes ten times as much, and who makes up keys can make up such.
	lineText = 300
	// writeTimeout bounds one write, retryEvery is the time between two, and stopTimeout the
	// default of how long all of it may take at the end.
	writeTimeout = 5 * time.Second
	retryEvery   = time.Second
	stopTimeout  = 2 * time.Second
)

// queue has what waits for a sink.
type queue struct {
	sink Sink
	most int
	log  *slog.Logger
	stop time.Duration // see Options.StopTimeout

	mu               sync.Mutex
	lines            []line
	text             int // bytes of them
	closed           bool
	written, dropped int64
	waiting          int64
	wake             chan struct{}
}

func newQueue(sink Sink, most int, log *slog.Logger) *queue {
	return &queue{sink: sink, most: most, log: log, stop: stopTimeout, wake: make(chan struct{}, 1)}
}

// put adds an entry, or drops it.
func (q *queue) put(l line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) >= q.most || q.text+len(l.text) > q.most*lineText {
		q.dropped += l.count
		return
	}
	q.lines = append(q.lines, l)
	q.text += len(l.text)
	q.waiting += l.count
	q.tell()
}

// close says that nothing more comes.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.tell()
}

func (q *queue) tell() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run writes until the queue is closed and empty, or until Options.StopTimeout after ctx is done.
// The rest is dropped then.
func (q *queue) run(ctx context.Context) {
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(q.stop, abandon) })()
	var number uint64
	for work.Err() == nil {
		text, lines, count := q.batch()
		if lines == 0 {
			if q.isOver() {
				return
			}
			select {
			case <-q.wake:
			case <-work.Done():
			}
			continue
		}
		number++
		if !q.write(work, number, text) {
			break
		}
		q.done(lines, count)
	}
	q.abandon()
}

// batch returns the oldest entries, as many as go at once. They stay in the queue.
func (q *queue) batch() (text []byte, lines int, count int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines {
		if lines > 0 && len(text)+len(l.text) >= batchText {
			break
		}
		text = append(append(text, l.text...), '\n')
		lines, count = lines+1, count+l.count
	}
	return text, lines, count
}

// write writes until that works; false if it is to be left.
func (q *queue) write(ctx context.Context, number uint64, text []byte) bool {
	for failed := false; ; failed = true {
		err := q.attempt(ctx, number, text)
		if err == nil {
			if failed {
				q.log.Info("the decision log can be written again", "to", q.sink.Name())
			}
			return true
		}
		if !failed && ctx.Err() == nil {
			q.log.Warn("the decision log cannot be written", "to", q.sink.Name(), "error", err)
		}
		select {
		case <-time.After(retryEvery):
		case <-ctx.Done():
			return false
		}
	}
}

func (q *queue) attempt(ctx context.Context, number uint64, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return q.sink.Write(ctx, number, text)
}

// done takes out what has been written.
func (q *queue) done(lines int, count int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines[:lines] {
		q.text -= len(l.text)
	}
	rest := copy(q.lines, q.lines[lines:])
	clear(q.lines[rest:])
	q.lines = q.lines[:rest]
	q.written += count
	q.waiting -= count
}

func (q *queue) isOver() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed && len(q.lines) == 0
}

// abandon drops what is left.
func (q *queue) abandon() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting > 0 {
		q.log.Warn("the decision log is incomplete", "to", q.sink.Name(), "denials", q.waiting)
	}
	q.dropped += q.waiting
	q.lines, q.text, q.waiting = nil, 0, 0
}

func (q *queue) stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Stats{Sink: q.sink.Name(), Written: q.written, Dropped: q.dropped, Waiting: q.waiting}
}
