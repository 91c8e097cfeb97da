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

// Names of attributes that are built in.
const (
	ipName      = "ip"
	addressName = "address"
	pathName    = "path"

	headerPrefix = "header:"
	cookiePrefix = "cookie:"
)

// Reader reads some attributes of requests. It is never changed, and may be used by many goroutines
// at once.
type Reader struct {
	builder *Builder
	sources []named
	ip      bool // wanted, as is address
	address bool
	paths   bool     // path or folded_path is wanted, and read here
	headers []string // that are wanted, and read here, in canonical form
	unknown []string
}

// named is an attribute and where it comes from.
type named struct {
	name   string
	source Source
}

// Reader makes a reader of the attributes with these names. A name that nothing is known of is no
// error, since others may add what they know to a request; Unknown tells these. The error says
// which name cannot be one.
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
		case name == ipName:
			rd.ip = true
		case name == addressName:
			rd.address = true
		case source == nil:
			rd.unknown = append(rd.unknown, name)
		default:
			rd.sources = append(rd.sources, named{name, source})
			rd.note(name)
		}
	}
	return rd, nil
}

// Unknown are the names that nothing is known of, in order. The attributes must come from
// elsewhere, or no request has them. The slice is the caller's.
func (rd *Reader) Unknown() []string { return slices.Clone(rd.unknown) }

// Append appends the attributes of a request to dst and returns it. A request may have them or not,
// and those of which dst has one are left out: what the caller knows better, such as a user who has
// logged in, beats what is read here. The request is not changed.
//
// It does not allocate if dst has room, except 8 to 48 bytes for ip and address, for cookies, and
// for a path that has to be cleaned.
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
	if rd.ip || rd.address {
		dst = rd.appendClient(dst, given, r)
	}
	return dst
}

func (rd *Reader) appendClient(dst, given identity.Attributes, r *http.Request) identity.Attributes {
	addr, ok := rd.builder.ClientIP(r.RemoteAddr, r.Header)
	if !ok {
		return dst
	}
	if _, known := given.Get(ipName); rd.ip && !known {
		o := &rd.builder.options
		dst = append(dst, identity.Attribute{Name: ipName, Value: identity.Group(addr, o.IPv4Prefix, o.IPv6Prefix)})
	}
	if _, known := given.Get(addressName); rd.address && !known {
		dst = append(dst, identity.Attribute{Name: addressName, Value: addr.String()})
	}
	return dst
}

// note notes what an attribute is made of that servers may read in different ways.
func (rd *Reader) note(name string) {
	if _, given := rd.builder.options.Sources[name]; given {
		return
	}
	if header, ok := strings.CutPrefix(name, headerPrefix); ok {
		rd.headers = append(rd.headers, textproto.CanonicalMIMEHeaderKey(header))
	}
	rd.paths = rd.paths || name == pathName || name == identity.FoldedPath
}

// Ambiguous reports whether servers differ on what the request says of an attribute that the reader
// reads:
//
//   - Its path: to some /api/../x is below /api, to others it is /x. Some end a path at a zero byte,
//     and of "*", which is for OPTIONS alone, proxies make "/*".
//   - A header that is there several times, with different values: some take the first, as the
//     reader does, and some the last.
//
// Such a request is to be refused with status 400: by any reading, some service would be asked for
// what no rule has seen. Clients that mean well send none. It does not allocate.
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
	return hasDotSegment(path) || strings.IndexByte(path, 0) >= 0 || path == "*" && r.Method != http.MethodOptions
}

// hasDotSegment says whether an unescaped path has a segment . or .., as any server may see it:
// some take %2f for a slash, or \, and some take off what follows a semicolon.
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

// source returns where an attribute comes from, or nil for ip and address, which are the builder's
// own, and for what is not known.
func (b *Builder) source(name string) (Source, error) {
	if source, ok := b.options.Sources[name]; ok {
		return source, nil
	}
	switch name {
	case "":
		return nil, errors.New("it is empty")
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
	if name == "" || strings.ContainsFunc(name, strange) {
		return nil, errors.New("no header or cookie can have this name")
	}
	return from(name), nil
}

// strange says what a token of RFC 9110 cannot have in it, and so neither the name of a header nor
// of a cookie.
func strange(c rune) bool {
	return c <= ' ' || c >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
}

// FromHeader is a source that reads the first header of a name, in any case. For "Host" it is the
// host that was asked for. Use it where an attribute is another's word: {"user":
// FromHeader("X-User")}, behind a proxy that sets X-User itself.
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

// FromCookie is a source that reads the first cookie of a name.
func FromCookie(name string) Source {
	return func(r *http.Request) (string, bool) {
		cookie, err := r.Cookie(name)
		if err != nil {
			return "", false
		}
		return cookie.Value, true
	}
}

// MuxRoute is a source for route where requests are limited before mux sees them: it asks mux what
// it would choose.
func MuxRoute(mux *http.ServeMux) Source {
	return func(r *http.Request) (string, bool) {
		_, pattern := mux.Handler(r)
		return pattern, pattern != ""
	}
}

func route(r *http.Request) (string, bool) { return r.Pattern, r.Pattern != "" }

// method is GET where a client's request leaves it out.
func method(r *http.Request) (string, bool) {
	if r.Method == "" {
		return http.MethodGet, true
	}
	return r.Method, true
}

// cleanPath folds what most servers take for the same: otherwise "//login" would go round a limit
// of "/login".
func cleanPath(r *http.Request) (string, bool) {
	switch {
	case r.URL == nil:
		return "", false
	case r.URL.Path == "" && (r.URL.Host != "" || r.URL.Opaque != "") && r.Method != http.MethodConnect:
		return "/", true // "GET http://example.com HTTP/1.1", and what routers take "GET x:a HTTP/1.1" for
	case r.URL.Path == "":
		return "", false
	}
	asked := r.URL.Path
	if asked[0] != '/' { // "*"
		return asked, true
	}
	clean := path.Clean(asked)
	switch {
	case !strings.HasSuffix(asked, "/") || clean == "/":
		return clean, true
	case len(clean)+1 == len(asked): // only the last slash was taken off
		return asked, true
	}
	return clean + "/", true
}

func foldedPath(r *http.Request) (string, bool) {
	path, ok := cleanPath(r)
	return identity.FoldPath(path), ok
}
