package httpidentity

import "strings"

// forwardedFor returns the value of "for" in an element of a Forwarded header (RFC 7239, section
// 4), without its quotes:
//
//	for="[2001:db8::1]:4711";proto=https;by=203.0.113.43
//
// ok is false if there is none, or two, or if the element is malformed anywhere. Beyond the RFC it
// accepts white space around ';', and any byte except quotes and white space in a value without
// quotes: for=[2001:db8::1]:80, which the RFC requires to be quoted. It refuses a backslash in the
// value of "for": no address needs one.
func forwardedFor(element string) (node string, ok bool) {
	for rest := element; rest != ""; {
		var p pair
		if p, rest, ok = cutPair(rest); !ok {
			return "", false
		}
		if !strings.EqualFold(p.name, "for") {
			continue
		}
		if node != "" || p.value == "" || strings.Contains(p.value, `\`) {
			return "", false
		}
		node = p.value
	}
	return node, node != ""
}

type pair struct{ name, value string }

// cutPair cuts the first pair and the ';' after it off. By the RFC, a pair may be empty.
func cutPair(s string) (p pair, rest string, ok bool) {
	s = strings.TrimLeft(s, " \t")
	if s == "" || s[0] == ';' {
		return p, strings.TrimPrefix(s, ";"), true
	}
	p.name, s, ok = strings.Cut(s, "=")
	if !ok || p.name == "" || strings.ContainsAny(p.name, " \t\";,") {
		return p, "", false
	}
	if p.value, rest, ok = cutValue(s); !ok {
		return p, "", false
	}
	rest = strings.TrimLeft(rest, " \t")
	if rest != "" && rest[0] != ';' {
		return p, "", false
	}
	return p, strings.TrimPrefix(rest, ";"), true
}

// cutValue cuts a value off, and removes its quotes if it has any. Backslashes stay; the byte after
// one does not end the value.
func cutValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, "; \t\"")
		if end < 0 {
			return s, "", true
		}
		return s[:end], s[end:], true // cutPair refuses a quote here
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[1:i], s[i+1:], true
		}
	}
	return "", "", false
}
