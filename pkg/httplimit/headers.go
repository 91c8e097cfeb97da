package httplimit

import (
	"fmt"
	"strconv"
)

// Headers say what answers tell of limits. A positive one is the number of a draft of the IETF's "RateLimit header fields for HTTP"
// (draft-ietf-httpapi-ratelimit-headers), which still moves:
//
//	 8 to 11   RateLimit-Policy: "per-user";q=15;w=1       RateLimit: "per-user";r=14;t=1
//	 7         RateLimit-Policy: 15;w=1                    RateLimit: limit=15, remaining=14, reset=1
//	 4 to 6    RateLimit-Policy: 15;w=1                    RateLimit-Limit: 15, RateLimit-Remaining: 14, RateLimit-Reset: 1
//	Triple                                                 RateLimit-Limit: 15, RateLimit-Remaining: 14, RateLimit-Reset: 1
//	XTriple                                                X-RateLimit-Limit: 15, X-RateLimit-Remaining: 14, X-RateLimit-Reset: 1
//
// All times are seconds from now, rounded up; of a denial the time is that of Retry-After. They are about the rule that decided: the one that
// denied, or else the one with the least left. If none matched, or one that limits nobody, there are no headers.
type Headers int

const (
	// NewestDraft is the newest that is known here, and what the zero value stands for.
	NewestDraft Headers = 11
	oldestDraft Headers = 4

	// NoHeaders is none but the Retry-After of denials.
	NoHeaders Headers = -1
	// Triple is RateLimit-Limit, -Remaining, -Reset.
	Triple Headers = -2
	// XTriple is X-RateLimit-Limit, -Remaining, -Reset.
	XTriple Headers = -3
)

// words are the settings' texts, besides numbers.
var words = map[string]Headers{"none": NoHeaders, "ratelimit": Triple, "x-ratelimit": XTriple}

// ParseHeaders reads what settings write: the number of a draft, ratelimit, x-ratelimit or none.
func ParseHeaders(text string) (Headers, error) {
	if h, ok := words[text]; ok {
		return h, nil
	}
	n, err := strconv.Atoi(text)
	if h := Headers(n); err == nil && n > 0 && h.check() == nil {
		return h, nil
	}
	return 0, fmt.Errorf("headers %.40q: want the number of a draft, %d to %d, or ratelimit, x-ratelimit or none", text, oldestDraft, NewestDraft)
}

// String is the text that ParseHeaders reads.
func (h Headers) String() string {
	for word, value := range words {
		if value == h {
			return word
		}
	}
	return strconv.Itoa(int(h.orNewest()))
}

func (h Headers) orNewest() Headers {
	if h == 0 {
		return NewestDraft
	}
	return h
}

func (h Headers) check() error {
	if h < XTriple || h > 0 && h < oldestDraft || h > NewestDraft {
		return fmt.Errorf("headers of draft %d: want %d to %d, or NoHeaders, Triple or XTriple", h, oldestDraft, NewestDraft)
	}
	return nil
}
