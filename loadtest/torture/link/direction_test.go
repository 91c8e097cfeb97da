package link

import (
	"context"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// arrival is what one write has brought, and when since the start; closed is the end of the stream.
type arrival struct {
	at     time.Duration
	size   int
	closed bool
}

// receiver notes what is written to it.
type receiver struct {
	start time.Time
	got   []arrival
	err   error // of writes
}

func (r *receiver) Write(p []byte) (int, error) {
	if len(p) > 0 {
		r.got = append(r.got, arrival{at: time.Since(r.start), size: len(p)})
	}
	return len(p), r.err
}

func (r *receiver) CloseWrite() error {
	r.got = append(r.got, arrival{at: time.Since(r.start), closed: true})
	return nil
}

// bench is a direction in virtual time, without sockets.
type bench struct {
	*Link
	*receiver
	from   *io.PipeWriter // each write is a chunk
	broken atomic.Bool
	ended  chan error // of the direction's write
	cancel context.CancelFunc
}

func newBench(t *testing.T, f Faults) *bench {
	ctx, cancel := context.WithCancel(t.Context())
	src, from := io.Pipe()
	b := &bench{
		Link:     &Link{faults: f, changed: make(chan struct{})},
		receiver: &receiver{start: time.Now()},
		from:     from, ended: make(chan error, 1), cancel: cancel,
	}
	d := newDirection(b.inForce, heldTo, &b.broken)
	go d.read(ctx, src)
	go func() { b.ended <- d.write(ctx, b.receiver) }()
	return b
}

func (b *bench) send(t *testing.T, size int) {
	if _, err := b.from.Write(make([]byte, size)); err != nil {
		t.Error(err)
	}
}

// When bytes arrive, exactly.
func TestFaultsInTime(t *testing.T) {
	const ms = time.Millisecond
	for _, row := range []struct {
		what   string
		faults Faults
		do     func(t *testing.T, b *bench)
		want   []arrival
	}{
		{"no faults", Faults{}, func(t *testing.T, b *bench) {
			b.send(t, 1)
			time.Sleep(ms)
			b.send(t, 2)
		}, []arrival{{0, 1, false}, {ms, 2, false}, {ms, 0, true}}},

		{"a delay is pipelined", Faults{Delay: 50 * ms}, func(t *testing.T, b *bench) {
			b.send(t, 1)
			time.Sleep(ms)
			b.send(t, 2)
			time.Sleep(ms)
		}, []arrival{{50 * ms, 1, false}, {51 * ms, 2, false}, {52 * ms, 0, true}}},

		{"a loss is repaired", Faults{Loss: 1, Delay: 50 * ms}, func(t *testing.T, b *bench) {
			b.send(t, 1)
		}, []arrival{{250 * ms, 1, false}, {250 * ms, 0, true}}},

		{"a chunk waits for earlier ones", Faults{Delay: 50 * ms}, func(t *testing.T, b *bench) {
			b.send(t, 1)
			time.Sleep(10 * ms)
			b.Set(Faults{Delay: 60 * ms, HoldTo: true})
			b.send(t, 2)
			time.Sleep(40 * ms)
			b.Set(Faults{Delay: 60 * ms})
		}, []arrival{{60 * ms, 1, false}, {70 * ms, 2, false}, {110 * ms, 0, true}}},

		{"a rate lets 1/50 s through at a time", Faults{Rate: 5000}, func(t *testing.T, b *bench) {
			b.send(t, 250)
		}, []arrival{
			{20 * ms, 100, false}, {40 * ms, 100, false}, {50 * ms, 50, false}, {50 * ms, 0, true},
		}},

		{"the least rate lets single bytes through", Faults{Rate: 1}, func(t *testing.T, b *bench) {
			b.send(t, 2)
		}, []arrival{{1000 * ms, 1, false}, {2000 * ms, 1, false}, {2000 * ms, 0, true}}},

		{"a rate does not make up for idle time", Faults{Rate: 1000}, func(t *testing.T, b *bench) {
			time.Sleep(time.Hour)
			b.send(t, 60)
			b.Set(Faults{Rate: 1000, HoldTo: true})
			time.Sleep(time.Hour)
			b.Set(Faults{Rate: 1000})
		}, []arrival{
			{2 * time.Hour, 20, false}, // was due, and only held
			{2*time.Hour + 20*ms - catchUp, 20, false},
			{2*time.Hour + 40*ms - catchUp, 20, false},
			{2*time.Hour + 40*ms - catchUp, 0, true},
		}},

		{"the end of a delay", Faults{Delay: time.Hour}, func(t *testing.T, b *bench) {
			b.send(t, 1)
			time.Sleep(ms)
			b.Set(Faults{})
		}, []arrival{{ms, 1, false}, {ms, 0, true}}},

		{"the end of a rate", Faults{Rate: 50}, func(t *testing.T, b *bench) {
			b.send(t, 3)
			time.Sleep(21 * ms)
			b.Set(Faults{})
		}, []arrival{{20 * ms, 1, false}, {21 * ms, 2, false}, {21 * ms, 0, true}}},

		{"the end of a hold", Faults{HoldTo: true}, func(t *testing.T, b *bench) {
			b.send(t, 1)
			b.send(t, 2)
			time.Sleep(time.Hour)
			b.Set(Faults{HoldFrom: true})
		}, []arrival{{time.Hour, 1, false}, {time.Hour, 2, false}, {time.Hour, 0, true}}},

		{"a hold of what is delayed", Faults{Delay: time.Hour}, func(t *testing.T, b *bench) {
			b.send(t, 1)
			time.Sleep(ms)
			b.Set(Faults{HoldTo: true})
			time.Sleep(2 * time.Hour)
			b.Set(Faults{Delay: time.Hour})
		}, []arrival{{2*time.Hour + ms, 1, false}, {3*time.Hour + ms, 0, true}}},
	} {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, row.faults)
				row.do(t, b)
				_ = b.from.Close()
				if err := <-b.ended; err != nil {
					t.Error(err)
				}
				if !slices.Equal(b.got, row.want) {
					t.Errorf("arrived: %v, want %v", b.got, row.want)
				}
			})
		})
	}
}

