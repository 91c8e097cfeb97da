package natsbus_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// BenchmarkCarry is what a report and its answer take on their way through one NATS server, by
// their size, and what an alarm takes for each checker that hears it: CPU time of the server, the
// checkers and the aggregator together, all in this process.
func BenchmarkCarry(b *testing.B) {
	const checkers = 32
	for _, size := range []int{100, 1000, 10_000} {
		for _, what := range []string{"report", "alarm"} {
			b.Run(fmt.Sprintf("%s/%d", what, size), func(b *testing.B) {
				url := serverstest.NATS(b).URL()
				heard := make(chan events.Kind, 1<<16)
				worker, err := natsbus.NewWorker(connect(b, url), "bench")
				must(b, err)
				message := make([]byte, size)
				must(b, worker.Attend([]bool{true}, nil))
				go func() {
					_ = worker.Serve(b.Context(), func(_ events.Kind, data []byte, reply func([]byte) error) { _ = reply(data) })
				}()
				var ends []*natsbus.Checker
				for i := range checkers {
					c, err := natsbus.NewChecker(connect(b, url), "bench", fmt.Sprint("c", i))
					must(b, err)
					go func() { _ = c.Listen(b.Context(), func(k events.Kind, _ []byte) { heard <- k }) }()
					ends = append(ends, c)
				}
				settle(b, worker, ends, heard)
				send := func(i int) error { return ends[i%checkers].Report(0, false, message) }
				each := 1
				if what == "alarm" {
					send, each = func(int) error { return worker.Alarm(0, message) }, checkers
				}
				used := -busy(b)
				b.ResetTimer()
				for i, left := 0, b.N; left > 0; {
					n := min(left, 64) // at once
					for range n {
						must(b, send(i))
						i++
					}
					for range n * each {
						<-heard
					}
					left -= n
				}
				b.StopTimer()
				used += busy(b)
				b.ReportMetric(float64(used.Nanoseconds())/1000/float64(b.N*each), "cpu-µs/delivery")
			})
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func connect(t testing.TB, url string) *nats.Conn {
	t.Helper()
	conn, err := natsbus.Connect(url, "bench")
	must(t, err)
	t.Cleanup(conn.Close)
	return conn
}

// settle waits until an alarm and reports of all have been heard by all, which takes all
// subscriptions.
func settle(b *testing.B, worker *natsbus.Worker, ends []*natsbus.Checker, heard chan events.Kind) {
	b.Helper()
	for range 1000 {
		_ = worker.Alarm(0, []byte("x")) // an error is one more round
		for _, c := range ends {
			_ = c.Report(0, false, []byte("x"))
		}
		count := make(map[events.Kind]int)
		for quiet := false; !quiet; {
			select {
			case k := <-heard:
				count[k]++
			case <-time.After(50 * time.Millisecond):
				quiet = true
			}
		}
		if count[events.KindAlarm] == len(ends) && count[events.KindRefresh] == len(ends) {
			return
		}
	}
	b.Fatal("not all are heard by all")
}

// busy is how long this process has used CPUs.
func busy(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
