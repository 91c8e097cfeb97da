package identity

import (
	"cmp"
	"net/netip"
	"strings"
)

// FoldedPath is the attribute of a request's path for services to which /Login, /login and /login/
// are the same. Its values are those of FoldPath.
const FoldedPath = "folded_path"

// FoldPath returns a path in lower case and with a slash at its end, so that the prefix /api/ is
// that of /api as well. A path that does not begin with a slash gets none. It does not allocate if
// the path has this form.
func FoldPath(path string) string {
	path = strings.ToLower(path)
	if strings.HasPrefix(path, "/") && !strings.HasSuffix(path, "/") {
		path += "/"
	}
	return path
}

const hostAttribute = "header:Host"

// IsHost reports whether an attribute is the request's host: header:Host, in any case. Keys and
// conditions use its values as FoldHost returns them.
func IsHost(attribute string) bool {
	return len(attribute) == len(hostAttribute) && strings.EqualFold(attribute, hostAttribute)
}

// FoldHost returns a host in lower case, without its port and trailing dots: with any of these a
// client reaches the same service. A port is everything after the first colon, since some servers
// read no further, or after the brackets around an IPv6 address; an IPv6 address without brackets
// has no port. It does not allocate if the host is in lower case.
func FoldHost(host string) string {
	if strings.HasPrefix(host, "[") {
		host = host[:cmp.Or(strings.IndexByte(host, ']')+1, len(host))]
	} else if name, port, ok := strings.Cut(host, ":"); ok &&
		(!strings.Contains(port, ":") || !isAddr(host)) {
		host = name
	}
	return strings.ToLower(strings.TrimRight(host, "."))
}

func isAddr(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}
