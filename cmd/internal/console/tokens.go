package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/offpath-io/offpath/internal/tlsfiles"
)

// Tokens are of those who may change something: by the token's hash, whose it is.
type Tokens map[[sha256.Size]byte]string

const (
	// minToken is the least bytes of a token: what nobody guesses.
	minToken = 16
	// anonymous is whose a token without a name is.
	anonymous = "operator"
	maxTokens = 1000
)

// OpenTokens takes tokens from a file, if it is not "", and from a text, if that is not "": one
// each line, as NAME:TOKEN or TOKEN. Empty lines and those that begin with # are passed over. The
// file needs a token to begin with; what it returns gives the tokens of the newest good content of
// it, which files watches. No error says anything of a token.
func OpenTokens(files *tlsfiles.Files, file, text string) (current func() Tokens, err error) {
	fixed, err := parseTokens(text)
	if err != nil || file == "" {
		return func() Tokens { return fixed }, err
	}
	begun := false
	content, err := files.Text("console-tokens", file, func(content []byte) (time.Time, error) {
		of, err := parseTokens(string(content))
		if err == nil && len(of) == 0 && !begun { // later it is how one locks everybody out
			err = errNoToken
		}
		return time.Time{}, err
	})
	if err != nil {
		return nil, err
	}
	begun = true
	return func() Tokens {
		all, _ := parseTokens(string(content())) // a good one: it was checked
		maps.Copy(all, fixed)
		return all
	}, nil
}

var errNoToken = errors.New("there is no token in it")

func parseTokens(text string) (Tokens, error) {
	t := make(Tokens)
	return t, t.add(text)
}

func (t Tokens) add(text string) error {
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, token, named := strings.Cut(line, ":")
		if !named {
			name, token = anonymous, line
		}
		name, token = strings.TrimSpace(name), strings.TrimSpace(token)
		switch {
		case name == "" || len(name) > 64:
			return fmt.Errorf("line %d: a name of %d bytes: want 1 to 64 before the colon", i+1, len(name))
		case len(token) < minToken:
			return fmt.Errorf("line %d: a token of %d bytes: want at least %d, which nobody guesses", i+1, len(token), minToken)
		case len(t) == maxTokens:
			return errors.New("too many tokens")
		}
		t[sha256.Sum256([]byte(token))] = name
	}
	return nil
}

// of returns whose a token is. It takes as long for a wrong one as for a right one.
func (t Tokens) of(token string) (name string, ok bool) {
	sum := sha256.Sum256([]byte(token))
	for known, whose := range t {
		if subtle.ConstantTimeCompare(known[:], sum[:]) == 1 {
			name, ok = whose, true
		}
	}
	return name, ok
}
