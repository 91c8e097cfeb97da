// Package events holds what checkers and aggregators say to each other, and its bytes.
//
// A checker sends a [Report] of its hits and gets a [Refresh] as the answer; an aggregator tells
// everybody about keys near their limit by an [Alarm]; [Hello] and its answer [Welcome] carry the
// heartbeat, the number of shards and the clock. A [LeaseRequest] asks for permits of keys under
// strict enforcement, and a [Grant] is its answer. A [Token] goes through a client, and comes back
// with the true cost of a hit, which a report carries as a [Settlement]. By [Member] aggregators
// tell each other which shards they own. The messages are protobuf (events.proto is the format's
// definition); this package adds what the format cannot say: bounds, and columns that fit together.
// Whatever a Decode function returns without an error is safe to walk.
//
// Carriers (packages natsbus and membus) move these bytes and know nothing else of them.
package events

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
)

// Bounds on what a message may hold. A message beyond them is malformed.
const (
	// MaxCount is the largest hit count, total or limit: exact as a float64, which is what a
	// number is inside a Redis script, with room to add many of them.
	MaxCount = 1e15
	// MaxRules is the largest number of rules in one message.
	MaxRules = 1 << 14
	// MaxKeys is the largest number of keys in one message.
	MaxKeys = 1 << 16
	// MaxCells is the largest number of cells (key and bucket) in one message.
	MaxCells = 1 << 21
	// MaxLeaseKeys is the largest number of keys in one lease request, MaxLeaseBuckets the largest
	// number of buckets that their windows can touch together, and MaxReturns that of buckets of
	// which permits are given back. A request is one call of the store, which others wait for.
	MaxLeaseKeys    = 1000
	MaxLeaseBuckets = 1 << 14
	MaxReturns      = 1 << 14
	// MaxKeyLength is the longest key, in bytes.
	MaxKeyLength = 1024
	// MaxRuleName is the longest name of a rule, in bytes.
	MaxRuleName = 128
	// MaxBuckets is the largest number of buckets in a window.
	MaxBuckets = 1440
	// MaxLevel is the largest settled level: MaxCount hits, in the smallest parts that a hit can
	// have.
	MaxLevel = MaxCount * MaxBuckets
	// MaxWindow is the longest window.
	MaxWindow = 366 * 24 * time.Hour
	// MaxShards is the largest number of shards.
	MaxShards = 1 << 14
	// MaxCheckers is the largest number of live checkers that aggregators tell apart.
	MaxCheckers = 1 << 16
	// MaxMembers is the largest number of aggregators that tell each other apart.
	MaxMembers = 1 << 10
	// MaxReportAge is when a report that has not been answered is given up, and refused:
	// aggregators remember for a day that they have counted it, so a later repeat might count
	// twice.
	MaxReportAge = 20 * time.Hour
	// MaxState is the largest generation, version and sequence: exact as a float64, and far beyond
	// what a generation, which is a time in microseconds, comes to.
	MaxState = 1 << 52
	// MaxTrace is the longest traceparent, in bytes. A longer one is ignored.
	MaxTrace = 128
	// maxBucketNumber keeps a bucket's start and end within an int64 of nanoseconds
	// even for the shortest bucket, 1 ms.
	maxBucketNumber = int64(1) << 43
	// maxTime, in the year 2116, leaves room in an int64 of nanoseconds for windows and waits after
	// it.
	maxTime = int64(1) << 62
)

// ErrMalformed is wrapped by every error of the Decode functions.
var ErrMalformed = errors.New("malformed message")

// ErrRules and ErrAlgorithm, which wrap ErrMalformed, are wrapped by the errors of messages with
// more than MaxRules rules, and with an algorithm that this build does not know.
var (
	ErrRules     = fmt.Errorf("%w: too many rules", ErrMalformed)
	ErrAlgorithm = fmt.Errorf("%w: an unknown algorithm", ErrMalformed)
)

// Kind says which message some bytes are; the carrier knows it from the subject.
type Kind uint8

// The kinds of messages.
const (
	KindReport Kind = iota + 1
	KindRefresh
	KindAlarm
	KindHello
	KindWelcome
	KindLease
	KindGrant
	KindMember
	// KindUnheard is no message: the carrier says that a report or lease request has reached
	// nobody. Its payload is the request's address, see [ParseAddress].
	KindUnheard
)

var kindNames = [...]string{
	KindReport: "report", KindRefresh: "refresh", KindAlarm: "alarm", KindHello: "hello",
	KindWelcome: "welcome", KindLease: "lease", KindGrant: "grant", KindMember: "member", KindUnheard: "unheard",
}

// String returns the kind's name, as used in subjects.
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Address is where a report or lease request goes: to the owner of a shard, or to any aggregator.
type Address struct {
	Kind          Kind
	Format, Shard uint32
	ToOwner       bool
}

// ownerSuffix follows the shard of what is for its owner.
const ownerSuffix = "-owner"

// String returns the address as subjects have it: report.v1.12 or lease.v1.12-owner.
func (a Address) String() string {
	text := fmt.Sprintf("%v.v%d.%d", a.Kind, a.Format, a.Shard)
	if a.ToOwner {
		text += ownerSuffix
	}
	return text
}

// ParseAddress reads what String has written; ok is false if text is something else.
func ParseAddress(text string) (a Address, ok bool) {
	kind, rest, _ := strings.Cut(text, ".v")
	a.Kind = Kind(slices.Index(kindNames[:], kind))
	rest, a.ToOwner = strings.CutSuffix(rest, ownerSuffix)
	format, shard, _ := strings.Cut(rest, ".")
	f, err := strconv.ParseUint(format, 10, 32)
	s, err2 := strconv.ParseUint(shard, 10, 32)
	a.Format, a.Shard = uint32(f), uint32(s)
	return a, err == nil && err2 == nil && (a.Kind == KindReport || a.Kind == KindLease)
}

