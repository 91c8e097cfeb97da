package promises

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
)

// AllRules are TalkRules and a rule for whatever has come since.
const AllRules = TalkRules + `
  - {name: log, key: [user], limit: 10/second, buckets: 5, algorithm: sliding_log}
  - {name: tokens, key: [user], limit: 20/second, buckets: 10, algorithm: token_bucket, burst: 30}
  - {name: queue, key: [user], limit: 20/second, buckets: 10, algorithm: leaky_bucket, burst: 5}
`

// AllHits are Hits, hits of the further rules, and hits that are settled.
func AllHits(checkers []*check.Checker, now int64) {
	Hits(checkers, now)
	tick := int((now - Start) / way)
	if tick%110 != 31 {
		return
	}
	c := checkers[tick%len(checkers)]
	for _, rule := range []string{"log", "tokens", "queue"} {
		if l, ok := c.Limiter(rule); ok {
			l.CheckAt(now, "kristie", 1)
		}
	}
	for cost, rule := range []string{"per-user", "exact", "tokens"} { // 0 and 1 give back, 5 adds
		l, _ := c.Limiter(rule)
		if _, token := l.CheckTokenAt(now, "tim", 3); token != "" {
			_ = c.SettleAt(now, token, int64(cost*cost+cost/2)) // fails where a hit was denied: then there is no token
		}
	}
}

// recordTokens adds a few tokens, each with what it says.
func recordTokens(files map[string][]byte) error {
	set, err := rules.Parse([]byte(AllRules))
	if err != nil {
		return err
	}
	c, err := check.New(check.Options{Rules: set, Epoch: 77})
	if err != nil {
		return err
	}
	var list []string
	for _, rule := range []string{"per-user", "cut", "log", "tokens", "queue"} {
		l, _ := c.Limiter(rule)
		_, token := l.CheckTokenAt(Start, "höchst|\x00|long", 1)
		meaning, err := TokenMeaning(token)
		if err != nil {
			return fmt.Errorf("%s: %w", rule, err)
		}
		list = append(list, token+" "+meaning)
	}
	files["tokens.txt"] = text(list)
	return nil
}

// TokenMeaning is what this build takes a token to say, as JSON.
func TokenMeaning(token string) (string, error) {
	m, err := events.DecodeToken(token)
	if err != nil {
		return "", err
	}
	data, err := protojson.Marshal(m)
	if err != nil {
		return "", err
	}
	var small bytes.Buffer
	err = json.Compact(&small, data)
	return small.String(), err
}
