// Package peers measures offpath's decisions beside other limiters', and its APIs beside servers
// that only answer, in one benchmark run. It is a module of its own, so that the others stay out of
// offpath's dependencies. It needs redis-server.
//
//	go test -run '^$' -bench . -cpu 1,2 -count 5 -timeout 0 . | tee /tmp/peers.txt
//	(cd ../.. && go tool -modfile=tools/go.mod benchstat -col /limiter /tmp/peers.txt)
//
// takes about 20 minutes; -bench Decide, Network or APIs runs a part of it. The repeats of -count
// come one right after the other, so on a machine that others use it is better to run it five times
// with -count 1: then each limiter gets its share of the bad moments. What counts are the ratios.
//
// BenchmarkDecide is a decision in process, on all cores: offpath, golang.org/x/time/rate in a
// sync.Map (xtime), sethvargo/go-limiter, ulule/limiter, and throttled with its two memory stores
// (a map, and an LRU). Traffic is one hot key, or 1,000,000 keys by zipf (s = 1.1) or uniform.
// Limits are per second and out of reach: more than 99 % of the hits must pass, or the benchmark
// fails. Each limiter has seen every key before, and offpath has reported all of that before it is
// measured.
//
// Beside them are floors, the least that such a decision can be: floor-xsync over puzpuzpuz/xsync's
// map, and floor-flat over a table laid out like offpath's, which returns the same Decision. The
// recording ones also note each hit for a report, which nobody makes. offpath-idle is offpath that
// reports once an hour.
//
// BenchmarkNetwork is a decision by 64 goroutines whose hits are counted in a real Redis:
// redis_rate, which asks it about each, and offpath. Traffic is one hot key, or 100,000 keys by
// zipf. Load is full, or 10,000 hits per second of all together. In the end every hit that offpath
// admitted must be counted in Redis' ledger, or the benchmark fails.
//
// BenchmarkAPIs is an API of cmd/checker beside a bare server, over a socket; it says itself what
// its columns are.
//
//	go test -run '^$' -bench APIs -benchtime 5x .
//
// The columns of the others:
//
//	ns/op                time ÷ decisions, of all goroutines together: less than one decision takes,
//	                     where several are made at once. In it are decisions, and what a limiter
//	                     does behind them, offpath's reports with whatever answers them included:
//	                     that is what makes many keys dear on one core. Not given where the load
//	                     sets the pace.
//	p50-ns, p99-ns       what one decision takes, from call to return, by a pass of its own before
//	                     the timed one; of every decision or of one in 16, see the benchmarks
//	clock-ns             how much of p50-ns and p99-ns is the clock's (a median)
//	allowed/op           the share of the hits that were admitted; the others were denied or failed
//	redis-cmds/1000hits  commands sent to Redis by anybody, until the last hit is counted; what
//	                     scripts run inside Redis is not among them
//	reports/s            reports that were answered; offpath only
//	B/op, allocs/op      of the whole process: offpath's include its reporter, NATS and the
//	                     aggregator
//
// offpath sends commands by time, and others by hit. At full load it has few per 1,000 hits because
// it decides about so many; the rows of load=10k compare like with like. And at full load its 64
// goroutines never leave the cores, so reports wait for one as long as anybody else.
package peers
