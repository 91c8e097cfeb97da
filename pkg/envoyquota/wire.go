package envoyquota

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Reports are read here, and not by the generated code, for one reason: that refuses a whole message for one byte that is not UTF-8. Envoy
// makes bucket ids of request headers, which may hold such bytes, and reports every bucket again and again: one such request would
// end the stream, and each one after it.

// wireReports is a RateLimitQuotaUsageReports.
type wireReports struct {
	domain string
	usages []wireUsage
}

// wireUsage is a BucketQuotaUsage. Its texts are part of the message.
type wireUsage struct {
	entries         []wireEntry
	allowed, denied uint64
	elapsed         *durationpb.Duration
}

type wireEntry struct{ name, value []byte }

var errWire = errors.New("not the bytes of a message")

// parseReports reads a message.
func parseReports(data []byte) (r wireReports, err error) {
	err = eachField(data, func(number protowire.Number, text []byte, _ uint64) error {
		switch number {
		case 1:
			r.domain = string(text)
		case 2:
			r.usages = append(r.usages, wireUsage{})
			return r.usages[len(r.usages)-1].parse(text)
		}
		return nil
	})
	if err != nil {
		return wireReports{}, status.Errorf(codes.InvalidArgument, "a message is no RateLimitQuotaUsageReports: %v", err)
	}
	return r, nil
}

func (u *wireUsage) parse(data []byte) error {
	return eachField(data, func(number protowire.Number, text []byte, n uint64) error {
		switch number {
		case 1:
			return eachField(text, func(number protowire.Number, text []byte, _ uint64) error {
				if number != 1 {
					return nil
				}
				var e wireEntry
				u.entries = append(u.entries, e)
				return u.entries[len(u.entries)-1].parse(text)
			})
		case 2:
			u.elapsed = new(durationpb.Duration)
			return proto.Unmarshal(text, u.elapsed)
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

// eachField calls f for each field with a length, with its bytes, and for each varint.
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
