package accesslog

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// stampLayout is the time of an entry. The format has no parts of a second.
const stampLayout = "02/Jan/2006:15:04:05 -0700"

// parse reads one line. The error is the reason why it is no entry.
func parse(line string) (e Entry, err error) {
	who, rest, ok := strings.Cut(line, " [")
	if !ok {
		return e, errors.New("no time in brackets")
	}
	if e.Client, err = parseClient(who); err != nil {
		return e, err
	}
	stamp, rest, ok := strings.Cut(rest, "] ")
	if !ok {
		return e, errors.New("nothing after the time")
	}
	if e.Time, err = parseStamp(stamp); err != nil {
		return e, err
	}
	if rest, err = skipQuoted(rest); err != nil {
		return e, err
	}
	return e, checkStatus(rest)
}

// parseClient returns the first of the three fields before the time. The third one, the user, may
// have spaces in it.
func parseClient(who string) (string, error) {
	client, rest, _ := strings.Cut(who, " ")
	identity, user, _ := strings.Cut(rest, " ")
	switch {
	case user == "":
		return "", errors.New("want client, identity and user before the time")
	case client == "-":
		return "", errors.New("the client is not known")
	case !isClient(client):
		return "", fmt.Errorf("the client %.40q is neither an address nor a host name", client)
	}
	if _, err := netip.ParseAddr(identity); err == nil {
		// Taking the first field would make one client of all.
		return "", errors.New("the second field is an address: is there a virtual host in front?")
	}
	return client, nil
}

// isClient says whether s may be an address of any kind, or a host name. It lets through what some
// servers add: a port, a zone, a prefix.
func isClient(s string) bool {
	const longest = 255 // of a host name in DNS
	strange := func(r rune) bool {
		letter := r|0x20 >= 'a' && r|0x20 <= 'z'
		digit := r >= '0' && r <= '9'
		return !letter && !digit && !strings.ContainsRune(".:-_%/[]", r)
	}
	return s != "" && len(s) <= longest && !strings.ContainsFunc(s, strange)
}

func parseStamp(stamp string) (time.Time, error) {
	t, err := time.Parse(stampLayout, stamp)
	if err != nil || len(stamp) != len(stampLayout) { // time.Parse lets parts of a second through
		return time.Time{}, fmt.Errorf("the time %.40q is not like 17/May/2015:10:05:03 +0000", stamp)
	}
	return t.UTC(), nil
}

// skipQuoted returns what follows the quotes that s begins with. A backslash takes the next byte
// with it.
func skipQuoted(s string) (after string, err error) {
	if !strings.HasPrefix(s, `"`) {
		return "", errors.New("no request in quotes after the time")
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[i+1:], nil
		}
	}
	return "", errors.New("the request has no end")
}

// checkStatus wants status and size, each of which may be "-". Whatever follows is ignored.
func checkStatus(s string) error {
	fields := strings.SplitN(s, " ", 4)
	if len(fields) < 3 || fields[0] != "" {
		return errors.New("want status and size after the request")
	}
	status, size := fields[1], fields[2]
	if !isNumber(size) {
		return fmt.Errorf("the size %.40q is not a number", size)
	}
	if !isNumber(status) || status != "-" && len(status) != 3 {
		return fmt.Errorf("the status %.40q is not a number of three digits", status)
	}
	return nil
}

// isNumber says whether s has only digits, or stands for a number that was not logged.
func isNumber(s string) bool {
	return s == "-" || s != "" && strings.Trim(s, "0123456789") == ""
}
