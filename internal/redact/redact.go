// Package redact takes secrets out of texts that people see.
package redact

import (
	"net/url"
	"strings"
)

// URLs returns a list of URLs, with commas between, without names, passwords and tokens.
func URLs(urls string) string {
	parts := strings.Split(urls, ",")
	for i, part := range parts {
		if part == "" {
			continue
		}
		if !strings.Contains(part, "://") {
			part = "any://" + part
		}
		u, err := url.Parse(part)
		if err != nil {
			parts[i] = "(not a URL)"
			continue
		}
		parts[i] = strings.TrimPrefix(redacted(u), "any://")
	}
	return strings.Join(parts, ",")
}

// redacted hides more than the method of that name: a name alone may be a token, and a query may
// hold a password.
func redacted(u *url.URL) string {
	if u.User != nil {
		u.User = url.User("xxxxx")
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(name, "password") {
			query.Set(name, "xxxxx")
		}
	}
	u.RawQuery = query.Encode()
	return u.String()
}
