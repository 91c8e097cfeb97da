package httpload

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRefusals(t *testing.T) {
	overGRPC := func(o *Options) { o.URL, o.GRPC = "", "127.0.0.1:1" }
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	server.URL = strings.Replace(server.URL, "://", "://me:geheim@", 1)
	for _, test := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.URL = "" }, `url ""`},
		{func(o *Options) { o.URL = "nats://127.0.0.1:4222" }, `url "nats:`},
		{func(o *Options) { o.URL = "http://:8080/" }, `url "http://:8080/"`},
		{func(o *Options) { o.URL = "ftp://me:geheim@a/" }, `url "ftp://xxxxx@a/"`},
		{func(o *Options) { o.URL = "http://me:ge heim@a/" }, "url: want one"},
		{func(o *Options) { o.URL = server.URL + "/v1/check" }, "http://xxxxx@127.0.0.1:"},
		{func(o *Options) { o.TLS = new(tls.Config) }, "there are no certificates without TLS"},
		{func(o *Options) { o.Keys, o.Attributes = 2, map[string]string{"{key}": "c"} }, "no attribute's value has {key}"},
		{func(o *Options) { o.URL, o.GRPC = "", "127.0.0.1" }, `grpc "127.0.0.1": want an address`},
		{func(o *Options) { o.GRPC = "127.0.0.1:1" }, "url and grpc: want either"},
		{func(o *Options) { overGRPC(o); o.Rule = "per-user" }, "rule and attributes are for url"},
		{func(o *Options) { overGRPC(o); o.Descriptor, o.Keys = []Entry{{"a", "b"}}, 2 }, "no attribute's value has {key}"},
		{func(o *Options) { o.Domain = "x" }, "are for grpc"},
		{func(o *Options) { o.Channels = 1 }, "are for grpc"},
	} {
		o := Options{URL: "http://127.0.0.1:1/v1/check", Rate: 10}
		test.change(&o)
		if _, err := Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "heim") {
			t.Errorf("%+v: %v, want %q", o, err, test.want)
		}
	}
}

func TestBodies(t *testing.T) {
	for _, test := range []struct {
		options Options
		want    []string
	}{
		{Options{}, []string{`{"attributes":{"user":"user-0"}}`}},
		{Options{Keys: 2}, []string{`{"attributes":{"user":"user-0"}}`, `{"attributes":{"user":"user-1"}}`}},
		{Options{Keys: 2, Rule: `a"b`}, []string{`{"key":"user-0","rule":"a\"b"}`, `{"key":"user-1","rule":"a\"b"}`}},
		{Options{Keys: 2, Attributes: map[string]string{"user": "{key}", "api": "new", "path": "/{key}/{key}"}}, []string{
			`{"attributes":{"api":"new","path":"/0/0","user":"0"}}`, `{"attributes":{"api":"new","path":"/1/1","user":"1"}}`,
		}},
	} {
		bodies, err := options(test.options).bodies()
		if err != nil || fmt.Sprintf("%s", bodies) != fmt.Sprint(test.want) {
			t.Errorf("%+v: bodies %s, %v; want %s", test.options, bodies, err, test.want)
		}
	}
}

func TestSchedule(t *testing.T) {
	for _, test := range []struct {
		rate             float64
		warmup, duration time.Duration
		warm, total      int64
	}{
		{2000, 2 * time.Second, 10 * time.Second, 4000, 24_000},
		{0.1, 0, 10 * time.Second, 0, 1},
		{0.1, 0, 11 * time.Second, 0, 2},
		{0.001, time.Second, time.Second, 1, 2}, // at least one is measured
		{1000.0 / 3, 0, 3 * time.Second, 0, 1000},
		{9.8, 0, 45 * time.Second, 0, 441}, // 441.00000000000006 in float64
	} {
		s := newSchedule(options(Options{Rate: test.rate, Warmup: test.warmup, Duration: test.duration}))
		if s.warm != test.warm || s.total != test.total {
			t.Errorf("%v per second: %d, %d; want %d, %d", test.rate, s.warm, s.total, test.warm, test.total)
		}
		if s.due(0) != 0 || s.warm > 0 && s.due(s.warm-1) >= test.warmup {
			t.Errorf("%v per second: due at %v and %v", test.rate, s.due(0), s.due(s.warm-1))
		}
	}
	s := newSchedule(options(Options{Rate: 3, Duration: time.Second}))
	// No error adds up.
	for i, want := range map[int64]time.Duration{1: 333_333_333, 2: 666_666_666, 3: 1e9, 3_000_000: 1e15} {
		if got := s.due(i); got != want {
			t.Errorf("request %d is due after %v, want %v", i, got, want)
		}
	}
}

// Keys come by random, evenly, and the same by one seed.
func TestKeys(t *testing.T) {
	s := newSchedule(options(Options{Rate: 1, Keys: 10, Seed: 1}))
	other := newSchedule(options(Options{Rate: 1, Keys: 10, Seed: 2}))
	var counts [10]int
	same := 0
	for i := range int64(10_000) {
		key := s.key(i)
		counts[key]++
		if key == other.key(i) {
			same++
		}
		if key != s.key(i) {
			t.Fatalf("request %d is for several keys", i)
		}
	}
	// 1000 each, with a deviation of 30.
	if slices.Min(counts[:]) < 850 || slices.Max(counts[:]) > 1150 || same > 1300 {
		t.Errorf("the keys come %v times; two seeds agree in %d of 10000", counts, same)
	}
}
