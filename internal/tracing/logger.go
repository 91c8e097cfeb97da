package tracing

import (
	"errors"
	"log/slog"
	"net/url"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
)

// logErrors logs the errors of the OpenTelemetry library to log, without the values that it adds:
// it would print the token in an environment variable that it cannot parse. The setting is global.
func logErrors(log *slog.Logger) { otel.SetLogger(logr.New(sink{log})) }

// sink logs errors only: other messages are for the library's developers.
type sink struct{ log *slog.Logger }

func (sink) Init(logr.RuntimeInfo)            {}
func (sink) Enabled(int) bool                 { return false }
func (sink) Info(int, string, ...any)         {}
func (s sink) WithValues(...any) logr.LogSink { return s }
func (s sink) WithName(string) logr.LogSink   { return s }

// Error logs a message and its error, unless that quotes a setting.
func (s sink) Error(err error, what string, _ ...any) {
	if _, quotes := errors.AsType[url.EscapeError](err); quotes {
		err = errors.New("invalid URL escape")
	}
	s.log.Warn("traces: an environment variable (OTEL_…) is ignored", "what", what, "error", err)
}
