package check

import "github.com/offpath-io/offpath/pkg/identity"

// noteDenied tells who wants to know that so many decisions about a key, as counters have it, were
// denials.
func (l *Limiter) noteDenied(key string, decisions int64) {
	if f := l.checker.o.OnDenied; f != nil {
		f(l.name, key, decisions)
	}
}

// noteBarred is that of a request that a rule bars, before its key was made.
func (a *evaluation) noteBarred(attrs identity.Attributes) {
	l, r := a.bar.limiter, a.bar.limits.rule
	if l.checker.o.OnDenied == nil {
		return
	}
	if text, ok := l.checker.appendKey(a.text, r, attrs); ok {
		l.noteDenied(textAt(text, len(a.text), len(text)), 1)
		a.text = text[:len(a.text)] // what it has grown to is of use
	}
}
