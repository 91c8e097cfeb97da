package servers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// natsLog is a nats-server's logger. The server reports a failed start nowhere else, so it keeps
// the first fatal one.
type natsLog struct {
	to *slog.Logger // nil: to nobody

	mu    sync.Mutex
	fatal error
}

// failure returns what the server could not start for, or nil. It is errPortTaken if another
// process has the port.
func (l *natsLog) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

func (l *natsLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.log(slog.LevelError, text)
	err := errors.New(text)
	if strings.Contains(text, "address already in use") {
		err = fmt.Errorf("%w: %s", errPortTaken, text)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == nil {
		l.fatal = err
	}
}

func (l *natsLog) Noticef(format string, v ...any) { l.log(slog.LevelInfo, fmt.Sprintf(format, v...)) }
func (l *natsLog) Warnf(format string, v ...any)   { l.log(slog.LevelWarn, fmt.Sprintf(format, v...)) }
func (l *natsLog) Errorf(format string, v ...any)  { l.log(slog.LevelError, fmt.Sprintf(format, v...)) }

// Debugf and Tracef are never called, as the server is started without debugging.
func (l *natsLog) Debugf(string, ...any) {}
func (l *natsLog) Tracef(string, ...any) {}

func (l *natsLog) log(level slog.Level, text string) {
	if l.to != nil {
		l.to.Log(context.Background(), level, text)
	}
}
