package admin

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/felixge/httpsnoop"
	"github.com/prometheus/client_golang/prometheus"
)

// Requests counts the requests of a daemon's APIs by their status, and times them. It is safe for
// concurrent use.
type Requests struct {
	total   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// NewRequests returns Requests whose metrics are registered.
func NewRequests(registry prometheus.Registerer) *Requests {
	r := &Requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "offpath_api_requests_total",
			Help: "Requests answered, by API and status. Of Envoy's quota service each report is one.",
		}, []string{"api", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "offpath_api_request_seconds",
			Help:    "How long the answers took in this process, by API.",
			Buckets: []float64{.0001, .0005, .0025, .01, .05, .25, 1, 5, 30},
		}, []string{"api"}),
	}
	registry.MustRegister(r.total, r.seconds)
	return r
}

// Count counts one request that has no duration. The code must be one of a bounded number.
func (r *Requests) Count(api, code string) { r.total.WithLabelValues(api, code).Inc() }

// Observe counts and times one request.
func (r *Requests) Observe(api, code string, took time.Duration) {
	r.Count(api, code)
	r.seconds.WithLabelValues(api).Observe(took.Seconds())
}

// aborted is the code of requests whose connection the handler has cut off.
const aborted = "aborted"

// HTTP counts what next serves as requests of this API. A connection that changes its protocol is
// one request, with status 101, and lasts until its end.
func (r *Requests) HTTP(api string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		s, begun := spy{}, time.Now()
		code := aborted
		defer func() { r.Observe(api, code, time.Since(begun)) }()
		next.ServeHTTP(httpsnoop.Wrap(w, s.hooks()), request)
		code = codeOf(s.status)
	})
}

// spy notes the status of one answer, 0 if the handler leaves it to net/http.
type spy struct{ status int }

func (s *spy) hooks() httpsnoop.Hooks {
	return httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				if s.status == 0 && status >= http.StatusOK {
					s.status = status
				}
				next(status)
			}
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, buffered, err := next()
				if err == nil {
					s.status = http.StatusSwitchingProtocols
				}
				return conn, buffered, err
			}
		},
	}
}

// codes are the statuses that have a label of their own. Others are counted by their class: callers
// of forward-auth, and the service behind the reverse proxy, may choose any.
var codes = func() map[int]string {
	all := map[int]string{0: "200"}
	for _, status := range []int{
		101, 200, 204, 304, 400, 401, 403, 404, 405, 409, 410, 413, 429, 499, 500, 502, 503, 504,
	} {
		all[status] = strconv.Itoa(status)
	}
	return all
}()

func codeOf(status int) string {
	if code, ok := codes[status]; ok {
		return code
	}
	return strconv.Itoa(status/100) + "xx" // 2 to 9: net/http refuses other statuses
}
