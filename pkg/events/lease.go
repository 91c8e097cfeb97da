package events

import "cmp"

// DecodeLeaseRequest reads a lease request. The result does not refer to data.
func DecodeLeaseRequest(data []byte) (*LeaseRequest, error) {
	m, err := decode(data, new(LeaseRequest))
	if err != nil {
		return nil, err
	}
	if m.Keys == nil {
		m.Keys = new(Table)
	}
	return checked("lease request", m,
		checkRequest(m.Epoch, m.Sequence, m.Shard, m.Shards), m.checkColumns())
}

// checkColumns holds the columns against each other and every value against its bounds.
func (m *LeaseRequest) checkColumns() error {
	if err := m.Keys.check(); err != nil {
		return err
	}
	keys := m.Keys.Keys()
	if keys > MaxLeaseKeys || len(m.Keys.Age) > MaxReturns {
		return malformed("%d keys, %d returns: want at most %d and %d", keys, len(m.Keys.Age), MaxLeaseKeys, MaxReturns)
	}
	for _, rule := range m.Keys.Rules {
		if rule.Kind != RowKind_ADMITTED {
			return malformed("rule %q: permits of hits of kind %v", rule.Name, rule.Kind)
		}
	}
	buckets := 0
	for _, rule := range m.Keys.KeyRule {
		buckets += int(m.Keys.Rules[rule].Buckets) + 1
	}
	if buckets > MaxLeaseBuckets {
		return malformed("windows of %d buckets: want at most %d", buckets, MaxLeaseBuckets)
	}
	if len(m.Age) != keys || len(m.Known) != keys || len(m.Want) != keys {
		return malformed("%d keys, %d ages, %d known, %d wanted", keys, len(m.Age), len(m.Known), len(m.Want))
	}
	return cmp.Or(checkAges(m.Age), checkCounts("known permits", m.Known),
		checkCounts("a wish for permits", m.Want))
}

// AddKey appends a key, of which permits are given back by AddReturn. rule is its index in
// m.Keys.Rules; the key speaks of the bucket that is age buckets older than that rule's newest.
func (m *LeaseRequest) AddKey(rule uint32, key string, age int64, known, want uint64) {
	m.Keys.AddKey(rule, key)
	m.Age = append(m.Age, age)
	m.Known = append(m.Known, known)
	m.Want = append(m.Want, want)
}

// AddReturn gives back permits of the key added last: returned in all, of the bucket that is age
// buckets older than the rule's newest.
func (m *LeaseRequest) AddReturn(age int64, returned uint64) { m.Keys.AddCell(age, returned) }

// DecodeGrant reads a grant. The result does not refer to data.
func DecodeGrant(data []byte) (*Grant, error) {
	m, err := decode(data, new(Grant))
	if err != nil {
		return nil, err
	}
	keys := len(m.Age)
	if keys > MaxLeaseKeys || len(m.Granted) != keys || len(m.Spoken) != keys || len(m.WaitMs) != keys {
		return nil, malformed("grant: %d ages, %d granted, %d spoken of, %d waits",
			keys, len(m.Granted), len(m.Spoken), len(m.WaitMs))
	}
	return checked("grant", m, checkState(m.Generation, m.Version, m.Sequence), checkAges(m.Age),
		checkCounts("granted permits", m.Granted), checkCounts("spoken-of permits", m.Spoken),
		checkCounts("wait", m.WaitMs))
}
