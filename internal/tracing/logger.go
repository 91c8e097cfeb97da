package tracing

import (
	"errors"
	"log/slog"
	"net/url"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
)

// hear lets what the library complains of go to log, without the values that it adds: of an environment variable that it cannot read, it
// would print a token on stderr. It is the whole process' setting.
func hear(log *slog.Logger) { otel.SetLogger(logr.New(sink{log})) }

// sink takes errors alone: the rest is for the library's own developers.
type sink struct{ log *slog.Logger }

func (sink) Init(logr.RuntimeInfo)            {}
func (sink) Enabled(int) bool                 { return false }
func (sink) Info(int, string, ...any)         {}
func (s sink) WithValues(...any) logr.LogSink { return s }
func (s sink) WithName(string) logr.LogSink   { return s }

// Error logs what could not be done, and why, if that quotes nothing.
func (s sink) Error(err error, what string, _ ...any) {
	if _, quotes := errors.AsType[url.EscapeError](err); quotes {
		err = errors.New("invalid URL escape")
	}
	s.log.Warn("traces: a setting of the environment (OTEL_…) is passed over", "what", what, "error", err)
}
