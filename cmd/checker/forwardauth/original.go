package forwardauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Headers in which proxies tell of the original request.
const (
	forwardedMethod = "X-Forwarded-Method"
	forwardedURI    = "X-Forwarded-Uri"
	forwardedHost   = "X-Forwarded-Host"
	originalMethod  = "X-Original-Method"
	originalURI     = "X-Original-Uri"
	originalURL     = "X-Original-Url"
)

// MaxURI is the greatest length of the original request's URI, in bytes.
const MaxURI = 16 << 10

// original returns the request that a proxy asks about, to be decided within ctx: r with the method, URL and host that its headers tell, and
// the client's own headers, which the proxy has passed on. A URI that is not told is no path; a method that is not told is GET.
//
// A proxy writes some of these headers and passes the others on as the client sent them, and nobody knows which. So two
// that disagree are an error, or a client could choose another path than the one it asks for.
func original(ctx context.Context, r *http.Request) (*http.Request, error) {
	method, err := agreed(r.Header, same, forwardedMethod, originalMethod)
	if err != nil {
		return nil, err
	}
	if method == "" {
		method = http.MethodGet
	}
	if strings.ContainsFunc(method, notInMethod) {
		return nil, fmt.Errorf("original method %.40q: want a word", method)
	}
	told, err := agreed(r.Header, target, forwardedURI, originalURI, originalURL)
	if err != nil {
		return nil, err
	}
	asked := r.WithContext(ctx) // a copy, with its headers and remote address
	asked.Method, asked.RequestURI, asked.Pattern = method, told, ""
	asked.Body, asked.ContentLength = http.NoBody, 0
	if asked.URL, err = parse(told); err != nil {
		return nil, err
	}
	host, err := agreed(r.Header, same, forwardedHost)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = asked.URL.Host // of X-Original-URL
	}
	if host != "" {
		asked.Host = host
	}
	return asked, nil
}

// parse reads a URI, a path with or without a query, as the client asked for it. A fragment is refused: no browser sends one, some services
// take it off, and others resolve what is in it, so that nobody can say which path "/x#/../login" is.
func parse(uri string) (*url.URL, error) {
	switch {
	case uri == "":
		return new(url.URL), nil
	case len(uri) > MaxURI:
		return nil, fmt.Errorf("original URI: %d bytes, more than %d", len(uri), MaxURI)
	case strings.Contains(uri, "#"):
		return nil, fmt.Errorf("original URI %.80q: has a fragment", uri)
	}
	u, err := url.ParseRequestURI(uri)
	switch {
	case err != nil:
		return nil, fmt.Errorf("original URI %.80q: %w", uri, reason(err))
	case u.Opaque != "":
		return nil, fmt.Errorf("original URI %.80q: no path", uri)
	}
	return u, nil
}

// reason is a URL's error without the URL, which may be long.
func reason(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		return of.Err
	}
	return err
}

// agreed returns what all those of the headers say that are there, the first one's words, and "" if none is. They are
// compared as of says it.
func agreed(h http.Header, of func(text string) string, names ...string) (value string, err error) {
	from := ""
	for _, name := range names {
		for _, text := range h[name] {
			switch {
			case text == "" || text == value:
			case from == "":
				from, value = name, text
			case of(text) != of(value):
				return "", fmt.Errorf("%s %.80q and %s %.80q: a proxy writes one, and passes the other on as the client sent it", from, value, name, text)
			}
		}
	}
	return value, nil
}

func same(text string) string { return text }

// target is the part of a URI or URL from its path on: X-Original-URL is told with scheme and host, the others without.
func target(text string) string {
	if _, rest, ok := strings.Cut(text, "://"); ok && !strings.HasPrefix(text, "/") {
		if slash := strings.IndexByte(rest, '/'); slash >= 0 {
			return rest[slash:]
		}
		return "/"
	}
	return text
}

// notInMethod says what a method cannot have in it.
func notInMethod(c rune) bool {
	return c <= ' ' || c >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
}
