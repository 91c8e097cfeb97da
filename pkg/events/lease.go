package events

import "fmt"

// DecodeLeaseRequest reads a lease request. The result does not refer to data.
func DecodeLeaseRequest(data []byte) (*LeaseRequest, error) {
	m, err := decode(data, new(LeaseRequest))
	if err != nil {
		return nil, err
	}
	if err := checkRequest(m.Epoch, m.Sequence, m.Shard, m.Shards); err != nil {
		return nil, fmt.Errorf("lease request: %w", err)
	}
	if m.Keys == nil {
		m.Keys = new(Table)
	}
	if err := m.checkColumns(); err != nil {
		return nil, fmt.Errorf("lease request: %w", err)
	}
	return m, nil
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
	if err := checkAges(m.Age); err != nil {
		return err
	}
	if err := checkCounts("known permits", m.Known); err != nil {
		return err
	}
	return checkCounts("a wish for permits", m.Want)
}

// AddKey appends a key, of which permits are given back by AddReturn. rule is its index in m.Keys.Rules;
// the key speaks of the bucket that is age buckets older than that rule's newest.
func (m *LeaseRequest) AddKey(rule uint32, key string, age int64, known, want uint64) {
	m.Keys.AddKey(rule, key)
	m.Age = append(m.Age, age)
	m.Known = append(m.Known, known)
	m.Want = append(m.Want, want)
}

// AddReturn gives back permits of the key added last: returned in all, of the bucket that is age buckets
// older than the rule's newest.
func (m *LeaseRequest) AddReturn(age int64, returned uint64) { m.Keys.AddCell(age, returned) }

// DecodeGrant reads a grant. The result does not refer to data.
func DecodeGrant(data []byte) (*Grant, error) {
	m, err := decode(data, new(Grant))
	if err != nil {
		return nil, err
	}
	if err := checkState(m.Generation, m.Version, m.Sequence); err != nil {
		return nil, fmt.Errorf("grant: %w", err)
	}
	keys := len(m.Age)
	if keys > MaxLeaseKeys || len(m.Granted) != keys || len(m.Spoken) != keys || len(m.WaitMs) != keys {
		return nil, malformed("grant: %d ages, %d granted, %d spoken of, %d waits",
			keys, len(m.Granted), len(m.Spoken), len(m.WaitMs))
	}
	for _, column := range [][]uint64{m.Granted, m.Spoken, m.WaitMs} {
		if err := checkCounts("grant: column", column); err != nil {
			return nil, err
		}
	}
	if err := checkAges(m.Age); err != nil {
		return nil, fmt.Errorf("grant: %w", err)
	}
	return m, nil
}
