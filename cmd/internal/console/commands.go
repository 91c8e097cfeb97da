package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/status"
)

// Commands ask over NATS, <ns>.console.v1.<what>, and one of the aggregators answers. They need no
// token: who may publish there is for the server's accounts to say, as for everything else that is
// done over NATS.

// consoles is the queue group that shares the questions.
const consoles = "consoles"

// Question is what a command asks.
type Question struct {
	Rule string      `json:"rule,omitempty"`
	Key  status.Text `json:"key,omitempty"`
	Who  Who         `json:"who,omitzero"`
	// Seconds is how long a block lasts.
	Seconds float64 `json:"seconds,omitempty"`
}

// Answer is what it is answered: an error, or what was asked for.
type Answer struct {
	Error string          `json:"error,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// ErrNobody says that no aggregator answers.
var ErrNobody = errors.New("no aggregator answers")

func commandSubject(namespace, what string) string { return namespace + ".console.v1." + what }

// Ask asks one of the aggregators, and reads its answer to value, within AskTimeout. What is
// "view", for a View; "get" for a list of KeyViews; "reset" for a KeyView; "block" for a BlockView;
// "unblock" for nothing. With ErrUnwritten there is a value, too.
func Ask(ctx context.Context, conn *nats.Conn, namespace, what string, q Question, value any) error {
	data, err := json.Marshal(q)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	m, err := conn.RequestWithContext(asking, commandSubject(namespace, what), data)
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return fmt.Errorf("%w in namespace %q", ErrNobody, namespace)
	case err != nil:
		return err
	}
	var a Answer
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if a.Value != nil {
		if err := json.Unmarshal(a.Value, value); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
	}
	if a.Error != "" {
		return asError(a.Error)
	}
	return nil
}

// asError makes an error of an answer's text; those that callers tell apart are what they were.
func asError(text string) error {
	for _, known := range []error{blocks.ErrNoBlock, ErrUnwritten} {
		if rest, ok := strings.CutPrefix(text, known.Error()); ok {
			return fmt.Errorf("%w%s", known, rest)
		}
	}
	return errors.New(text)
}

// mostAnswered bounds the questions that are answered at a time.
const mostAnswered = 16

// serveCommands answers until ctx is done.
func (c *Console) serveCommands(ctx context.Context) error {
	messages := make(chan *nats.Msg, 256)
	subject := commandSubject(c.o.Namespace, "*")
	sub, err := c.o.Conn.ChanQueueSubscribe(subject, consoles, messages)
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is closed
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, mostAnswered)
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-messages:
			if m.Reply == "" {
				// Nobody waits for an answer: it is one itself, which somebody who may give no
				// commands had the server deliver here, such as a value of a bucket.
				continue
			}
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				c.answer(ctx, m)
			})
		}
	}
}

func (c *Console) answer(ctx context.Context, m *nats.Msg) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	value, err := c.answerTo(ctx, m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], m.Data)
	data, err := encodeAnswer(value, err, int(c.o.Conn.MaxPayload()))
	if err != nil {
		data, err = encodeAnswer(nil, err, math.MaxInt)
	}
	if err == nil {
		_ = m.Respond(data) // who asked has gone
	}
}

// encodeAnswer makes an answer of what was asked for, and of why it was not done. A view that is
// too large is made shorter.
func encodeAnswer(value any, failed error, most int) ([]byte, error) {
	var a Answer
	var err error
	if failed != nil {
		a.Error = failed.Error()
	}
	for {
		if failed == nil || errors.Is(failed, ErrUnwritten) {
			if a.Value, err = json.Marshal(value); err != nil {
				return nil, err
			}
		}
		data, err := json.Marshal(a)
		if err != nil || len(data) <= most {
			return data, err
		}
		v, ok := value.(View)
		if !ok || !v.halve() {
			return nil, fmt.Errorf("the answer has %d bytes, and the NATS server takes %d", len(data), most)
		}
		value = v
	}
}

func (c *Console) answerTo(ctx context.Context, what string, data []byte) (any, error) {
	var q Question
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return nil, err
	}
	q.Who = Who{Name: cut(q.Who.Name), From: cut(q.Who.From)}.ByCommand()
	q.Rule = cut(q.Rule)
	switch what {
	case "block":
		return c.blockFor(ctx, q.Who, &order{Rule: q.Rule, Seconds: q.Seconds, key: string(q.Key)})
	case "unblock":
		return c.unblockFor(ctx, q.Who, &order{Rule: q.Rule, key: string(q.Key)})
	case "view":
		return c.View().short(), nil
	case "get":
		return c.Look(ctx, q.Rule, string(q.Key))
	case "reset":
		return c.Reset(ctx, q.Who, q.Rule, string(q.Key))
	}
	return nil, fmt.Errorf("aggregators of version %s know no %.20q", c.part.Version, what)
}

// mostText bounds, in bytes, the texts that a command brings along: a rule's name has 128 at most,
// and the audit log is shown to everybody.
const mostText = 256

func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), mostText)], "") }

// AskTimeout is how long a command waits for an answer.
const AskTimeout = 10 * time.Second
