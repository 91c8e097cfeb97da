package blocks

import (
	"errors"
	"fmt"
	"time"

	"github.com/offpath-io/offpath/pkg/signature"
)

// Stored is a value of a bucket, to be kept elsewhere.
type Stored struct {
	// Name is the bucket's key of it.
	Name string
	// Written is when it came into the bucket; zero without signatures.
	Written time.Time
	// Raw is the whole value, signature included. It must not be changed.
	Raw []byte
}

// Snapshot returns what [Restore] needs so that these entries, which a watch has told of, hold
// again: where entries are signed, all that the verifier holds, also what lifts a block.
func Snapshot(namespace string, v *signature.Verifier, list []Block, now time.Time) ([]Stored, error) {
	if v != nil {
		held := v.All(Name(namespace), now)
		all := make([]Stored, len(held))
		for i, h := range held {
			all[i] = Stored{h.Key, h.Written, h.Raw}
		}
		return all, nil
	}
	all := make([]Stored, len(list))
	for i, e := range list {
		data, err := encode(e)
		if err != nil {
			return nil, err
		}
		all[i] = Stored{Name: name(e.Rule, e.Key), Raw: data}
	}
	return all, nil
}

// Restore returns those entries that hold of what was kept elsewhere, in the order of their ends.
// With a verifier, nil if nothing is signed, they count as if they had been read from the
// namespace's bucket: a watch that begins later tells of them, too, until it hears of newer ones.
// Why others do not count is in refused, one error each; that an entry has ended is none.
func Restore(namespace string, v *signature.Verifier, stored []Stored, now time.Time) (list []Block, refused []error) {
	all := make(map[string]Block)
	for _, kept := range stored {
		data, signed := split(kept.Raw)
		if v != nil {
			_, err := v.Take(signature.Found{
				Bucket: Name(namespace), Key: kept.Name, Value: data, Text: signed, Raw: kept.Raw, Written: kept.Written,
			}, now)
			if errors.Is(err, signature.ErrExpired) {
				continue
			}
			if err != nil {
				refused = append(refused, fmt.Errorf("entry %.40s: %w", kept.Name, err))
				continue
			}
		}
		e, err := decode(data)
		if errors.Is(err, errUnknown) { // it lifts a block, or is for others
			continue
		}
		if err != nil {
			refused = append(refused, fmt.Errorf("entry %.40s: %w", kept.Name, err))
			continue
		}
		all[kept.Name] = e
	}
	return sorted(all, now), refused
}
