package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

const (
	// A small chunk keeps the bound on memory a bound on the number of chunks, too.
	chunkSize   = 4 << 10
	queueChunks = 1 << 20 / chunkSize

	// retransmission is how late a lost chunk arrives: Linux's shortest timeout.
	retransmission = 200 * time.Millisecond

	// A limited rate sends pieces of 1/piecesPerSecond s. Within catchUp it makes up for lateness,
	// or the granularity of timers would lower high rates.
	piecesPerSecond = 50
	catchUp         = 10 * time.Millisecond
)

// errReset is that the sender of a direction has reset the connection.
var errReset = errors.New("link: reset by the sender")

// source returns the faults in force, and a channel that is closed when they are replaced.
type source func() (Faults, <-chan struct{})

func heldTo(f Faults) bool   { return f.HoldTo }
func heldFrom(f Faults) bool { return f.HoldFrom }

// direction is one direction of a connection: a queue of chunks, each with a time at which it is
// due, so that a delay does not limit throughput.
type direction struct {
	faults source
	held   func(Faults) bool
	queue  chan chunk
	// broken says that the connection will end with a reset. Linux reports a reset once: if a write
	// to the sender has met it, a read returns io.EOF, which must not pass for the end of a stream.
	broken *atomic.Bool
}

// chunk is what one read returned. Its draws are kept, so that other faults can be applied to it.
type chunk struct {
	data         []byte
	err          error // after data: io.EOF, or a reset
	read         time.Time
	jitter, loss float64 // in [0, 1)
}

func (c chunk) due(f Faults) time.Time {
	delay := f.Delay + time.Duration(c.jitter*float64(f.Jitter))
	if c.loss < f.Loss {
		delay += retransmission
	}
	return c.read.Add(delay)
}

func newDirection(faults source, held func(Faults) bool, broken *atomic.Bool) *direction {
	return &direction{faults, held, make(chan chunk, queueChunks), broken}
}

// read queues what comes from src, with its end, and blocks while the queue is full.
func (d *direction) read(ctx context.Context, src io.Reader) {
	buf := make([]byte, chunkSize)
	for {
		n, err := src.Read(buf)
		c := chunk{bytes.Clone(buf[:n]), err, time.Now(), rand.Float64(), rand.Float64()}
		select {
		case d.queue <- c:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// write writes the queue to dst when it is due, up to the end of the stream, which it passes on. An
// error is errReset, that of a write, or that of the context.
func (d *direction) write(ctx context.Context, dst interface {
	io.Writer
	CloseWrite() error
}) error {
	var free time.Time // from which on the rate permits the next piece
	for {
		var c chunk
		select {
		case c = <-d.queue:
		case <-ctx.Done():
			return ctx.Err()
		}
		var err error
		if free, err = d.writeChunk(ctx, dst, c, free); err != nil {
			return err
		}
		switch {
		case c.err == io.EOF && !d.broken.Load():
			return dst.CloseWrite()
		case c.err != nil:
			return errReset
		}
	}
}

// writeChunk writes a chunk, in pieces if there is a rate, and returns the new free. An empty chunk
// only waits.
func (d *direction) writeChunk(
	ctx context.Context, dst io.Writer, c chunk, free time.Time,
) (time.Time, error) {
	for {
		var n int
		var sent time.Time
		err := wait(ctx, d.faults, d.held, func(f Faults) time.Time {
			n, sent = len(c.data), c.due(f)
			if f.Rate > 0 {
				n = min(n, max(1, f.Rate/piecesPerSecond))
				takes := time.Duration(n) * time.Second / time.Duration(f.Rate)
				sent = latest(sent, free).Add(takes)
			}
			return sent
		})
		if err != nil {
			return free, err
		}
		if _, err := dst.Write(c.data[:n]); err != nil {
			return free, err
		}
		free = latest(sent, time.Now().Add(-catchUp))
		if c.data = c.data[n:]; len(c.data) == 0 {
			return free, nil
		}
	}
}

// wait returns once, under the faults in force, nothing is held and the time has come; or with the
// error of the context.
func wait(
	ctx context.Context, faults source, held func(Faults) bool, at func(Faults) time.Time,
) error {
	for {
		f, changed := faults()
		left := time.Until(at(f))
		var due <-chan time.Time
		switch {
		case held(f):
		case left <= 0:
			return nil
		default:
			due = time.After(left)
		}
		select {
		case <-due:
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
