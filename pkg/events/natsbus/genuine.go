package natsbus

import (
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/pkg/events"
)

// answers are the kinds by which workers answer.
var answers = map[events.Kind]events.Kind{
	events.KindReport: events.KindRefresh,
	events.KindLease:  events.KindGrant,
	events.KindHello:  events.KindWelcome,
}

// otherAccount is what a server's own reply subjects begin with, by which an answer goes to another
// account.
const otherAccount = "_R_."

// genuine reports whether a message is from whom its subject names. The server's accounts see to
// the subject; nobody but the worker looks at the rest, so it
//
//   - answers to the sender alone. A sender writes into its message where the answer is to go, and
//     a worker may publish where the sender may not. Where a sender has an account of its own, the
//     server has put a reply subject of its own in place of that, which leads back into the
//     sender's account; no client may name one;
//   - takes nothing in the name of an epoch that is not the sender's: its numbers would make the
//     true one's reports look like repeats.
//
// What is not genuine is dropped without a word, as a message that never arrived would be.
func (w *Worker) genuine(kind events.Kind, m *nats.Msg) bool {
	name, ok := w.sender(kind, m.Subject)
	if !ok || m.Reply != w.ns+"."+answers[kind].String()+".v1."+name && !strings.HasPrefix(m.Reply, otherAccount) {
		return false
	}
	credential, text, both := strings.Cut(name, ".")
	if !both {
		return true
	}
	epoch, err := strconv.ParseUint(text, 16, 64)
	said, ok := events.PeekEpoch(m.Data)
	return err == nil && ok && epoch == said && events.IsEpochOf(credential, epoch)
}

// sender is the name of the checker in a subject.
func (w *Worker) sender(kind events.Kind, subject string) (name string, ok bool) {
	name, ok = strings.CutPrefix(subject, w.ns+"."+kind.String()+".v")
	if ok {
		_, name, ok = strings.Cut(name, ".") // the format
	}
	if ok && kind != events.KindHello {
		_, name, ok = strings.Cut(name, ".") // the shard
	}
	return name, ok && checkChecker(name) == nil
}
