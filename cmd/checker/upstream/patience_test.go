package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSlowClient: a body may come slowly, as long as it comes.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	both := []way{ways[0], ways[3]} // each version of a client
	atOnce(t, both, func(w way) string { return fmt.Sprint(w) }, func(t *testing.T, way way) {
		o := options(t, service(t, way.scheme, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
		o.Patience = 2 * short
		sent, write := io.Pipe()
		defer sent.Close()
		go func() {
			for range 6 {
				<-time.After(o.Patience / 4)
				_, _ = io.WriteString(write, "piece ")
			}
			_ = write.Close()
		}()
		response, body := do(t, client(t, way.client), request(t, "POST", start(t, o), sent))
		if response.StatusCode != 200 || body != strings.Repeat("piece ", 6) {
			t.Errorf("%s %q", response.Status, body)
		}
	})
}

// deadlines counts those that are set.
type deadlines struct {
	http.ResponseWriter
	reads []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error { d.reads = append(d.reads, t); return nil }

// closing is a body that is closed when it has ended.
type closing struct {
	*strings.Reader
	closed bool
}

func (c *closing) Read(p []byte) (int, error) {
	if c.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := c.Reader.Read(p)
	c.closed = err != nil
	return n, err
}

func (c *closing) Close() error { return nil }

// TestBodyAfterTheAnswer: when a request has been answered, its connection belongs to the next one, and a body that is still
// being read leaves it alone. One that has ended goes on saying so, also when the server has closed it.
func TestBodyAfterTheAnswer(t *testing.T) {
	for text, want := range map[string]error{"": io.EOF, "left": http.ErrBodyReadAfterClose} {
		d := new(deadlines)
		body := &patientBody{body: &closing{Reader: strings.NewReader(text)}, rc: http.NewResponseController(d), patience: time.Hour}
		_, _ = body.Read(make([]byte, 1))
		if _, err := body.Read(nil); text == "" && !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %v", err)
		}
		body.leave()
		last := len(d.reads) - 1
		if ended := text == ""; d.reads[last].IsZero() != ended {
			t.Errorf("%q: the last deadline is %v", text, d.reads[last])
		}
		if n, err := body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, want) || len(d.reads)-1 != last {
			t.Errorf("%q: %d, %v, %d deadlines", text, n, err, len(d.reads)-1-last)
		}
	}
}

// TestClientFallsSilent: half a request, and then nothing, gets an answer and an end.
func TestClientFallsSilent(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 10)
	target := service(t, "http", func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			asked <- struct{}{}
		}
	})
	deny := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
	}
	type half struct {
		why, sent string
		limit     func(http.Handler) http.Handler
		answer    string // how it begins
	}
	atOnce(t, []half{
		{"nothing", "", all, ""},
		{"half a line", "GET / HT", all, ""},
		{"half a header", "GET / HTTP/1.1\r\nHost: a\r\nX-", all, ""},
		{"half a body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf", all, "HTTP/1.1 408 "},
		{"half a chunk", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal", all, "HTTP/1.1 408 "},
		{"no chunk", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nwhat\r\n", all, "HTTP/1.1 400 "},
		{"half a body, denied", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf", deny, "HTTP/1.1 429 "},
		{"half of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM", all, ""},
		{"a whole request", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", all, "HTTP/1.1 200 "},
	}, func(h half) string { return h.why }, func(t *testing.T, tt half) {
		o := options(t, target)
		o.Patience, o.Limit = short, tt.limit
		conn := dial(t, start(t, o))
		_, _ = io.WriteString(conn, tt.sent)
		answer, err := io.ReadAll(conn) // until it hangs up
		if err != nil || !strings.HasPrefix(string(answer), tt.answer) || tt.answer == "" && strings.Contains(string(answer), "200") {
			t.Errorf("%v, %q", err, answer)
		}
	})
	if len(asked) != 1 {
		t.Errorf("%d requests were whole", len(asked))
	}
}

// TestClientFallsSilentHTTP2: one stream ends, and the others go on.
func TestClientFallsSilentHTTP2(t *testing.T) {
	t.Parallel()
	o := options(t, service(t, "http", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	o.Patience = short
	url, c := start(t, o), client(t, 2)
	sent, write := io.Pipe()
	defer write.Close()
	go func() { _, _ = io.WriteString(write, "half") }()
	response, err := c.Do(request(t, "POST", url, sent))
	if err == nil {
		_ = response.Body.Close()
	}
	if err == nil && response.StatusCode != http.StatusRequestTimeout {
		t.Errorf("half a body: %v", response)
	}
	if response, _ := do(t, c, request(t, "POST", url, strings.NewReader("whole"))); response.StatusCode != 200 {
		t.Error(response.Status)
	}
}

// TestSlowReader: a client that reads nothing does not hold the service's answer for ever.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	target := service(t, "http", func(w http.ResponseWriter, r *http.Request) {
		piece := make([]byte, 1<<20)
		for {
			if _, err := w.Write(piece); err != nil {
				ended <- err
				return
			}
		}
	})
	o := options(t, target)
	o.Patience = short
	conn := dial(t, start(t, o))
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if err := <-ended; err == nil {
		t.Error("no error")
	}
}

// TestServiceReadsNothing: nor does a service that reads nothing hold a client's request.
func TestServiceReadsNothing(t *testing.T) {
	t.Parallel()
	o := options(t, listener(t, func(net.Conn) {}))
	o.Patience = short
	response, err := client(t, 1).Do(request(t, "POST", start(t, o), io.LimitReader(endless{}, 1<<30)))
	if err == nil { // the answer may be lost, as the client is still sending
		defer response.Body.Close()
		if response.StatusCode != http.StatusGatewayTimeout {
			t.Error(response.Status)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestRefusedRequests(t *testing.T) {
	url := start(t, options(t, service(t, "http", func(_ http.ResponseWriter, r *http.Request) { t.Error("asked", r.URL) })))
	for _, tt := range []struct{ why, sent, answer string }{
		{"a header that is too long", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", maxHeader+8<<10) + "\r\n\r\n", "HTTP/1.1 431 "},
		{"a path that is too long", "GET /" + strings.Repeat("x", maxHeader+8<<10) + " HTTP/1.1\r\n\r\n", "HTTP/1.1 431 "},
		{"no host", "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		{"a bad escape", "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 400 "},
		{"two lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "HTTP/1.1 400 "},
		{"a tunnel", "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 405 "},
	} {
		conn := dial(t, url)
		go func() { _, _ = io.WriteString(conn, tt.sent) }()
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, tt.answer) {
			t.Errorf("%s: %q, %v", tt.why, line, err)
		}
	}
}

// TestOddPaths: bytes that are not UTF-8 are passed on as they are.
func TestOddPaths(t *testing.T) {
	url := start(t, options(t, service(t, "http", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%q", r.URL.Path) })))
	conn := dial(t, url)
	_, _ = io.WriteString(conn, "GET /\xff%fe HTTP/1.1\r\nHost: a\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != `"/\xff\xfe"` {
		t.Errorf("%s, %v", body, err)
	}
}
