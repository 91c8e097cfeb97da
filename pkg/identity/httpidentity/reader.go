package httpidentity

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"path"
	"slices"
	"strings"

	"github.com/offpath-io/offpath/pkg/identity"
)

// Names of built-in attributes.
const (
	ipName      = "ip"
	addressName = "address"
	pathName    = "path"

	headerPrefix = "header:"
	cookiePrefix = "cookie:"
)

// Reader reads some attributes of requests. Its methods are safe for concurrent use.
type Reader struct {
	builder *Builder
	sources []namedSource
	paths   bool     // path or folded_path is read from the URL
	headers []string // that attributes are read from, in canonical form
	unknown []string
}

// namedSource is an attribute and its source.
type namedSource struct {
	name   string
	source Source
}

// Reader returns a reader of the attributes with these names. A name without a source is no error,
// since others may add attributes to a request; Unknown returns these. It fails on a name that no
// attribute can have.
func (b *Builder) Reader(names []string) (*Reader, error) {
	rd := &Reader{builder: b}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		source, err := b.source(name)
		switch {
		case err != nil:
			return nil, fmt.Errorf("attribute %.140q: %w", name, err)
		case source == nil:
			rd.unknown = append(rd.unknown, name)
		default:
			rd.sources = append(rd.sources, namedSource{name, source})
			rd.note(name)
		}
	}
	return rd, nil
}

// Unknown returns the names without a source, in the order of Builder.Reader. Unless the caller
// adds these attributes, no request has them. The slice is the caller's.
func (rd *Reader) Unknown() []string { return slices.Clone(rd.unknown) }

// Append appends those attributes that the request has to dst and returns it. It omits attributes
// that dst already has: the caller's, for example a user who has logged in, take precedence. It
// does not change the request.
//
// It does not allocate if dst has room, except 8 to 48 bytes for ip and address, for cookies, and
// for a path that is not clean.
func (rd *Reader) Append(dst identity.Attributes, r *http.Request) identity.Attributes {
	given := dst
	for i := range rd.sources {
		s := &rd.sources[i]
		if _, known := given.Get(s.name); known {
			continue
		}
		if value, ok := s.source(r); ok {
			dst = append(dst, identity.Attribute{Name: s.name, Value: value})
		}
	}
	return dst
}

// ip and address are sources.
func (b *Builder) ip(r *http.Request) (string, bool) {
	addr, ok := b.ClientIP(r.RemoteAddr, r.Header)
	return identity.Group(addr, b.options.IPv4Prefix, b.options.IPv6Prefix), ok
}

func (b *Builder) address(r *http.Request) (string, bool) {
	addr, ok := b.ClientIP(r.RemoteAddr, r.Header)
	return addr.String(), ok
}

// note notes the parts of a request that an attribute is read from and that servers may read in
// different ways.
func (rd *Reader) note(name string) {
	if _, given := rd.builder.options.Sources[name]; given {
		return
	}
	if header, ok := strings.CutPrefix(name, headerPrefix); ok {
		rd.headers = append(rd.headers, textproto.CanonicalMIMEHeaderKey(header))
	}
	rd.paths = rd.paths || name == pathName || name == identity.FoldedPath
}

// Ambiguous reports whether servers read one of the reader's attributes in different ways:
//
//   - The path: for some servers /api/../x is below /api, for others it is /x. Some end a path at a
//     zero byte, and proxies turn "*", which is for OPTIONS only, into "/*".
//   - A header that comes several times, with different values: some servers use the first one, as
//     the reader does, and some the last one.
//
// Refuse these requests with status 400: with any reading, some service would serve a request that
// no rule has seen. Well-behaved clients do not send them. It does not allocate.
func (rd *Reader) Ambiguous(r *http.Request) bool {
	for _, name := range rd.headers {
		for _, value := range r.Header[name] {
			if value != r.Header[name][0] {
				return true
			}
		}
	}
	if !rd.paths || r.URL == nil {
		return false
	}
	path := r.URL.Path
	return hasDotSegment(path) || strings.IndexByte(path, 0) >= 0 ||
		path == "*" && r.Method != http.MethodOptions
}

