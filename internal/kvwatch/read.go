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

// Get opens the bucket.
func (b *Bucket) Get(ctx context.Context) (jetstream.KeyValue, error) {
	return b.JS.KeyValue(ctx, b.Name)
}

// Open opens the bucket, which it upgrades if need be.
func (b *Bucket) Open(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := b.Get(ctx)
	if err == nil {
		b.Upgrade(ctx)
	}
	return kv, err
}

// Create creates the bucket, so that it can be watched, or opens the one that somebody has created
// meanwhile with other settings.
func (b *Bucket) Create(ctx context.Context, c jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	c.Bucket, c.RePublish = b.Name, RePublish(b.Name, b.Changes)
	kv, err := b.JS.CreateKeyValue(ctx, c)
	if errors.Is(err, jetstream.ErrBucketExists) {
		return b.Get(ctx)
	}
	return kv, err
}

// Explain replaces some errors of the library: absent stands for there being no bucket.
func Explain(err, absent error) error {
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return absent
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return fmt.Errorf("JetStream does not answer; is it enabled on the server? (%w)", err)
	}
	return err
}

// IsOutrun reports whether a write failed because another writer was quicker.
func IsOutrun(err error) bool {
	return errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists)
}

// Upgrade adds the setting to a bucket that an older version has created. Where the server refuses,
// watches find changes by their checks.
func (b *Bucket) Upgrade(ctx context.Context) {
	ctx, cancel := b.asking(ctx)
	defer cancel()
	stream, err := b.JS.Stream(ctx, "KV_"+b.Name)
	if err != nil || stream.CachedInfo().Config.RePublish != nil {
		return
	}
	config := stream.CachedInfo().Config
	config.RePublish = RePublish(b.Name, b.Changes)
	_, _ = b.JS.UpdateStream(ctx, config)
}

// All returns all revisions that the bucket holds, oldest first, including marks of deletions.
func (b *Bucket) All(ctx context.Context) (all []jetstream.KeyValueEntry, err error) {
	err = b.each(ctx, 1, func(e *entry) { all = append(all, e) })
	return all, err
}

// page and pageBytes bound one request: a server disconnects clients that are slow to read.
const (
	page      = 256
	pageBytes = 4 << 20
)

var errLost = errors.New("part of the answer was lost")

// each calls take for all revisions from next on.
func (b *Bucket) each(ctx context.Context, next uint64, take func(*entry)) error {
	for more := true; more; {
		var err error
		batch := request{Seq: next, Batch: page, MaxBytes: pageBytes}
		more, err = b.get(ctx, batch, func(e *entry) {
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
func (b *Bucket) newest(ctx context.Context, key string, take func(*entry)) error {
	_, err := b.get(ctx, request{Last: "$KV." + b.Name + "." + key}, take)
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
func (b *Bucket) get(ctx context.Context, r request, take func(*entry)) (more bool, err error) {
	ctx, cancel := b.asking(ctx)
	defer cancel()
	data, err := json.Marshal(r)
	if err != nil {
		return false, err
	}
	inbox := b.Conn.NewInbox()
	sub, err := b.Conn.SubscribeSync(inbox)
	if err != nil {
		return false, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is closed
	if err := b.Conn.PublishRequest("$JS.API.DIRECT.GET.KV_"+b.Name, inbox, data); err != nil {
		return false, err
	}
	for last := uint64(0); ; {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return false, b.asked(ctx, err)
		}
		if final(m.Header, jetstream.SequenceHeader) == "" { // messages have one
			return ended(m, last)
		}
		e, err := entryOf(b.Name, m)
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
