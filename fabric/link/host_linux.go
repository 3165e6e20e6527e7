package link

import (
	"cmp"
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func readHostFacts() (hostFacts, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return hostFacts{}, err
	}
	facts := hostFacts{Kernel: unix.ByteSliceToString(uts.Release[:]), CPUs: runtime.NumCPU()}
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return hostFacts{}, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); name == "model name" || name == "CPU part" { // x86 and arm64
			facts.CPU = strings.TrimSpace(value)
			break
		}
	}
	return facts, nil
}

// lockPause is the time between attempts to get the file lock.
const lockPause = 10 * time.Millisecond

// lockFile takes an exclusive lock, until unlock or the process's end.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	for {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = unix.Close(fd) }, nil // closing unlocks; no data was written
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(&os.PathError{Op: "lock", Path: path, Err: err}, unix.Close(fd))
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), unix.Close(fd))
		case <-time.After(lockPause):
		}
	}
}

// sortEntries gives the entries a fixed order in the file.
func sortEntries(entries []cachedEntry) {
	slices.SortFunc(entries, func(a, b cachedEntry) int {
		return cmp.Or(cmp.Compare(a.Kernel, b.Kernel), cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.CPUs, b.CPUs),
			cmp.Compare(a.Qdisc, b.Qdisc), cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.MTU, b.MTU))
	})
}
