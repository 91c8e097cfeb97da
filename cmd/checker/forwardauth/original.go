package forwardauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Headers in which proxies describe the original request.
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

// originalRequest returns the request that a proxy asks about, with ctx: r with the method, URL and
// host of the headers, and with the client's own headers, which the proxy has passed on. Without a
// header for the URI it has no path; without one for the method it is a GET.
//
// A proxy writes some of these headers and passes the others on as the client sent them, and this
// adapter cannot know which. So two headers that disagree are an error: otherwise a client could
// choose the path that is decided about.
func originalRequest(ctx context.Context, r *http.Request) (*http.Request, error) {
	method, err := agreed(r.Header, whole, forwardedMethod, originalMethod)
	if err != nil {
		return nil, err
	}
	if method == "" {
		method = http.MethodGet
	}
	if strings.ContainsFunc(method, notInMethod) {
		return nil, fmt.Errorf("original method %.40q: want a word", method)
	}
	uri, err := agreed(r.Header, target, forwardedURI, originalURI, originalURL)
	if err != nil {
		return nil, err
	}
	original := r.WithContext(ctx) // a copy, with its headers and remote address
	original.Method, original.RequestURI, original.Pattern = method, uri, ""
	original.Body, original.ContentLength = http.NoBody, 0
	if original.URL, err = parseURI(uri); err != nil {
		return nil, err
	}
	host, err := agreed(r.Header, whole, forwardedHost)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = original.URL.Host // of X-Original-URL
	}
	if host != "" {
		original.Host = host
	}
	return original, nil
}

// parseURI reads a URI as the client sent it: a path with or without a query. It refuses a
// fragment: no browser sends one, some services remove it, and others resolve the path with it, so
// that it is unknown which path "/x#/../login" is.
func parseURI(uri string) (*url.URL, error) {
	switch {
	case uri == "":
		return new(url.URL), nil
	case len(uri) > MaxURI:
		return nil, fmt.Errorf("original URI: %d bytes, more than %d", len(uri), MaxURI)
	case strings.Contains(uri, "#"):
		return nil, fmt.Errorf("original URI %.80q: has a fragment", uri)
	}
	u, err := url.ParseRequestURI(uri)
	if wrapped, ok := errors.AsType[*url.Error](err); ok { // it quotes the URI, which may be long
		err = wrapped.Err
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("original URI %.80q: %w", uri, err)
	case u.Opaque != "":
		return nil, fmt.Errorf("original URI %.80q: no path", uri)
	}
	return u, nil
}

// agreed returns the value of those headers that are present, as the first one has it, and "" if
// none is. They must agree in the part that compared returns.
func agreed(
	h http.Header, compared func(text string) string, names ...string,
) (value string, err error) {
	from := ""
	for _, name := range names {
		for _, text := range h[name] {
			switch {
			case text == "" || text == value:
			case from == "":
				from, value = name, text
			case compared(text) != compared(value):
				return "", fmt.Errorf("%s %.80q and %s %.80q: a proxy writes one, "+
					"and passes the other on as the client sent it", from, value, name, text)
			}
		}
	}
	return value, nil
}

func whole(text string) string { return text }

// target returns the part of a URI or URL from its path on: X-Original-URL has a scheme and a host,
// the other headers do not.
func target(text string) string {
	if _, rest, ok := strings.Cut(text, "://"); ok && !strings.HasPrefix(text, "/") {
		if slash := strings.IndexByte(rest, '/'); slash >= 0 {
			return rest[slash:]
		}
		return "/"
	}
	return text
}

// notInMethod reports whether a method cannot contain a character.
func notInMethod(c rune) bool {
	return c <= ' ' || c >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
}
