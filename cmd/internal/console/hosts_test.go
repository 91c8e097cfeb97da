package console

import (
	"bufio"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A site whose name has been given the address of the reader's own machine reads nothing.
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
	elsewhere := ask(t, c.Handler(http.NotFoundHandler()), "GET", "http://ops.example/api/view", "", "", "") // not by loopback
	if elsewhere.Code != 200 {
		t.Errorf("from elsewhere: %d", elsewhere.Code)
	}
}

// Events come one by one although they are compressed.
func TestStreamIsCompressed(t *testing.T) {
	c, _ := newDesk(t)
	server := httptest.NewServer(c.Handler(http.NotFoundHandler()))
	defer server.Close()
	for _, encoding := range []string{"gzip, deflate, br", "identity"} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/api/stream", nil)
		must(t, err)
		r.Header.Set("Accept-Encoding", encoding)
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		defer answer.Body.Close()
		lines := bufio.NewReader(answer.Body)
		if answer.Header.Get("Content-Encoding") == "gzip" {
			text, err := gzip.NewReader(answer.Body)
			must(t, err)
			lines = bufio.NewReader(text)
		} else if encoding != "identity" {
			t.Error("not compressed")
		}
		for range 2 {
			if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, `data: {"now"`) {
				t.Errorf("%s: %.40q, %v", encoding, line, err)
			}
			if _, err := lines.ReadString('\n'); err != nil {
				t.Error(err)
			}
		}
	}
}
