package blocks

import (
	"errors"
	"fmt"
	"time"

	"github.com/offpath-io/offpath/pkg/signature"
)

// Stored is an entry of the bucket, to be kept elsewhere.
type Stored struct {
	// Name is the bucket's key of it.
	Name string
	// Written is when it was written into the bucket; zero without signatures.
	Written time.Time
	// Raw is the whole value, signature included. It must not be changed.
	Raw []byte
}

// Snapshot returns what [Restore] needs to put these blocks, which a watch has read, in force
// again: where entries are signed, all entries that the verifier holds, including those that lift a
// block.
func Snapshot(
	namespace string, v *signature.Verifier, list []Block, now time.Time,
) ([]Stored, error) {
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

// Restore returns the blocks of entries that were kept elsewhere and have not ended, in the order
// of their ends. A verifier, nil if nothing is signed, treats the entries as if they had been read
// from the namespace's bucket: later watches include them until they read newer ones. refused has
// one error for each entry that is not trusted or not valid.
func Restore(
	namespace string, v *signature.Verifier, stored []Stored, now time.Time,
) (list []Block, refused []error) {
	all := make(map[string]Block)
	for _, kept := range stored {
		data, signed := split(kept.Raw)
		if v != nil {
			_, err := v.Take(signature.Found{
				Bucket: Name(namespace), Key: kept.Name, Value: data, Text: signed, Raw: kept.Raw,
				Written: kept.Written,
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
		if errors.Is(err, errUnknown) {
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
