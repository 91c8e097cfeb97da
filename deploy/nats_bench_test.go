package deploy_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/deploytest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// BenchmarkAnswer is what NATS' accounts add to the way of a report and its answer: CPU time of the
// server and both ends, in this process.
func BenchmarkAnswer(b *testing.B) {
	for _, how := range []string{"one account", "two accounts"} {
		b.Run(how, func(b *testing.B) {
			aggregator, checker := "", ""
			if how == "one account" {
				aggregator = serverstest.NATS(b).URL()
				checker = aggregator
			} else {
				n := deploytest.NATS(b)
				aggregator, checker = n.URL(b, "aggregator"), n.URL(b, "checker-1")
			}
			here, there := dial(b, checker), dial(b, aggregator)
			_, err := there.QueueSubscribe("offpath.report.v1.*.>", "aggregators", func(m *nats.Msg) { _ = m.Respond(m.Data) })
			must(b, err)
			answers, err := here.SubscribeSync("offpath.refresh.v1.checker-1.ab")
			must(b, err)
			_ = there.Flush()
			body := make([]byte, 1000)
			used := -busy()
			for b.Loop() {
				const atOnce = 64
				for range atOnce {
					_ = here.PublishRequest("offpath.report.v1.0.checker-1.ab", answers.Subject, body)
				}
				for range atOnce {
					if _, err := answers.NextMsg(time.Minute); err != nil {
						b.Fatal(err)
					}
				}
			}
			used += busy()
			b.ReportMetric(float64(used.Nanoseconds())/1000/float64(b.N*64), "cpu-µs/answer")
		})
	}
}

func dial(b *testing.B, url string) *nats.Conn {
	b.Helper()
	conn, err := nats.Connect(url)
	must(b, err)
	b.Cleanup(conn.Close)
	return conn
}

// busy is how long this process has used CPUs.
func busy() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // it cannot fail for this process
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
