package upstream

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// way is the versions of HTTP at both ends.
type way struct {
	client int
	scheme string
	server string // as the service sees it
}

var ways = []way{
	{1, "http", "HTTP/1.1"}, {1, "h2c", "HTTP/2.0"}, {1, "https", "HTTP/2.0"},
	{2, "http", "HTTP/1.1"}, {2, "h2c", "HTTP/2.0"}, {2, "https", "HTTP/2.0"},
}

// TestPassesOn: the service gets what the client sent, and the client what the service answered,
// with trailers both ways; one that claims who the client is drops them all.
func TestPassesOn(t *testing.T) {
	for _, way := range ways {
		target := service(t, way.scheme, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			w.Header().Set("Trailer", "Grpc-Status")
			w.Header().Set("X-Service", "toy")
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, r.Proto, " ", r.Method, " ", r.RequestURI, " ", r.Host, " ", r.Header.Get("X-Own"), " ",
				string(body), " ", err, " ", r.Trailer)
			w.Header().Set("Grpc-Status", "7")
		})
		url := start(t, options(t, target+"/base")) + "/a%2Fb/%ff//c?odd=%zz&x;y"
		for claim, trailers := range map[string]string{"X-Sum": "map[X-Sum:[1]]", "X-Forwarded-For": "map[]"} {
			r := request(t, "PUT", url, io.MultiReader(strings.NewReader("body"))) // of unknown length
			r.Host = "example.com"
			r.Header.Set("X-Own", "mine")
			r.Trailer = http.Header{"X-Sum": {"1"}, claim: {"1"}}
			response, body := do(t, client(t, way.client), r)
			want := way.server + " PUT /base/a%2Fb/%ff//c?odd=%zz&x;y example.com mine body <nil> " + trailers
			if response.StatusCode != http.StatusTeapot || body != want || response.Header.Get("X-Service") != "toy" ||
				response.ProtoMajor != way.client || response.Trailer.Get("Grpc-Status") != "7" {
				t.Errorf("%+v: %+v\ngot  %s\nwant %s", way, response, body, want)
			}
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
		sent, write := io.Pipe()
		if way.client == 1 {
			// net/http's server reads a whole body before it answers, unless a handler wants
			// otherwise.
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

// TestEarlyAnswers: an answer that comes before the final one takes nothing from that.
func TestEarlyAnswers(t *testing.T) {
	for _, way := range ways {
		target := service(t, way.scheme, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</a.css>")
			for range 2 {
				w.WriteHeader(http.StatusEarlyHints)
			}
			if w.Header().Set("RateLimit", "its"); r.URL.Path == "/broken" {
				panic(http.ErrAbortHandler)
			}
		})
		o := options(t, target)
		o.Limit = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Ratelimit"] = []string{"ours"}
				next.ServeHTTP(w, r)
			})
		}
		at := start(t, o)
		for path, want := range map[string][]string{"/": {"ours", "its"}, "/broken": {"ours"}} {
			response, _ := do(t, client(t, way.client), request(t, "GET", at+path, nil))
			if got := response.Header["Ratelimit"]; !slices.Equal(got, want) {
				t.Errorf("%+v: %s: RateLimit %q, want %q", way, path, got, want)
			}
		}
	}
}

// TestHopByHop: what a client calls its connection's own goes no further, and takes nothing of ours
// off.
func TestHopByHop(t *testing.T) {
	url := start(t, options(t, service(t, "http", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header["X-Forwarded-For"], r.Header["X-Forwarded-Host"], r.Header["X-Own"], r.Header["Proxy-Authorization"])
	})))
	r := request(t, "GET", url, nil)
	r.Host = "a"
	r.Header = http.Header{
		"Connection": {"X-Forwarded-For, X-Own, X-Forwarded-Host"}, "X-Own": {"1"}, "X-Forwarded-For": {"6.6.6.6"},
		"Proxy-Authorization": {"x"},
	}
	answers(t, client(t, 1), r, 200, "[127.0.0.1] [a] [] []")
}

// TestDenied: what the limit denies never reaches the service.
func TestDenied(t *testing.T) {
	o := options(t, service(t, "http", func(http.ResponseWriter, *http.Request) { t.Error("asked") }))
	o.Limit = deny
	answers(t, client(t, 1), request(t, "POST", start(t, o), strings.NewReader("body")), 429, "")
}
