package identity

import "strings"

// FoldedPath is the attribute of a request's path for services that do not tell /Login, /login and
// /login/ apart. Its values are as FoldPath returns them.
const FoldedPath = "folded_path"

// FoldPath returns a path in lower case and with a slash at its end, so that the prefix /api/ is that
// of /api as well. What does not begin with a slash gets none. It does not allocate if the path has
// this form.
func FoldPath(path string) string {
	path = strings.ToLower(path)
	if strings.HasPrefix(path, "/") && !strings.HasSuffix(path, "/") {
		path += "/"
	}
	return path
}

const hostAttribute = "header:Host"

// IsHost reports whether an attribute is the host that a request asks for: header:Host, in any case,
// as header names have none. Keys and conditions have its values as FoldHost returns them.
func IsHost(attribute string) bool {
	return len(attribute) == len(hostAttribute) && strings.EqualFold(attribute, hostAttribute)
}

// FoldHost returns a host in lower case, without its port and without the dots at its end: clients may
// write any of these, and reach the same service. It does not allocate if the host is in lower case.
func FoldHost(host string) string {
	port := len(strings.TrimRight(host, "0123456789"))
	if port > 0 && host[port-1] == ':' && (strings.IndexByte(host, ':') == port-1 || strings.HasSuffix(host[:port-1], "]")) {
		host = host[:port-1] // "::1", without brackets, has no port
	}
	return strings.ToLower(strings.TrimRight(host, "."))
}
