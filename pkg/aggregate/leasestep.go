package aggregate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/offpath-io/offpath/pkg/events"
)

// leaseHand is what one goroutine works with.
type leaseHand struct {
	id       uint64 // of the worker
	folder   leaseFolder
	requests []*leaseRequest
	grant    events.Grant
	waits    []uint64 // by key of the fold, in ms
	counts   []int64
}

func (w *Worker) newLeaseHand() *leaseHand {
	return &leaseHand{id: w.o.Bus.ID(), folder: newLeaseFolder(int64(w.o.Tolerance))}
}

// stepLeases carries out the lease requests of one shard that are due, or, to drain it, all there are. It
// returns when something is due next, which may be never.
func (w *Worker) stepLeases(ctx context.Context, s *shard, h *leaseHand, clock func() int64, drain bool) int64 {
	for {
		if due := s.leases.due(); due == never || due > clock() && !drain {
			return due
		}
		h.requests = s.leases.take(h.requests[:0])
		w.lease(ctx, s, h, h.requests, clock)
		s.leases.done(h.requests)
		clear(h.requests)
	}
}

// lease carries requests out. As with reports, a fold that the store cannot take for what is in it is
// split in halves, until the one request is found that holds up the others.
func (w *Worker) lease(ctx context.Context, s *shard, h *leaseHand, requests []*leaseRequest, clock func() int64) {
	if len(requests) == 0 {
		return
	}
	err := w.grant(ctx, s, h, requests, clock)
	switch {
	case err == nil:
	case errors.Is(err, ErrFold) && len(requests) > 1:
		half := len(requests) / 2
		w.lease(ctx, s, h, requests[:half], clock)
		w.lease(ctx, s, h, requests[half:], clock)
	case errors.Is(err, ErrFold) && w.probeShard(ctx, s, w.latest()):
		r := requests[0]
		if isTime(&s.toldRefusalAt, w.latest()) {
			w.o.Log.Warn("a lease request that the store cannot take is given up",
				slog.Int("shard", int(s.number)), slog.String("checker", strconv.FormatUint(r.epoch, 16)), slog.Any("error", err))
		}
		w.counters.leasesRefused.Add(1)
		w.sendGrant(r.reply, &events.Grant{Epoch: r.epoch, Shard: s.number, Sequence: r.sequence, Error: err.Error()})
	default:
		w.counters.leasesDropped.Add(int64(len(requests)))
	}
}

// grant folds requests, has the store carry the fold out, and answers.
func (w *Worker) grant(ctx context.Context, s *shard, h *leaseHand, requests []*leaseRequest, clock func() int64) error {
	fold := h.folder.make(s.number, requests, s.seen(), w.clock.fleet(clock()))
	w.revisions.apply(fold.Rules, fold.Now)
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	leased, err := w.o.Store.Lease(ctx, fold)
	if err == nil {
		err = checkLeased(fold, &leased)
	}
	w.noteLease(s, err)
	if err != nil {
		return err
	}
	w.saw(s, fold.Seen, leased.State, leased.Loss)
	w.counters.leaseFolds.Add(1)
	for _, o := range leased.Overflow {
		if w.o.OnUnleased != nil {
			w.o.OnUnleased(fold.Rules[o.Rule].Name, o.Keys)
		}
	}
	for i := range leased.Keys {
		w.counters.permitsGranted.Add(leased.Keys[i].New)
		w.counters.permitsReturned.Add(leased.Keys[i].Returned)
	}
	h.reckonWaits(fold, &leased)
	for _, r := range requests {
		w.counters.leasesAnswered.Add(1)
		w.sendGrant(r.reply, h.grantOf(r, &leased))
	}
	return nil
}

// checkLeased is whether a store has answered what it was asked.
func checkLeased(fold *LeaseFold, leased *Leased) error {
	if len(leased.Keys) != len(fold.Keys) {
		return fmt.Errorf("%w: leases of %d keys for %d", ErrFold, len(leased.Keys), len(fold.Keys))
	}
	for i := range leased.Keys {
		if len(leased.Keys[i].Asks) != len(fold.Keys[i].Asks) {
			return fmt.Errorf("%w: not every ask is answered", ErrFold)
		}
	}
	return nil
}

// noteLease logs when a shard begins to refuse lease folds and when it takes them again. What fails for its
// content says nothing of the shard.
func (w *Worker) noteLease(s *shard, err error) {
	if err != nil {
		w.counters.leaseErrors.Add(1)
	}
	if errors.Is(err, ErrFold) {
		return
	}
	was := s.refused.Swap(err != nil)
	switch {
	case err != nil && !was:
		w.o.Log.Warn("the store grants no permits", slog.Int("shard", int(s.number)), slog.Any("error", err))
	case err == nil && was:
		w.o.Log.Info("the store grants permits again", slog.Int("shard", int(s.number)))
	}
}