// A whole queue is under way at once: a delay costs its time once, not once for each chunk.
func TestADelayDoesNotLimitThroughput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds = 4
		b := newBench(t, Faults{Delay: 50 * time.Millisecond})
		for range rounds * queueChunks {
			b.send(t, chunkSize)
		}
		_ = b.from.Close()
		<-b.ended
		if len(b.got) != rounds*queueChunks+1 {
			t.Errorf("%d chunks arrived, of %d", len(b.got)-1, rounds*queueChunks)
		}
		if took := time.Since(b.start); took > (rounds+1)*50*time.Millisecond {
			t.Errorf("%d MiB took %v", rounds, took)
		}
	})
}

func TestJitterAndLossAreDrawnForEachChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		b := newBench(t, Faults{Delay: 10 * ms, Jitter: 20 * ms, Loss: 0.5})
		var lost int
		const chunks = 200
		for i := range chunks {
			b.start = time.Now()
			b.send(t, i+1)
			time.Sleep(time.Second)
			synctest.Wait()
			switch last := b.got[len(b.got)-1]; {
			case last.size != i+1:
				t.Fatalf("chunk %d: last arrival %v", i, last)
			case last.at >= 210*ms && last.at < 230*ms:
				lost++
			case last.at < 10*ms || last.at >= 30*ms:
				t.Errorf("chunk %d took %v", i, last.at)
			}
		}
		if lost < chunks/4 || lost > chunks*3/4 { // seven standard deviations
			t.Errorf("%d of %d were lost", lost, chunks)
		}
		b.cancel()
		if err := <-b.ended; err != context.Canceled {
			t.Errorf("ended with %v", err)
		}
		_ = b.from.Close()
	})
}

// A reset follows what was sent before it.
func TestAResetArrivesInOrder(t *testing.T) {
	for _, row := range []struct {
		what   string
		broken bool
		err    error
	}{
		{"a reset", false, io.ErrUnexpectedEOF},
		{"a reset that a write has met before", true, io.EOF},
	} {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, Faults{Delay: time.Second})
				b.send(t, 1)
				_ = b.from.CloseWithError(row.err)
				b.broken.Store(row.broken)
				if err := <-b.ended; err != errReset {
					t.Errorf("ended with %v", err)
				}
				if !slices.Equal(b.got, []arrival{{time.Second, 1, false}}) {
					t.Errorf("arrived: %v", b.got)
				}
			})
		})
	}
}

func TestAHoldStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Faults{HoldTo: true})
		var sent atomic.Int64
		go func() {
			for range 2 * queueChunks {
				b.send(t, chunkSize)
				sent.Add(1)
			}
			_ = b.from.Close()
		}()
		synctest.Wait()
		// One more is held by the writer, and one by the reader.
		if n := sent.Load(); n != queueChunks+2 {
			t.Errorf("%d chunks were read, want %d", n, queueChunks+2)
		}
		b.Set(Faults{})
		if err := <-b.ended; err != nil || len(b.got) != 2*queueChunks+1 {
			t.Errorf("%d arrived, %v", len(b.got)-1, err)
		}
	})
}

func TestAFailedWriteEndsADirection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Faults{})
		b.err = io.ErrClosedPipe
		b.send(t, 1)
		if err := <-b.ended; err != io.ErrClosedPipe {
			t.Errorf("ended with %v", err)
		}
		b.cancel()
		_ = b.from.Close()
	})
}
