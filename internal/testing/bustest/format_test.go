package bustest

import (
	"context"
	"errors"
	"testing"

	natsgo "github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/events"
)

// TestOlderPartsHearNoNewerFormats: what has subscribed to the first version of reports and alarms
// gets none of a newer format, to whichever aggregator; parts of this build get both.
func TestOlderPartsHearNoNewerFormats(t *testing.T) {
	n := newNATS(serverstest.NATS(t).URL())
	worker, checker := n.Worker(t), n.Checker(t, "c")
	var toWorker, toChecker heard
	noError(t, worker.Attend([]bool{true}, []bool{true}))
	defer serve(t, func(ctx context.Context) error {
		return worker.Serve(ctx, func(kind events.Kind, data []byte, _ func([]byte) error) { toWorker.note(kind, data) })
	})()
	defer serve(t, func(ctx context.Context) error {
		return checker.Listen(ctx, func(kind events.Kind, data []byte) { toChecker.note(kind, data) })
	})()
	conn := n.connect(t, "older")
	older := make(chan *natsgo.Msg, 100)
	for _, subject := range []string{"test.report.v1.>", "test.alarm.v1.>"} {
		must(conn.ChanSubscribe(subject, older))(t)
	}
	noError(t, conn.Flush())
	send := func(format uint32) {
		t.Helper()
		report := must(events.Append(nil, &events.Report{Epoch: 1, Sequence: 1, Format: format}))(t)
		alarm := must(events.Append(nil, &events.Alarm{Shard: 0, Version: 1, Format: format}))(t)
		noError(t, errors.Join(checker.Report(0, false, report), checker.Report(0, true, report), worker.Alarm(0, alarm)))
	}
	wait(t, "parts of this build hear both", func() bool {
		send(events.FormatRefunds)
		return toWorker.count(events.KindReport) >= 4 && toChecker.count(events.KindAlarm) >= 2
	})
	noError(t, conn.Flush())
	if len(older) != 0 {
		t.Errorf("older parts hear %d messages of a newer format", len(older))
	}
	wait(t, "older parts hear the older format", func() bool { send(0); return len(older) >= 3 })
}
