package aggregate

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Loss is a store's loss of a shard's data, as it was found out: somebody remembered a later state
// than the shard had. The zero Loss is one of which nothing is known.
type Loss struct {
	Remembered, Found State
}

// Folds is how many folds are lost, at least, of how many that were remembered since the shard's
// generation began; 0 of 0 if that is not known. A shard that came back as it was before an earlier
// generation has lost all of this one, and more.
func (l Loss) Folds() (lost, of uint64) {
	of = l.Remembered.Version
	if l.Found.Generation == l.Remembered.Generation {
		return of - min(l.Found.Version, of), of
	}
	return of, of
}

func (l Loss) String() string {
	switch lost, of := l.Folds(); {
	case l.Remembered == State{}:
		return "how much is not known"
	case lost == of:
		return fmt.Sprintf("all of %d folds", of)
	default:
		return fmt.Sprintf("the last %d of %d folds", lost, of)
	}
}

// ShardLoss is the loss of one shard's data that a worker has heard of.
type ShardLoss struct {
	Loss
	Shard uint32
	// At is when it was found out, by the store's time in Unix nanoseconds; 0 if there was none.
	At int64
}

// losses keeps the last loss.
type losses struct {
	mu   sync.Mutex
	last ShardLoss
}

func (l *losses) latest() ShardLoss {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// saw takes note of the state in which a store has left a shard, after a fold that had seen the
// state before. The first time that this is of a generation that began because data was lost, it
// says so.
func (w *Worker) saw(s *shard, before, state State, loss Loss) {
	s.state.Lock()
	was := s.state.told
	if was.Less(state) {
		s.state.told = state
	}
	s.state.Unlock()
	if was.Generation < state.Generation {
		select {
		case w.newGeneration <- struct{}{}:
		default:
		}
	}
	remembered := was.Generation
	if before.Generation < state.Generation {
		remembered = max(remembered, before.Generation)
	}
	if was.Generation >= state.Generation || remembered == 0 {
		return
	}
	lost, _ := loss.Folds()
	w.counters.losses.Add(1)
	w.counters.lostFolds.Add(int64(lost))
	at := time.UnixMicro(int64(state.Generation))
	w.losses.mu.Lock()
	if w.losses.last.At <= at.UnixNano() { // and not one of long ago, of which it is told only now
		w.losses.last = ShardLoss{loss, s.number, at.UnixNano()}
	}
	w.losses.mu.Unlock()
	w.o.Log.Error("the store has lost data: counts of this shard begin again from what is left",
		slog.Int("shard", int(s.number)), slog.String("lost", loss.String()), slog.Time("found_out", at),
		slog.Uint64("remembered_version", loss.Remembered.Version), slog.Uint64("found_version", loss.Found.Version))
}
