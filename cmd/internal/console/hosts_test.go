package console

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestOtherNamesAreRefused: a site whose name has been given the address of the reader's own
// machine reads nothing.
func TestOtherNamesAreRefused(t *testing.T) {
	c, _ := newDesk(t)
	c.o.Hosts = Hosts{"ops.example.com"}
	server := httptest.NewServer(c.Handler(http.NotFoundHandler()))
	defer server.Close()
	for host, want := range map[string]int{
		"": 200, "localhost:9091": 200, "LOCALHOST": 200, "a.localhost": 200, "127.0.0.1": 200, "[::1]:9091": 200, "10.0.0.1:9091": 200,
		"ops.example.com": 200, "OPS.example.com.:443": 200, "evil.example:9091": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403,
	} {
		for _, path := range []string{"/", "/api/view", "/api/key?key=k", "/api/stream"} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+path, nil)
			must(t, err)
			r.Host = host
			answer, err := http.DefaultClient.Do(r)
			must(t, err)
			_ = answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("%s of %q: %d", path, host, answer.StatusCode)
			}
		}
	}
	// Behind a published port, it does not listen on loopback, and browsers get there all the same.
	if elsewhere := ask(t, c.Handler(http.NotFoundHandler()), "GET", "http://evil.example/api/view", "", "", ""); elsewhere.Code != 403 {
		t.Errorf("not by loopback: %d", elsewhere.Code)
	}
}

// TestStreamIsCompressed, and yet events come one by one.
func TestStreamIsCompressed(t *testing.T) {
	c, _ := newDesk(t)
	server := httptest.NewServer(c.Handler(http.NotFoundHandler()))
	defer server.Close()
	for _, plain := range []bool{false, true} {
		transport := &http.Transport{DisableCompression: plain}
		defer transport.CloseIdleConnections()
		answer, err := (&http.Client{Transport: transport}).Get(server.URL + "/api/stream")
		must(t, err)
		defer answer.Body.Close()
		if answer.Uncompressed == plain {
			t.Errorf("compressed: %v", answer.Uncompressed)
		}
		lines := bufio.NewReader(answer.Body)
		for range 2 {
			line, err := lines.ReadString('\n')
			must(t, err)
			if end, err := lines.ReadString('\n'); err != nil || end != "\n" || !strings.HasPrefix(line, `data: {"now"`) {
				t.Errorf("%.40q, %q, %v", line, end, err)
			}
		}
	}
}
