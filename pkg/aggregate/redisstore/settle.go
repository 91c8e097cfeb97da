package redisstore

import (
	"strconv"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// nameSettled adds the texts that say which settlements were applied to the script's keys, and the
// senders' numbers of such texts. A chunk is 1 KB, where a key for each settlement would take 100
// bytes of it.
func (c *call) nameSettled() {
	for _, id := range c.batch.Settled {
		c.name("s:", strconv.FormatUint(id.Epoch, 16), ":", strconv.FormatUint(id.Number/storage.Chunk, 16))
	}
	for _, id := range c.batch.Settled {
		c.name("c:", strconv.FormatUint(uint64(id.Sender), 16))
	}
}

// packSettled packs which bits of these texts are the settlements'.
func (c *call) packSettled(b []byte) []byte {
	b = packList(b, len(c.batch.Settled))
	for _, id := range c.batch.Settled {
		b = packInt(b, int64(id.Number%storage.Chunk))
	}
	return b
}

// packPermits packs the changes that settlements make to the permits that are held.
func (c *call) packPermits(b []byte) []byte {
	b = packList(b, 2*len(c.batch.Permits))
	for i := range c.batch.Permits {
		p := &c.batch.Permits[i]
		c.nameHeld(c.rules[p.Rule], p.Text)
		b = packInt(packInt(b, p.Bucket), p.Count)
	}
	return b
}

// nameHeld adds a key's held permits to the script's keys, and returns what else is needed to name
// its leases.
func (f *frame) nameHeld(rule, text string) (share, field string) {
	field, long := fieldOf(text)
	held, share := "h:", "g:"
	if long {
		held, share = "h+:", "g+:"
	}
	f.name(held, rule, ":", field)
	return share, field
}

// nameCredits adds the credits to the script's keys.
func (c *call) nameCredits() {
	for i := range c.batch.Credits {
		k := &c.batch.Credits[i]
		c.name("o:", strconv.FormatUint(uint64(k.Credential), 16), ":", c.rules[k.Rule], ":", strconv.FormatInt(k.Window, 10))
	}
}

// packCredits packs the hits reported and returned under the credits.
func (c *call) packCredits(b []byte) []byte {
	b = packList(b, 3*len(c.batch.Credits))
	for i := range c.batch.Credits {
		k := &c.batch.Credits[i]
		b = packInt(packInt(b, k.Reported), min(k.Returned, 2*storage.MaxCredit))
		b = packInt(b, k.Expires(c.batch.Rules[k.Rule].Shape)/int64(time.Millisecond))
	}
	return b
}

// readRefusal sorts why nothing of a batch was added: by a list of indices, of credits with what is
// left of each, and of settlements that there is no room for.
func (c *call) readRefusal(u *unpacker, n int) (applied storage.Applied) {
	marks, spent := len(c.batch.Marks), len(c.batch.Marks)+len(c.batch.Settled)
	credits := spent + len(c.batch.Credits)
	for ; n > 0; n-- {
		switch index := int(u.count()); {
		case index < marks:
			applied.Repeated = append(applied.Repeated, index)
		case index < spent:
			applied.Spent = append(applied.Spent, index-marks)
		case index >= credits:
			applied.SettledOverflow = append(applied.SettledOverflow, index-credits)
		default:
			applied.Overdrawn = append(applied.Overdrawn, storage.Overdrawn{Credit: index - spent, Left: u.count()})
			n--
		}
	}
	return applied
}
