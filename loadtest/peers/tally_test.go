package peers

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
)

// tally is what became of a number of hits.
type tally struct {
	hits, admitted, failed int64
	err                    error // of the first that failed
}

func (t *tally) count(ok bool, err error) {
	t.hits++
	switch {
	case err != nil:
		t.failed++
		t.err = cmp.Or(t.err, err)
	case ok:
		t.admitted++
	}
}

func (t *tally) add(u tally) {
	t.hits, t.admitted, t.failed = t.hits+u.hits, t.admitted+u.admitted, t.failed+u.failed
	t.err = cmp.Or(t.err, u.err)
}

// verdict is an error if more than 1 % of the hits were denied or failed: a limiter that refuses
// may be faster than one that counts.
func (t *tally) verdict() error {
	if 100*(t.hits-t.admitted) <= t.hits {
		return nil
	}
	err := fmt.Errorf("of %d hits %d were admitted, %d failed", t.hits, t.admitted, t.failed)
	if t.err != nil {
		err = fmt.Errorf("%w, the first with: %w", err, t.err)
	}
	return err
}

func TestVerdict(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		tally tally
		good  bool
	}{
		{tally{hits: 100, admitted: 100}, true},
		{tally{hits: 100, admitted: 99}, true},
		{tally{hits: 100, admitted: 98}, false},
		{tally{hits: 100, admitted: 99, failed: 1, err: broken}, true},
		{tally{hits: 100, admitted: 90, failed: 10, err: broken}, false},
	} {
		err := test.tally.verdict()
		if (err == nil) != test.good || err != nil && errors.Is(err, broken) != (test.tally.failed > 0) {
			t.Errorf("%+v: %v", test.tally, err)
		}
	}
}