// Message is any of the messages of this package.
type Message = proto.Message

// Append appends the bytes of m to dst. One message always gives the same bytes within one build,
// so a report that is encoded again for a repeat would not differ; it is kept encoded all the same.
func Append(dst []byte, m Message) ([]byte, error) {
	out, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(dst, m)
	if err != nil {
		return dst, fmt.Errorf("encode %T: %w", m, err)
	}
	return out, nil
}

// DecodeReport reads a report. The result does not refer to data.
func DecodeReport(data []byte) (*Report, error) {
	m, err := decode(data, new(Report))
	if err != nil {
		return nil, err
	}
	if m.Hits == nil {
		m.Hits = new(Table)
	}
	if len(m.Trace) > MaxTrace {
		m.Trace = ""
	}
	if len(m.Late) > len(m.Hits.Rules) {
		return nil, malformed("report: %d late counts for %d rules", len(m.Late), len(m.Hits.Rules))
	}
	if len(m.Settlements) > MaxSettlements {
		return nil, malformed("report: %d settlements", len(m.Settlements))
	}
	return checked("report", m, checkRequest(m.Epoch, m.Sequence, m.Shard, m.Shards),
		m.Hits.check(), checkCounts("late", m.Late))
}

// DecodeRefresh reads a refresh. The result does not refer to data.
func DecodeRefresh(data []byte) (*Refresh, error) {
	m, err := decode(data, new(Refresh))
	if err != nil {
		return nil, err
	}
	if len(m.KeyCells) > MaxKeys {
		return nil, malformed("refresh: %d keys", len(m.KeyCells))
	}
	for _, key := range m.Overflow {
		if int64(key) >= int64(len(m.KeyCells)) {
			return nil, malformed("refresh: key %d of %d", key, len(m.KeyCells))
		}
	}
	return checked("refresh", m, checkState(m.Generation, m.Version, m.Sequence),
		checkCells(m.KeyCells, m.Age, m.Total), checkLevels(m.LevelAge, m.Level, len(m.KeyCells)))
}

// DecodeAlarm reads an alarm. The result does not refer to data.
func DecodeAlarm(data []byte) (*Alarm, error) {
	m, err := decode(data, new(Alarm))
	if err != nil {
		return nil, err
	}
	if m.Totals == nil { // as in all answers, which somebody may have had delivered as alarms
		return nil, malformed("alarm: no totals")
	}
	return checked("alarm", m, checkState(m.Generation, m.Version), m.Totals.check())
}

// DecodeHello reads a hello.
func DecodeHello(data []byte) (*Hello, error) {
	m, err := decode(data, new(Hello))
	if err != nil {
		return nil, err
	}
	if m.Epoch == 0 {
		return nil, malformed("hello: no epoch")
	}
	return m, nil
}

// DecodeWelcome reads a welcome.
func DecodeWelcome(data []byte) (*Welcome, error) {
	m, err := decode(data, new(Welcome))
	if err != nil {
		return nil, err
	}
	if m.Shards == 0 || m.Shards > MaxShards {
		return nil, malformed("welcome: %d shards", m.Shards)
	}
	if m.Time <= MaxState || m.Time > maxTime { // other answers have a state there
		return nil, malformed("welcome: at %d ns", m.Time)
	}
	if m.Error < 0 || m.Error > maxTime {
		return nil, malformed("welcome: the time is off by %d ns", m.Error)
	}
	return m, nil
}

// DecodeMember reads what an aggregator tells the others.
func DecodeMember(data []byte) (*Member, error) {
	m, err := decode(data, new(Member))
	if err != nil {
		return nil, err
	}
	bits := (int(m.Shards) + 7) / 8
	switch {
	case m.Id == 0 || m.Shards > MaxShards || len(m.Echoes) > MaxMembers:
		return nil, malformed("member %x: %d shards, %d echoes", m.Id, m.Shards, len(m.Echoes))
	case m.Checkers > MaxCheckers:
		return nil, malformed("member %x: %d checkers", m.Id, m.Checkers)
	case len(m.Serves) > bits || len(m.Owns) > bits || len(m.Wants) > bits:
		return nil, malformed("member %x: more shards than %d", m.Id, m.Shards)
	case m.Time != 0 && m.Time <= MaxState || m.Time > maxTime || m.Error < 0 || m.Error > maxTime:
		return nil, malformed("member %x: at %d ns, off by %d", m.Id, m.Time, m.Error)
	}
	return m, nil
}

func decode[M proto.Message](data []byte, m M) (M, error) {
	if err := proto.Unmarshal(data, m); err != nil {
		return m, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return m, nil
}

// checked returns a message, or the first of the errors that were found in it.
func checked[M proto.Message](name string, m M, errs ...error) (M, error) {
	if err := cmp.Or(errs...); err != nil {
		var none M
		return none, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// checkRequest checks the header of a report or lease request.
func checkRequest(epoch, sequence uint64, shard, shards uint32) error {
	if epoch == 0 || sequence == 0 {
		return malformed("epoch and sequence start at 1")
	}
	if shards > MaxShards || shard >= max(shards, 1) {
		return malformed("shard %d of %d", shard, shards)
	}
	return checkState(sequence)
}

func checkState(numbers ...uint64) error {
	for _, n := range numbers {
		if n > MaxState {
			return malformed("generation, version or sequence %d", n)
		}
	}
	return nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}
