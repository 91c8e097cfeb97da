package envoyquota

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Reports are not read by the generated code, because that refuses a whole message for one byte
// that is not UTF-8. Envoy makes bucket ids of request headers, which may have such bytes, and
// reports every bucket again and again: one such request would end this stream and all later ones.

// Usages are read one at a time, into the same variable, so that a message takes no memory besides
// its own: an empty usage takes two bytes in the message, and about fifty times as many here.

// wireUsage is a BucketQuotaUsage. Its texts are slices of the message.
type wireUsage struct {
	entries         []wireEntry // at most maxEntries and one more
	allowed, denied uint64
	timed           bool // there is an elapsed
	elapsed         durationpb.Duration
}

type wireEntry struct{ name, value []byte }

var (
	errWire = errors.New("not the bytes of a message")
	errMany = fmt.Errorf("more than %d bucket_quota_usages", maxUsages)
)

// maxUsages bounds the usages of a message: as many as fit with 32 bytes each. An Envoy's take
// more, with a name, a value, a time and a count. Of the shortest possible ones six times as many
// would fit, and take a hundred times the message's memory.
const maxUsages = MaxMessage / 32

// parseReports reads a RateLimitQuotaUsageReports. It calls each for every usage, in turn. A usage
// is valid until each returns. The error has the gRPC status InvalidArgument.
func parseReports(data []byte, each func(*wireUsage)) (domain []byte, err error) {
	var u wireUsage
	usages := 0
	err = eachField(data, func(number protowire.Number, text []byte, _ uint64) error {
		switch number {
		case 1:
			domain = text
		case 2:
			if usages++; usages > maxUsages {
				return errMany
			}
			if err := u.parse(text); err != nil {
				return err
			}
			each(&u)
		}
		return nil
	})
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument,
			"a message is no RateLimitQuotaUsageReports: %v", err)
	}
	return domain, nil
}

func (u *wireUsage) parse(data []byte) error {
	u.entries, u.allowed, u.denied, u.timed = u.entries[:0], 0, 0, false
	return eachField(data, func(number protowire.Number, text []byte, n uint64) error {
		switch number {
		case 1:
			return eachField(text, func(number protowire.Number, text []byte, _ uint64) error {
				if number != 1 {
					return nil
				}
				var e wireEntry
				if len(u.entries) <= maxEntries {
					u.entries = append(u.entries, wireEntry{})
				}
				err := e.parse(text)
				u.entries[len(u.entries)-1] = e
				return err
			})
		case 2:
			u.timed = true
			return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, &u.elapsed)
		case 3:
			u.allowed = n
		case 4:
			u.denied = n
		}
		return nil
	})
}

func (e *wireEntry) parse(data []byte) error {
	return eachField(data, func(number protowire.Number, text []byte, _ uint64) error {
		switch number {
		case 1:
			e.name = text
		case 2:
			e.value = text
		}
		return nil
	})
}

// eachField calls f with the bytes of each length-delimited field, and with each varint.
func eachField(data []byte, f func(number protowire.Number, text []byte, n uint64) error) error {
	for len(data) > 0 {
		number, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return errWire
		}
		data = data[size:]
		var text []byte
		var n uint64
		switch kind {
		case protowire.BytesType:
			text, size = protowire.ConsumeBytes(data)
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(data)
		default:
			size = protowire.ConsumeFieldValue(number, kind, data)
		}
		if size < 0 {
			return errWire
		}
		data = data[size:]
		if kind != protowire.BytesType && kind != protowire.VarintType {
			continue
		}
		if err := f(number, text, n); err != nil {
			return err
		}
	}
	return nil
}
