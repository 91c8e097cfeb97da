package blocks

import (
	"errors"
	"fmt"
	"time"

	"github.com/offpath-io/offpath/internal/diskcache"
	"github.com/offpath-io/offpath/pkg/signature"
)

// Snapshot returns what [Restore] needs to put these blocks, which a watch has read, in force
// again: where entries are signed, all entries that the verifier holds, including those that lift a
// block.
func Snapshot(
	namespace string, v *signature.Verifier, list []Block, now time.Time,
) (all []diskcache.Value, err error) {
	if v != nil {
		for _, held := range v.All(Name(namespace), now) {
			all = append(all, diskcache.Value{Key: held.Key, Written: held.Written, Raw: held.Raw})
		}
		return all, nil
	}
	all = make([]diskcache.Value, len(list))
	for i, e := range list {
		data, err := encode(e)
		if err != nil {
			return nil, err
		}
		all[i] = diskcache.Value{Key: name(e.Rule, e.Key), Raw: data}
	}
	return all, nil
}

// Restore returns the blocks of entries that were kept elsewhere and have not ended, in the order
// of their ends. A verifier, nil if nothing is signed, treats the entries as if they had been read
// from the namespace's bucket: later watches include them until they read newer ones. refused has
// one error for each entry that is not trusted or not valid.
func Restore(
	namespace string, v *signature.Verifier, stored []diskcache.Value, now time.Time,
) (list []Block, refused []error) {
	all := make(map[string]Block)
	for _, kept := range stored {
		f := found(Name(namespace), kept.Key, kept.Raw, kept.Written)
		if v != nil {
			_, err := v.Take(f, now)
			if errors.Is(err, signature.ErrExpired) {
				continue
			}
			if err != nil {
				refused = append(refused, fmt.Errorf("entry %.40s: %w", kept.Key, err))
				continue
			}
		}
		e, err := decode(f.Value)
		if errors.Is(err, errUnknown) {
			continue
		}
		if err != nil {
			refused = append(refused, fmt.Errorf("entry %.40s: %w", kept.Key, err))
			continue
		}
		all[kept.Key] = e
	}
	return sorted(all, now), refused
}
