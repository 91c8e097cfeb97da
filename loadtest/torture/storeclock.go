package torture

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/loadtest/torture/found"
)

//go:embed preload/clock.c
var storeClock string

// buildStoreClock compiles what sets Redis' clock. It needs a C compiler, as the race detector
// does, and a system that loads such a library before others.
func (f *fleet) buildStoreClock(ctx context.Context) error {
	source := filepath.Join(f.dir, "storeclock.c")
	if err := os.WriteFile(source, []byte(storeClock), 0o600); err != nil {
		return err
	}
	compile := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-O2", "-o", f.clockLibrary(), source)
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("torture: a C compiler is needed for Redis' clock: %w\n%s", err, out)
	}
	return f.setStoreClock(0)
}

func (f *fleet) clockLibrary() string   { return filepath.Join(f.dir, "storeclock.so") }
func (f *fleet) storeClockFile() string { return filepath.Join(f.dir, "storeclock") }

// storeOptions has Redis go by that clock. The thread of its allocator would compute by it when to
// wake, and wait by the machine's: behind that one, it would use a whole core.
func (f *fleet) storeOptions(args ...string) servers.RedisOptions {
	return servers.RedisOptions{
		Args: append(args, "--jemalloc-bg-thread", "no"),
		Env:  []string{"LD_PRELOAD=" + f.clockLibrary(), "OFFPATH_TORTURE_CLOCK=" + f.storeClockFile()},
	}
}

// setStoreClock sets the clock of all nodes. They have the file mapped, so it is written in place.
func (f *fleet) setStoreClock(ahead time.Duration) error {
	file, err := os.OpenFile(f.storeClockFile(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("torture: %w", err)
	}
	defer file.Close()
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead.Microseconds())), 0)
	return err
}

// setStoreClock sets the clock of all machines with Redis. The fault lasts until that is on record.
func (s *storm) setStoreClock(ctx context.Context, f fault, run *found.Fault) error {
	run.Target = "redis"
	if !s.takeRedis() {
		return errBusy
	}
	defer s.releaseRedis()
	release := s.witnesses(ctx)
	if release == nil {
		return errBusy
	}
	defer release()
	ahead := f.step()
	run.Detail = fmt.Sprintf("is %v ahead, set by %v", ahead, ahead-s.storeAhead)
	s.noteStoreClock(time.Now(), ahead)
	return s.fleet.setStoreClock(ahead)
}

func (s *storm) noteStoreClock(now time.Time, ahead time.Duration) {
	s.storeShown = later(s.storeShown, now.Add(s.storeAhead))
	s.storeAhead = ahead
}

// storeRepeats says whether Redis' clock shows times that it has shown before.
func (s *storm) storeRepeats(now time.Time) bool { return now.Add(s.storeAhead).Before(s.storeShown) }
