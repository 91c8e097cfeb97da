package keeper_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/internal/keeper"
	"github.com/offpath-io/offpath/pkg/rules"
)

const good = "rules:\n  - name: a\n    key: [user]\n    limit: 5/second\n"

// used notes what came into force.
type used struct {
	sets      []*rules.Set
	revisions []uint64
	refuse    error
}

func (u *used) use(set *rules.Set, revision uint64) error {
	if u.refuse != nil {
		return u.refuse
	}
	u.sets, u.revisions = append(u.sets, set), append(u.revisions, revision)
	return nil
}

func TestTheLastGoodSetStays(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var u used
	k := keeper.New(keeper.Options{Use: u.use, Now: func() time.Time { return now }})
	steps := []struct {
		why      string
		revision uint64
		data     string
		trouble  error // instead of data
		healed   bool
		refuse   error

		says         string // State.String
		inForce      int    // of used.revisions
		line, column int
	}{
		{why: "the source is not there", trouble: errors.New("no bucket"), says: "none yet, source: no bucket"},
		{why: "the first set is bad", revision: 1, data: "rules: []", says: "none yet, refused: line 1, column 8: rules: there are no rules", line: 1, column: 8},
		{why: "a good one", revision: 2, data: good, says: "revision 2", inForce: 1},
		{
			why: "a bad one", revision: 3, data: strings.Replace(good, "5/second", "5/fortnight", 1), inForce: 1, line: 4, column: 12,
			says: "revision 2, refused: line 4, column 12: limit: ",
		},
		{why: "the file goes", trouble: errors.New("gone"), inForce: 1, line: 4, column: 12, says: ", source: gone"},
		{why: "it is back, as bad as before", healed: true, inForce: 1, line: 4, column: 12, says: "revision 2, refused: line 4"},
		{why: "not even text", revision: 4, data: "\xff", inForce: 1, line: 1, column: 1, says: "revision 2, refused: line 1, column 1: byte 0xff is not UTF-8"},
		{why: "good again", revision: 5, data: good, inForce: 2, says: "revision 5"},
		{why: "refused by who uses it", revision: 6, data: good, refuse: errors.New("too many"), inForce: 2, says: "revision 5, refused: too many"},
		{why: "a bucket made anew counts from 1", revision: 1, data: good, inForce: 3, says: "revision 1"},
	}
	refusals := int64(0)
	for _, step := range steps {
		now = now.Add(time.Minute)
		u.refuse = step.refuse
		var err error
		if step.trouble != nil || step.healed {
			k.Trouble(step.trouble)
		} else if err = k.Offer(step.revision, []byte(step.data)); err != nil {
			refusals++
		}
		s := k.State()
		if !strings.Contains(s.String(), step.says) || len(u.sets) != step.inForce || s.Loads != int64(step.inForce) || s.Refusals != refusals {
			t.Errorf("%s: %v; %q, want %q; %d in force, want %d; %+v", step.why, err, s, step.says, len(u.sets), step.inForce, s)
		}
		if strings.Contains(s.String(), "source:") != strings.Contains(step.says, "source:") {
			t.Errorf("%s: %q", step.why, s)
		}
		if s.InForce() != (step.inForce > 0) || (s.Refused != nil) != (step.line > 0 || step.refuse != nil) {
			t.Fatalf("%s: %+v", step.why, s)
		}
		if s.Refused != nil && (s.Refused.Line != step.line || s.Refused.Column != step.column) {
			t.Errorf("%s: refused at %d:%d", step.why, s.Refused.Line, s.Refused.Column)
		}
		if err != nil && (!s.Refused.At.Equal(now) || s.Refused.Revision != step.revision || s.Refused.Err != err) {
			t.Errorf("%s: refused: %+v", step.why, s.Refused)
		}
		if err == nil && step.data != "" && (!s.Loaded.Equal(now) || s.Rules != 1 || s.Digest != keeper.Digest([]byte(step.data))) {
			t.Errorf("%s: %+v", step.why, s)
		}
	}
	if got := fmt.Sprint(u.revisions); got != "[2 5 1]" {
		t.Errorf("in force came %s", got)
	}
}

// TestReadersMayBeReplaced: another format, and one whose reader panics.
func TestReadersMayBeReplaced(t *testing.T) {
	var u used
	k := keeper.New(keeper.Options{Use: u.use, Read: func(data []byte) (*rules.Set, error) {
		if string(data) == "panic" {
			panic("what is this")
		}
		return rules.Parse([]byte(good))
	}})
	if err := k.Offer(1, []byte("anything")); err != nil {
		t.Error(err)
	}
	if err := k.Offer(2, []byte("panic")); err == nil || !strings.Contains(err.Error(), "what is this") {
		t.Error(err)
	}
	if s := k.State(); s.Revision != 1 || s.Refused == nil {
		t.Errorf("%+v", s)
	}
}

// TestWhateverIsOffered: in force is always the last good one that was offered, and nothing else was ever used.
func TestWhateverIsOffered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u used
		k := keeper.New(keeper.Options{Use: u.use})
		offers := rapid.SliceOf(rapid.SampledFrom([]string{good, "", "rules:", good + "x", strings.Replace(good, "5/", "6/", 1)})).Draw(t, "offers")
		want, loads := keeper.State{}, int64(0)
		for i, data := range offers {
			_, bad := rules.Parse([]byte(data))
			if err := k.Offer(uint64(i+1), []byte(data)); (err == nil) != (bad == nil) {
				t.Fatalf("%q: %v", data, err)
			}
			if bad == nil {
				loads++
				want.Revision, want.Digest = uint64(i+1), keeper.Digest([]byte(data))
			}
			s := k.State()
			if s.Revision != want.Revision || s.Digest != want.Digest || s.Loads != loads || int64(len(u.sets)) != loads || s.Refusals != int64(i+1)-loads {
				t.Fatalf("%+v, want %+v", s, want)
			}
		}
	})
}
