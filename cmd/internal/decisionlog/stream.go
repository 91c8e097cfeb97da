package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Stream is the sink that publishes to a stream in NATS JetStream, as messages of one or more lines
// each.
type Stream struct {
	conn    func() *nats.Conn
	config  jetstream.StreamConfig
	subject string
	sender  string
	others  bool // make the stream
}

// DefaultBytes and DefaultAge bound a stream of which nobody has said otherwise.
const (
	DefaultBytes = 256 << 20
	DefaultAge   = 7 * 24 * time.Hour
)

// StreamOptions say which stream.
type StreamOptions struct {
	// Namespace is the fleet's: the stream is NAMESPACE-denied, and takes NAMESPACE.denied.v1.>.
	Namespace string
	// Checker is the last token of the subject that this checker publishes to.
	Checker string
	// MaxBytes and MaxAge bound the stream if this checker creates it: the oldest goes first.
	MaxBytes int64
	MaxAge   time.Duration
	// OthersMake says that this checker does not create it, since accounts would not let it: who
	// may create a stream may have it publish to any subject.
	OthersMake bool
}

// NewStream returns the sink, which asks for the connection whenever it writes.
func NewStream(conn func() *nats.Conn, o StreamOptions) *Stream {
	return &Stream{
		conn: conn, subject: subjects(o.Namespace) + o.Checker, sender: o.Checker, others: o.OthersMake,
		config: configOf(o.Namespace, o.MaxBytes, o.MaxAge),
	}
}

// subjects is what the subjects of a namespace begin with.
func subjects(namespace string) string { return namespace + ".denied.v1." }

func configOf(namespace string, bytes int64, age time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: namespace + "-denied", Description: "Who was turned away by offpath, as lines of JSON.",
		Subjects: []string{subjects(namespace) + ">"}, Discard: jetstream.DiscardOld, MaxBytes: bytes, MaxAge: age,
		Duplicates: min(2*time.Minute, age),
		// For who listens as it happens, and may be in another account than the checkers.
		RePublish: &jetstream.RePublish{Source: subjects(namespace) + ">", Destination: namespace + ".stored.v1.denied.>"},
	}
}

// Make creates the stream of a namespace with the default bounds, for checkers that may not. One
// that is there is left as it is. What a server answers takes as long as ctx lets it.
func Make(ctx context.Context, conn *nats.Conn, namespace string) error {
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("decision log: %w", err)
	}
	config := configOf(namespace, DefaultBytes, DefaultAge)
	// Asked first, as creating it anew with other bounds would be an error.
	if _, err = js.Stream(ctx, config.Name); errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err = js.CreateStream(ctx, config); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody else has made it
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", config.Name, err)
	}
	return nil
}

// Name is "nats".
func (*Stream) Name() string { return "nats" }

// Write publishes one message, and waits until it is stored. The number lets the stream know a
// repeat. A stream that is missing is created, unless others make it; one that is there is left as
// it is.
func (s *Stream) Write(ctx context.Context, number uint64, lines []byte) error {
	js, err := jetstream.New(s.conn())
	if err != nil {
		return fmt.Errorf("stream %s: %w", s.config.Name, err)
	}
	err = s.publish(ctx, js, number, lines)
	if !s.others && (errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders)) {
		_, err = js.CreateStream(ctx, s.config)
		if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			err = s.publish(ctx, js, number, lines)
		}
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", s.config.Name, err)
	}
	return nil
}

func (s *Stream) publish(ctx context.Context, js jetstream.JetStream, number uint64, lines []byte) error {
	_, err := js.PublishMsg(ctx, &nats.Msg{Subject: s.subject, Data: lines},
		jetstream.WithMsgID(fmt.Sprintf("%s-%d", s.sender, number)), jetstream.WithExpectStream(s.config.Name), jetstream.WithRetryAttempts(0))
	return err
}
