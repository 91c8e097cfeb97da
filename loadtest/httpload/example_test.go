package httpload_test

import (
	"log"
	"os"
	"time"

	"github.com/offpath-io/offpath/loadtest/httpload"
)

func ExampleResult_Print() {
	r := httpload.Result{
		Options: httpload.Options{
			URL: "http://127.0.0.1:8080/v1/check", Rate: 2000, Duration: 10 * time.Second, Warmup: 2 * time.Second,
			Connections: 64, Keys: 100, Timeout: 5 * time.Second,
		},
		Sent: 20_000, OK200: 14_998, Limited429: 5_000, Other: map[int]int64{503: 1}, Errors: 1, Achieved: 2000,
		FirstError: `answered 503 Service Unavailable: "busy"`,
		Late:       12, Queued: 2,
		Latency: httpload.Percentiles{
			P50: 98 * time.Microsecond, P75: 110 * time.Microsecond, P90: 123 * time.Microsecond, P99: 187 * time.Microsecond,
			P999: 1112 * time.Microsecond, P9999: 3381 * time.Microsecond, Max: 5 * time.Second, Mean: 350 * time.Microsecond,
		},
		Service: httpload.Percentiles{
			P50: 72 * time.Microsecond, P75: 80 * time.Microsecond, P90: 94 * time.Microsecond, P99: 141 * time.Microsecond,
			P999: 624 * time.Microsecond, P9999: 3347 * time.Microsecond, Max: 5 * time.Second, Mean: 325 * time.Microsecond,
		},
	}
	if err := r.Print(os.Stdout); err != nil {
		log.Fatal(err)
	}
	// Output:
	// POST http://127.0.0.1:8080/v1/check
	// 2000 requests per second for 10s, after 2s of warm-up; connections: 64, keys: 100
	//
	// sent                          20000  2000.0 per second
	// 200 allowed                   14998  74.99 %
	// 429 limited                    5000  25.00 %
	// 503 Service Unavailable           1  0.01 %
	// errors                            1  0.01 %
	// sent late                        12  0.06 %  more than 1ms; 2 for want of a free connection
	// first error: answered 503 Service Unavailable: "busy"
	//
	//       ms  latency, since due  service, since sent
	//      p50               0.098                0.072
	//      p75               0.110                0.080
	//      p90               0.123                0.094
	//      p99               0.187                0.141
	//    p99.9               1.112                0.624
	//   p99.99               3.381                3.347
	//      max            5000.000             5000.000
	//     mean               0.350                0.325
	//
	// Each error counts as 5s at least.
}
