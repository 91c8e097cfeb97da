package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

const proxyURL = "http://proxy"

// TestSlowClient: a body may come slowly, as long as it comes.
func TestSlowClient(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }
	for _, way := range ways {
		inVirtualTime(t, way.scheme, nil, echo, func(v virtual) {
			sent, write := io.Pipe()
			go func() {
				for range 6 {
					time.Sleep(patience - time.Millisecond)
					_, _ = io.WriteString(write, "piece ")
				}
				_ = write.Close()
			}()
			answers(v, v.client(way.client), request(v, "POST", proxyURL, sent), 200, strings.Repeat("piece ", 6))
		})
	}
}

// TestSilentStreamsStay: a stream that pauses for longer than Patience, or than the service may
// take to begin, is not cut.
func TestSilentStreamsStay(t *testing.T) {
	pauses := func(w http.ResponseWriter, r *http.Request) {
		if _, _ = io.Copy(io.Discard, r.Body); r.ContentLength > 0 {
			w.Header().Set("Content-Length", "7") // a stream that knows its end
		}
		fmt.Fprint(w, "one ")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(10 * patience)
		fmt.Fprint(w, "two")
	}
	for _, way := range ways {
		for _, sent := range []string{"", "body"} {
			inVirtualTime(t, way.scheme, nil, pauses, func(v virtual) {
				answers(v, v.client(way.client), request(v, "POST", proxyURL, strings.NewReader(sent)), 200, "one two")
			})
		}
	}
}

// TestUpgrade: what speaks another protocol after its first request, as WebSockets do, is passed on
// both ways, and may be silent.
func TestUpgrade(t *testing.T) {
	service := func(w http.ResponseWriter, r *http.Request) {
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
	}
	inVirtualTime(t, "http", nil, service, func(v virtual) {
		conn := v.connect()
		fmt.Fprint(conn, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		rd := bufio.NewReader(conn)
		response, err := http.ReadResponse(rd, nil)
		if err != nil || response.StatusCode != 101 {
			v.Fatal(response, err)
		}
		for i := range 2 {
			time.Sleep(10 * patience)
			fmt.Fprintln(conn, "frame", i)
			if line, err := rd.ReadString('\n'); err != nil || line != fmt.Sprintln("frame", i) {
				v.Fatalf("%q, %v", line, err)
			}
		}
	})
}

// TestClientFallsSilent: half a request, and then nothing, gets an answer and an end when its time
// is over.
func TestClientFallsSilent(t *testing.T) {
	for _, tt := range []struct {
		why, sent string
		limit     func(http.Handler) http.Handler
		answer    string // how it begins
	}{
		{"nothing", "", all, ""},
		{"half a line", "GET / HT", all, ""},
		{"half a header", "GET / HTTP/1.1\r\nHost: a\r\nX-", all, ""},
		{"half a body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf", all, "HTTP/1.1 408 "},
		{"half a chunk", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal", all, "HTTP/1.1 408 "},
		{"no chunk", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nwhat\r\n", all, "HTTP/1.1 400 "},
		{"half a body, denied", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf", deny, "HTTP/1.1 429 "},
		{"half of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM", all, ""},
		{"a whole request", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", all, "HTTP/1.1 200 "},
	} {
		asked := false
		service := func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			asked = err == nil
		}
		inVirtualTime(t, "http", func(o *Options) { o.Limit = tt.limit }, service, func(v virtual) {
			begun, conn := time.Now(), v.connect()
			go func() { _, _ = io.WriteString(conn, tt.sent) }()
			answer, err := io.ReadAll(conn) // until it hangs up
			if err != nil || !strings.HasPrefix(string(answer), tt.answer) || tt.answer == "" && strings.Contains(string(answer), " 200 ") {
				t.Errorf("%s: %v, %q", tt.why, err, answer)
			}
			if took := time.Since(begun); took > 2*patience {
				t.Errorf("%s: it hangs up after %v", tt.why, took)
			}
		})
		if whole := tt.why == "a whole request"; asked != whole {
			t.Errorf("%s: the service has got it: %v", tt.why, asked)
		}
	}
}

// TestClientFallsSilentHTTP2: one stream ends, and the others go on.
func TestClientFallsSilentHTTP2(t *testing.T) {
	service := func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	inVirtualTime(t, "http", nil, service, func(v virtual) {
		c := v.client(2)
		sent, write := io.Pipe()
		defer write.Close()
		go func() { _, _ = io.WriteString(write, "half") }()
		response, err := c.Do(request(v, "POST", proxyURL, sent))
		if err == nil {
			_ = response.Body.Close()
		}
		if err == nil && response.StatusCode != http.StatusRequestTimeout {
			t.Errorf("half a body: %v", response)
		}
		answers(v, c, request(v, "POST", proxyURL, strings.NewReader("whole")), 200, "")
	})
}

// TestSlowReader: a client that reads nothing does not hold the service's answer for ever.
func TestSlowReader(t *testing.T) {
	ended := make(chan error, 1)
	service := func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Second) // until the client has the header
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				ended <- err
				return
			}
		}
	}
	inVirtualTime(t, "http", nil, service, func(v virtual) {
		conn := v.connect()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			v.Fatal(err)
		}
		time.Sleep(3 * patience)
		synctest.Wait()
		if len(ended) != 1 {
			t.Error("the service still writes")
		}
	})
}

// silent accepts connections, and says nothing; it reads, or does not.
func silent(t *testing.T, reads bool) *daemontest.Pipes {
	m := daemontest.NewPipes()
	t.Cleanup(func() { _ = m.Close() })
	go func() {
		for {
			conn, err := m.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			if reads {
				go func() { _, _ = io.Copy(io.Discard, conn) }()
			}
		}
	}()
	return m
}

// TestSilentService: one that does not begin to answer, or reads nothing, holds no client's
// request.
func TestSilentService(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		synctest.Test(t, func(t *testing.T) {
			var log daemontest.Buffer
			soon := func(o *Options) { o.Log, o.Answer = log.Logger(), pingAfter/2 } // before pings tell that it is dead
			runVirtual(t, scheme, silent(t, true), soon, func(v virtual) {
				for range 2 {
					checkProblem(t, v.client(1), proxyURL, http.StatusGatewayTimeout)
				}
			})
			checkLoggedOnce(t, &log, scheme+"://service")
		})
	}
	synctest.Test(t, func(t *testing.T) {
		runVirtual(t, "http", silent(t, false), nil, func(v virtual) {
			response, err := v.client(1).Do(request(v, "POST", proxyURL, endless{}))
			if err != nil { // the answer may be lost, as the client is still sending
				return
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusGatewayTimeout {
				t.Error(response.Status)
			}
		})
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

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

// TestBodyAfterTheAnswer: when a request has been answered, its connection belongs to the next one,
// and a body that is still being read leaves it alone. One that has ended goes on saying so, also
// when the server has closed it.
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
