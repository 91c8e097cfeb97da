// Package limitheaders writes the HTTP header fields that tell a client about its limit. They are
// about the rule that decided: the one that denied, or else the one with the least left. All times
// are seconds from now, rounded up; of a denial the time is that of Retry-After.
package limitheaders

import (
	"fmt"
	"strconv"
)

// Format says which fields are written. A positive one is the number of a draft of the IETF's
// "RateLimit header fields for HTTP" (draft-ietf-httpapi-ratelimit-headers), which still changes:
//
//	8 to 11   RateLimit-Policy: "per-user";q=15;w=1
//	          RateLimit: "per-user";r=14;t=1
//	7         RateLimit-Policy: 15;w=1
//	          RateLimit: limit=15, remaining=14, reset=1
//	4 to 6    RateLimit-Policy: 15;w=1, and the fields of Triple
//	Triple    RateLimit-Limit: 15, RateLimit-Remaining: 14, RateLimit-Reset: 1
//	XTriple   the same, with X- before each name
//
// The zero value stands for Newest.
type Format int

const (
	// Newest is the newest draft known here.
	Newest Format = 11
	oldest Format = 4

	// None writes nothing.
	None Format = -1
	// Triple is RateLimit-Limit, -Remaining, -Reset.
	Triple Format = -2
	// XTriple is X-RateLimit-Limit, -Remaining, -Reset.
	XTriple Format = -3
)

// names are the texts of formats without a number.
var names = map[Format]string{None: "none", Triple: "ratelimit", XTriple: "x-ratelimit"}

// Parse reads a setting: the number of a draft, ratelimit, x-ratelimit or none.
func Parse(text string) (Format, error) {
	for f, name := range names {
		if text == name {
			return f, nil
		}
	}
	n, err := strconv.Atoi(text)
	if f := Format(n); err == nil && n > 0 && f.Validate() == nil {
		return f, nil
	}
	return 0, fmt.Errorf("headers %.40q: want the number of a draft, %d to %d, or ratelimit, "+
		"x-ratelimit or none", text, oldest, Newest)
}

// String returns the text that Parse reads.
func (f Format) String() string {
	if name, ok := names[f]; ok {
		return name
	}
	return strconv.Itoa(int(f.orNewest()))
}

// Validate returns an error if there is no such format.
func (f Format) Validate() error {
	if f < XTriple || f > 0 && f < oldest || f > Newest {
		return fmt.Errorf("headers of draft %d: want %d to %d, or None, Triple or XTriple",
			f, oldest, Newest)
	}
	return nil
}

func (f Format) orNewest() Format {
	if f == 0 {
		return Newest
	}
	return f
}
