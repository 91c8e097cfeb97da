package kvwatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// RePublish is the setting that a bucket needs to be watched: each write to a key is republished at
// subject.key, in the order of revisions.
func RePublish(bucket, subject string) *jetstream.RePublish {
	return &jetstream.RePublish{Source: "$KV." + bucket + ".>", Destination: subject + ".>"}
}

// Open opens a bucket, which it upgrades if need be.
func Open(
	ctx context.Context, js jetstream.JetStream, bucket, subject string,
) (jetstream.KeyValue, error) {
	kv, err := js.KeyValue(ctx, bucket)
	if err == nil {
		Upgrade(ctx, js, bucket, subject)
	}
	return kv, err
}

// Create creates a bucket that can be watched, or opens the one that somebody has created meanwhile
// with other settings.
func Create(
	ctx context.Context, js jetstream.JetStream, c jetstream.KeyValueConfig, subject string,
) (jetstream.KeyValue, error) {
	c.RePublish = RePublish(c.Bucket, subject)
	kv, err := js.CreateKeyValue(ctx, c)
	if errors.Is(err, jetstream.ErrBucketExists) {
		return js.KeyValue(ctx, c.Bucket)
	}
	return kv, err
}

// IsOutrun reports whether a write failed because another writer was quicker.
func IsOutrun(err error) bool {
	return errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists)
}

// Upgrade adds the setting to a bucket that an older version has created. Where the server refuses,
// watches find changes by their checks.
func Upgrade(ctx context.Context, js jetstream.JetStream, bucket, subject string) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	stream, err := js.Stream(ctx, "KV_"+bucket)
	if err != nil || stream.CachedInfo().Config.RePublish != nil {
		return
	}
	config := stream.CachedInfo().Config
	config.RePublish = RePublish(bucket, subject)
	_, _ = js.UpdateStream(ctx, config)
}

// All returns all revisions that the bucket holds, oldest first, including marks of deletions.
func All(ctx context.Context, conn *nats.Conn, bucket string) (all []jetstream.KeyValueEntry, err error) {
	err = each(ctx, conn, bucket, 1, func(e *entry) { all = append(all, e) })
	return all, err
}

// page and pageBytes bound one request: a server disconnects clients that are slow to read.
const (
	page      = 256
	pageBytes = 4 << 20
)

var errLost = errors.New("part of the answer was lost")

// each calls take for all revisions from next on.
func each(
	ctx context.Context, conn *nats.Conn, bucket string, next uint64, take func(*entry),
) error {
	for more := true; more; {
		var err error
		batch := request{Seq: next, Batch: page, MaxBytes: pageBytes}
		more, err = get(ctx, conn, bucket, batch, func(e *entry) {
			next = e.revision + 1
			take(e)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// newest calls take for the newest revision of a key, if there is one.
func newest(
	ctx context.Context, conn *nats.Conn, bucket, key string, take func(*entry),
) error {
	_, err := get(ctx, conn, bucket, request{Last: "$KV." + bucket + "." + key}, take)
	return err
}

// request is JetStream's request for a direct get: of up to Batch messages from a sequence on, or
// of the last message of a subject.
type request struct {
	Seq      uint64 `json:"seq,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
	Last     string `json:"last_by_subj,omitempty"`
}

// get calls take for the entries of the answer, and returns whether there are more.
func get(
	ctx context.Context, conn *nats.Conn, bucket string, r request, take func(*entry),
) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	data, err := json.Marshal(r)
	if err != nil {
		return false, err
	}
	inbox := conn.NewInbox()
	sub, err := conn.SubscribeSync(inbox)
	if err != nil {
		return false, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is closed
	if err := conn.PublishRequest("$JS.API.DIRECT.GET.KV_"+bucket, inbox, data); err != nil {
		return false, err
	}
	for last := uint64(0); ; {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return false, asked(ctx, err)
		}
		if final(m.Header, jetstream.SequenceHeader) == "" { // messages have one
			return ended(m, last)
		}
		e, err := entryOf(bucket, m)
		if err != nil {
			return false, err
		}
		if r.Batch == 0 {
			take(e)
			return false, nil
		}
		if final(m.Header, jetstream.LastSequenceHeader) != strconv.FormatUint(last, 10) {
			return false, errLost
		}
		last = e.revision
		take(e)
	}
}

// ended reads the message after the last of a batch.
func ended(m *nats.Msg, last uint64) (more bool, err error) {
	switch status := m.Header.Get("Status"); status {
	case "204":
		if final(m.Header, jetstream.LastSequenceHeader) != strconv.FormatUint(last, 10) {
			return false, errLost
		}
		return last > 0 && final(m.Header, "Nats-Num-Pending") != "0", nil
	case "404":
		return false, nil
	case "503":
		return false, nats.ErrNoResponders
	default:
		return false, fmt.Errorf("the server answers %s %s", status, m.Header.Get("Description"))
	}
}

// entry is one revision of a key.
type entry struct {
	bucket, key string
	value       []byte
	revision    uint64
	created     time.Time
	op          jetstream.KeyValueOp
}

func (e *entry) Bucket() string                  { return e.bucket }
func (e *entry) Key() string                     { return e.key }
func (e *entry) Value() []byte                   { return e.value }
func (e *entry) Revision() uint64                { return e.revision }
func (e *entry) Created() time.Time              { return e.created }
func (e *entry) Delta() uint64                   { return 0 }
func (e *entry) Operation() jetstream.KeyValueOp { return e.op }

// entryOf reads the headers that the server adds to a message of the bucket's stream.
func entryOf(bucket string, m *nats.Msg) (*entry, error) {
	key, ok := strings.CutPrefix(final(m.Header, jetstream.SubjectHeader), "$KV."+bucket+".")
	revision, err := strconv.ParseUint(final(m.Header, jetstream.SequenceHeader), 10, 64)
	created, wrong := time.Parse(time.RFC3339Nano, final(m.Header, "Nats-Time-Stamp"))
	if !ok || err != nil || wrong != nil {
		return nil, errors.New("not a message of the bucket")
	}
	e := &entry{bucket: bucket, key: key, value: m.Data, revision: revision, created: created}
	switch {
	case m.Header.Get("KV-Operation") == "DEL", m.Header.Get(jetstream.MarkerReasonHeader) == "Remove":
		e.op = jetstream.KeyValueDelete
	case m.Header.Get("KV-Operation") == "PURGE", m.Header.Get(jetstream.MarkerReasonHeader) != "":
		e.op = jetstream.KeyValuePurge
	}
	return e, nil
}

// final is the last value of a header: the server adds its own after those of the writer.
func final(h nats.Header, name string) string {
	if all := h.Values(name); len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}
