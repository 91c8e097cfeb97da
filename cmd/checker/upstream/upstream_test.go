package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// way is the versions of HTTP at both ends.
type way struct {
	client int
	scheme string
	server string // as the service sees it
}

var ways = []way{
	{1, "http", "HTTP/1.1"}, {1, "h2c", "HTTP/2.0"}, {1, "https", "HTTP/2.0"}, {2, "http", "HTTP/1.1"}, {2, "h2c", "HTTP/2.0"}, {2, "https", "HTTP/2.0"},
}

// TestPassesOn: the service gets what the client sent, and the client what the service answered, trailers included.
func TestPassesOn(t *testing.T) {
	for _, way := range ways {
		target := service(t, way.scheme, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			w.Header().Set("Trailer", "Grpc-Status")
			w.Header().Set("X-Service", "toy")
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, r.Proto, " ", r.Method, " ", r.RequestURI, " ", r.Host, " ", r.Header.Get("X-Own"), " ", string(body), " ", err)
			w.Header().Set("Grpc-Status", "7")
		})
		r := request(t, "PUT", start(t, options(t, target+"/base"))+"/a%2Fb/%ff//c?odd=%zz&x;y", strings.NewReader("body"))
		r.Host = "example.com"
		r.Header.Set("X-Own", "mine")
		response, body := do(t, client(t, way.client), r)
		want := way.server + " PUT /base/a%2Fb/%ff//c?odd=%zz&x;y example.com mine body <nil>"
		if response.StatusCode != http.StatusTeapot || body != want || response.Header.Get("X-Service") != "toy" || response.ProtoMajor != way.client {
			t.Errorf("%+v: %d %v %v\ngot  %s\nwant %s", way, response.StatusCode, response.Proto, response.Header, body, want)
		}
		if got := response.Trailer.Get("Grpc-Status"); got != "7" {
			t.Errorf("%+v: trailer %q", way, got)
		}
	}
}

// TestStreams: each piece arrives before the next one is sent, both ways at once.
func TestStreams(t *testing.T) {
	for _, way := range ways {
		target := service(t, way.scheme, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex() // HTTP/1.1 is not by itself; HTTP/2 is
			w.Header().Set("Content-Type", "text/event-stream")
			if err := rc.Flush(); err != nil {
				t.Error(err)
			}
			lines := bufio.NewScanner(r.Body)
			for lines.Scan() {
				fmt.Fprintln(w, "echo", lines.Text())
				if err := rc.Flush(); err != nil {
					t.Error(err)
				}
			}
		})
		o := options(t, target)
		o.Patience = short
		sent, write := io.Pipe()
		if way.client == 1 {
			// net/http's server reads a whole body before it answers, unless a handler wants otherwise.
			o.Limit = func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_ = http.NewResponseController(w).EnableFullDuplex()
					next.ServeHTTP(w, r)
				})
			}
		}
		response, err := client(t, way.client).Do(request(t, "POST", start(t, o), sent))
		if err != nil {
			t.Fatal(way, err)
		}
		answers := bufio.NewScanner(response.Body)
		for i := range 3 {
			fmt.Fprintln(write, i)
			if !answers.Scan() || answers.Text() != fmt.Sprint("echo ", i) {
				t.Fatalf("%+v: piece %d: %q, %v", way, i, answers.Text(), answers.Err())
			}
		}
		_ = write.Close()
		if answers.Scan() || answers.Err() != nil {
			t.Errorf("%+v: after the end: %q, %v", way, answers.Text(), answers.Err())
		}
		_ = response.Body.Close()
	}
}

// TestSilentStreamsStay: a stream without a word is longer than patience, and than the service may take to begin.
func TestSilentStreamsStay(t *testing.T) {
	t.Parallel()
	type stream struct {
		way
		body string
	}
	var all []stream
	for _, way := range ways {
		all = append(all, stream{way, ""}, stream{way, "body"})
	}
	atOnce(t, all, func(s stream) string { return fmt.Sprint(s) }, func(t *testing.T, s stream) {
		o := options(t, service(t, s.scheme, pauses))
		o.Patience, o.Answer = short, short
		if _, got := do(t, client(t, s.client), request(t, "POST", start(t, o), strings.NewReader(s.body))); got != "one two" {
			t.Errorf("%q", got)
		}
	})
}

// pauses answers with a pause that is longer than patience.
func pauses(w http.ResponseWriter, r *http.Request) {
	if _, _ = io.Copy(io.Discard, r.Body); r.ContentLength > 0 {
		w.Header().Set("Content-Length", "7") // a stream that knows its end
	}
	fmt.Fprint(w, "one ")
	_ = http.NewResponseController(w).Flush()
	select {
	case <-time.After(2 * short):
	case <-r.Context().Done():
	}
	fmt.Fprint(w, "two")
}

// TestUpgrade: what speaks another protocol after its first request, as WebSockets do, is passed on both ways.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	target := service(t, "http", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			t.Errorf("headers %v", r.Header)
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, rw)
	})
	o := options(t, target)
	o.Patience = short
	conn := dial(t, start(t, o))
	fmt.Fprint(conn, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	rd := bufio.NewReader(conn)
	response, err := http.ReadResponse(rd, nil)
	if err != nil || response.StatusCode != 101 {
		t.Fatal(response, err)
	}
	for i := range 2 {
		<-time.After(2 * short) // silence is no reason to end it
		fmt.Fprintln(conn, "frame", i)
		if line, err := rd.ReadString('\n'); err != nil || line != fmt.Sprintln("frame", i) {
			t.Fatalf("%q, %v", line, err)
		}
	}
}

// TestHopByHop: what a client calls its connection's own goes no further, and takes nothing of ours off.
func TestHopByHop(t *testing.T) {
	url := start(t, options(t, service(t, "http", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header["X-Forwarded-For"], r.Header["X-Forwarded-Host"], r.Header["X-Own"], r.Header["Proxy-Authorization"])
	})))
	r := request(t, "GET", url, nil)
	r.Host = "a"
	r.Header = http.Header{"Connection": {"X-Forwarded-For, X-Own, X-Forwarded-Host"}, "X-Own": {"1"}, "X-Forwarded-For": {"6.6.6.6"}, "Proxy-Authorization": {"x"}}
	if _, body := do(t, client(t, 1), r); body != "[127.0.0.1] [a] [] []" {
		t.Error(body)
	}
}

// TestDenied: what the limit denies never reaches the service.
func TestDenied(t *testing.T) {
	o := options(t, service(t, "http", func(http.ResponseWriter, *http.Request) { t.Error("asked") }))
	o.Limit = func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
	}
	if response, _ := do(t, client(t, 1), request(t, "POST", start(t, o), strings.NewReader("body"))); response.StatusCode != 429 {
		t.Error(response.Status)
	}
}

// TestClientLeaves: the service hears of it.
func TestClientLeaves(t *testing.T) {
	asked, left := make(chan struct{}), make(chan struct{})
	target := service(t, "http", func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(left)
	})
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-asked; leave() }()
	r := request(t, "GET", start(t, options(t, target)), nil).WithContext(ctx)
	if _, err := client(t, 1).Do(r); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-left
}
