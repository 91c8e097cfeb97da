package torture

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// clients are the connections to one life of a checker.
type clients struct {
	url  string
	http *http.Client
	grpc *grpc.ClientConn
	rls  ratelimitv3.RateLimitServiceClient
}

func newClients(httpAddress, grpcAddress string, trust *x509.CertPool) (*clients, error) {
	conn, err := grpc.NewClient("passthrough:///"+grpcAddress,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, fmt.Errorf("grpc: %w", err)
	}
	return &clients{
		url: "https://" + httpAddress + "/v1/check",
		http: &http.Client{Transport: &http.Transport{
			MaxConnsPerHost: mostConnections, MaxIdleConnsPerHost: mostConnections, IdleConnTimeout: keepAlive,
			TLSClientConfig: &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12},
		}},
		grpc: conn, rls: ratelimitv3.NewRateLimitServiceClient(conn),
	}, nil
}

// mostConnections is how many connections a checker gets, as proxies bound it. Without a bound each
// request to a frozen one opens another connection, and the handshakes of all of them, when it goes
// on, leave no processor to the rest of the fleet, which has the same machine.
const mostConnections = 32

// keepAlive is how long a connection waits for its next request: less than a server waits for the
// first one, or both may give up and begin at the same moment.
const keepAlive = 2 * time.Second

func (c *clients) close() {
	c.http.CloseIdleConnections()
	_ = c.grpc.Close() // an error means that it is closed
}

// request is one that was made, with what became of it.
type request struct {
	sent      time.Time
	took      time.Duration
	checker   int
	stream    *stream
	user      string
	rls       bool
	allowed   bool
	answered  bool   // with a decision
	uncharged bool   // certainly, as it was never received
	freshness string // as an answer over HTTP says it
	trouble   string
	dated     time.Time // when it was sent, by the fleet's time as the checker has it; for the judge
}

// stream is a kind of traffic: requests by one rule.
type stream struct {
	rule string
	rate float64                                       // per second
	user func(*rand.Rand, time.Duration) (name string) // given the time since the start
}

// requestPatience is longer than any process is frozen.
const requestPatience = 15 * time.Second

// askHTTP and askRLS send the request.
func (c *clients) askHTTP(ctx context.Context, r *request) error {
	body, err := json.Marshal(map[string]any{
		"attributes": map[string]string{"api": r.stream.rule, "user": r.user},
	})
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := c.http.Do(q)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusTooManyRequests {
		return fmt.Errorf("status %d: %s", response.StatusCode, text)
	}
	var answer struct {
		Allowed   bool   `json:"allowed"`
		Freshness string `json:"freshness"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	r.allowed, r.freshness = answer.Allowed, answer.Freshness
	return nil
}

func (c *clients) askRLS(ctx context.Context, r *request) error {
	answer, err := c.rls.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
		Domain: "torture",
		Descriptors: []*ratelimit.RateLimitDescriptor{{Entries: []*ratelimit.RateLimitDescriptor_Entry{
			{Key: "api", Value: r.stream.rule}, {Key: "user", Value: r.user},
		}}},
	}, grpc.WaitForReady(true)) // else a new connection is tried once, and then not for a while
	if err != nil {
		return err
	}
	r.allowed = answer.GetOverallCode() == ratelimitv3.RateLimitResponse_OK
	return nil
}

// traffic makes requests until ctx is done, and keeps what became of each.
type traffic struct {
	checkers []*part
	start    time.Time

	wait sync.WaitGroup
	mu   sync.Mutex
	done []request
}

// drive makes a stream's requests, at random times, whether or not earlier ones are answered.
func (t *traffic) drive(ctx context.Context, s *stream, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0x7472616666))
	next := time.Now()
	for {
		next = next.Add(time.Duration(random.ExpFloat64() / s.rate * float64(time.Second)))
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		}
		if behind := time.Since(next); behind > time.Second { // the machine stood still: no burst
			next = time.Now()
		}
		r := request{stream: s, user: s.user(random, time.Since(t.start)), rls: random.IntN(10) < 3}
		from := random.IntN(len(t.checkers))
		for i := range t.checkers {
			r.checker = (from + i) % len(t.checkers)
			if _, dial, ok := t.checkers[r.checker].current(); ok {
				t.wait.Go(func() { t.ask(dial, r) })
				break
			}
		}
	}
}

func (t *traffic) ask(dial *clients, r request) {
	ctx, cancel := context.WithTimeout(context.Background(), requestPatience)
	defer cancel()
	ask := dial.askHTTP
	if r.rls {
		ask = dial.askRLS
	}
	r.sent = time.Now()
	err := ask(ctx, &r)
	r.took = time.Since(r.sent)
	r.answered = err == nil
	if err != nil {
		r.trouble = err.Error()
		r.uncharged = errors.Is(err, syscall.ECONNREFUSED)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = append(t.done, r)
}

// all returns what has been asked, in order.
func (t *traffic) all() []request {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := append([]request(nil), t.done...)
	slices.SortFunc(all, func(a, b request) int { return a.sent.Compare(b.sent) })
	return all
}

// allowedBetween counts what was allowed by answers within a time.
func (t *traffic) allowedBetween(from, until time.Time) (n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.done {
		r := &t.done[i]
		if at := r.sent.Add(r.took); r.allowed && at.After(from) && !at.After(until) {
			n++
		}
	}
	return n
}

// allowedSince counts what a checker has let pass of requests sent since a time.
func (t *traffic) allowedSince(checker int, since time.Time) (n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := len(t.done) - 1; i >= 0; i-- {
		r := &t.done[i]
		if r.sent.Before(since.Add(-2 * requestPatience)) { // answers are in order, to a moment
			break
		}
		if r.checker == checker && r.allowed && r.sent.Add(r.took).After(since) {
			n++
		}
	}
	return n
}