// hasDotSegment reports whether an unescaped path has a segment . or .. for any server: for some,
// %2f or \ is a slash, and some remove the part after a semicolon.
func hasDotSegment(path string) bool {
	if strings.IndexByte(path, '.') < 0 {
		return false
	}
	for more := true; more; {
		end := strings.IndexAny(path, `/\`)
		segment := path
		if more = end >= 0; more {
			segment, path = path[:end], path[end+1:]
		}
		segment, _, _ = strings.Cut(segment, ";")
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// source returns an attribute's source, nil for unknown attributes.
func (b *Builder) source(name string) (Source, error) {
	if source, ok := b.options.Sources[name]; ok {
		return source, nil
	}
	switch name {
	case "":
		return nil, errors.New("it is empty")
	case ipName:
		return b.ip, nil
	case addressName:
		return b.address, nil
	case "method":
		return method, nil
	case pathName:
		return cleanPath, nil
	case identity.FoldedPath:
		return foldedPath, nil
	case "route":
		return route, nil
	}
	if header, ok := strings.CutPrefix(name, headerPrefix); ok {
		return checked(FromHeader, header)
	}
	if cookie, ok := strings.CutPrefix(name, cookiePrefix); ok {
		return checked(FromCookie, cookie)
	}
	return nil, nil
}

func checked(from func(string) Source, name string) (Source, error) {
	if name == "" || strings.ContainsFunc(name, notInToken) {
		return nil, errors.New("no header or cookie can have this name")
	}
	return from(name), nil
}

// notInToken reports whether a token of RFC 9110 cannot contain a character: neither can the name
// of a header or a cookie.
func notInToken(c rune) bool {
	return c <= ' ' || c >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
}

// FromHeader returns a source that reads the first header of a name, in any case. For "Host" it is
// the request's host. It is for attributes that another server writes: {"user":
// FromHeader("X-User")} behind a proxy that sets X-User itself.
func FromHeader(name string) Source {
	name = textproto.CanonicalMIMEHeaderKey(name)
	if name == "Host" { // net/http keeps it elsewhere
		return func(r *http.Request) (string, bool) { return r.Host, r.Host != "" }
	}
	return func(r *http.Request) (string, bool) {
		values := r.Header[name]
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	}
}

// FromCookie returns a source that reads the first cookie of a name.
func FromCookie(name string) Source {
	return func(r *http.Request) (string, bool) {
		cookie, err := r.Cookie(name)
		if err != nil {
			return "", false
		}
		return cookie.Value, true
	}
}

// MuxRoute returns a source for route, for requests that are limited before mux has routed them: it
// asks mux for the pattern.
func MuxRoute(mux *http.ServeMux) Source {
	return func(r *http.Request) (string, bool) {
		_, pattern := mux.Handler(r)
		return pattern, pattern != ""
	}
}

func route(r *http.Request) (string, bool) { return r.Pattern, r.Pattern != "" }

// method returns GET for the empty method of a client's request.
func method(r *http.Request) (string, bool) {
	if r.Method == "" {
		return http.MethodGet, true
	}
	return r.Method, true
}

// cleanPath folds paths that are the same for most servers: otherwise "//login" would evade a limit
// of "/login".
func cleanPath(r *http.Request) (string, bool) {
	switch {
	case r.URL == nil:
		return "", false
	case r.URL.Path == "" && (r.URL.Host != "" || r.URL.Opaque != "") &&
		r.Method != http.MethodConnect:
		return "/", true // "GET http://example.com HTTP/1.1"; so do routers read "GET x:a HTTP/1.1"
	case r.URL.Path == "":
		return "", false
	}
	raw := r.URL.Path
	if raw[0] != '/' { // "*"
		return raw, true
	}
	clean := path.Clean(raw)
	switch {
	case !strings.HasSuffix(raw, "/") || clean == "/":
		return clean, true
	case len(clean)+1 == len(raw): // only the last slash was removed
		return raw, true
	}
	return clean + "/", true
}

func foldedPath(r *http.Request) (string, bool) {
	path, ok := cleanPath(r)
	return identity.FoldPath(path), ok
}
