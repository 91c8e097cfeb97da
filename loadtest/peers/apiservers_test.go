package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/offpath-io/offpath/cmd/checker/api"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/envoylimit"
)

// serveAs is the variable that makes this program one of the servers instead of a test.
const serveAs = "OFFPATH_PEERS_SERVE"

// acquire is what cmd/checker lets a request wait for permits unless it is told otherwise.
const acquire = 20 * time.Millisecond

// heapBound is how large a server's memory grows before it is collected.
const heapBound = 256 << 20

// kinds are what runs in processes of their own: the APIs, and beside each a bare server, which
// decodes the same message and answers a constant of the same size.
var kinds = map[string]func(net.Listener) error{
	"http/bare": func(l net.Listener) error { return serveHTTP(l, http.HandlerFunc(bareHTTP)) },
	"http/offpath": func(l net.Listener) error {
		return withChecker(func(c *check.Checker) error { return serveHTTP(l, api.New(c, acquire)) })
	},
	"rls/bare": func(l net.Listener) error { return serveRLS(l, bareRLS{}) },
	"rls/offpath": func(l net.Listener) error {
		return withChecker(func(c *check.Checker) error {
			return serveRLS(l, envoylimit.New(c, envoylimit.Options{Acquire: acquire}))
		})
	},
}

func TestMain(m *testing.M) {
	serve, ok := kinds[os.Getenv(serveAs)]
	if !ok {
		os.Exit(m.Run())
	}
	// A checker's tables make its heap large, which Go then collects seldom; a bare server's is
	// next to nothing, and would be collected all the time. With the same bound for both, neither
	// gains by that.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(heapBound)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Println(listener.Addr())
		go func() { // the parent's end is this one's
			_, _ = io.Copy(io.Discard, os.Stdin)
			_ = listener.Close()
		}()
		err = serve(listener)
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// withChecker serves beside a checker with its reporter at work.
func withChecker(serve func(*check.Checker) error) error {
	c, stop, err := newReporting(quota{limit: 1_000_000_000_000, window: time.Minute}, 0)
	if err != nil {
		return err
	}
	return errors.Join(serve(c), stop())
}

func serveHTTP(l net.Listener, handler http.Handler) error {
	// The bounds of cmd/checker, since deadlines cost something.
	s := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	return s.Serve(l)
}

func serveRLS(l net.Listener, service ratelimitv3.RateLimitServiceServer) error {
	s := grpc.NewServer(envoylimit.ServerOptions()...)
	ratelimitv3.RegisterRateLimitServiceServer(s, service)
	return s.Serve(l)
}

const bareAnswer = `{"allowed":true,"rule":"bench","limit":1000000000000,"remaining":999999999999,"retry_after_ms":0,"reset_ms":60000,"freshness":"fresh"}` + "\n"

// bareHTTP is the API without what is behind it, as one would write it.
func bareHTTP(w http.ResponseWriter, r *http.Request) {
	var question struct {
		Attributes map[string]string `json:"attributes"`
		Rule       string            `json:"rule"`
		Key        string            `json:"key"`
		Cost       int64             `json:"cost"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, api.MaxBody)).Decode(&question); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, bareAnswer)
}

// bareRLS is the same in gRPC, which decodes by itself.
type bareRLS struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
}

var bareStatus = &ratelimitv3.RateLimitResponse{
	OverallCode: ratelimitv3.RateLimitResponse_OK,
	Statuses: []*ratelimitv3.RateLimitResponse_DescriptorStatus{{
		Code:           ratelimitv3.RateLimitResponse_OK,
		CurrentLimit:   &ratelimitv3.RateLimitResponse_RateLimit{Name: ruleName, RequestsPerUnit: 1 << 31, Unit: ratelimitv3.RateLimitResponse_RateLimit_MINUTE},
		LimitRemaining: 1 << 31, DurationUntilReset: &durationpb.Duration{Seconds: 59},
	}},
}

func (bareRLS) ShouldRateLimit(context.Context, *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	return bareStatus, nil
}

// A child is a server in a process of its own.
type child struct {
	process *exec.Cmd
	input   io.Closer
	address string
}

func start(t testing.TB, name string) *child {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), serveAs+"="+name)
	c.Stderr = os.Stderr
	input, err := c.StdinPipe()
	must(t, err)
	output, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(name, errors.Join(err, input.Close(), c.Wait()))
	}
	return &child{c, input, strings.TrimSpace(address)}
}

// stop ends it, and says how much processor time it has taken in its life.
func (c *child) stop(t testing.TB) time.Duration {
	t.Helper()
	must(t, errors.Join(c.input.Close(), c.process.Wait()))
	return c.process.ProcessState.UserTime() + c.process.ProcessState.SystemTime()
}
