package reporter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
)

// suspect is what waits of one rule in one shard, and what is known of its refusals there.
// Aggregators refuse a whole message because of one rule: the rules of a refused one are *suspect*
// in that shard, and have messages of their own. The first of these that is accepted ends that,
// unless one was refused: then it lasts for suspectFor after the refusal. Other shards have other
// owners, which may accept the rule. Times are own times.
type suspect struct {
	group *counter.Group
	line
	late  bool  // its late hits wait, too
	since int64 // of the first refusal of a report about this rule alone; 0 after one was accepted
	after int64 // when the next message may be made
	tries int   // refusals of messages about this rule alone, while it is suspect
	until int64 // when the suspicion ends, at the latest
}

// suspectFor is how long a rule stays suspect after a refusal, if a message about it alone was
// refused: even if another one is accepted, since the reason may be one of its keys.
const suspectFor = 10 * time.Minute

func (s *suspect) waits() bool { return s.queue.Len() > 0 || s.late }

// accepted takes in that a message about the rule was accepted.
func (s *suspect) accepted() {
	s.since, s.after = 0, 0
	if s.tries == 0 {
		s.until = 0
	}
}
