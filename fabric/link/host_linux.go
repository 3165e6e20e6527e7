package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/usage"
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

// lockFile takes an exclusive lock, until unlock or the process's end. unlock is never nil. Other users
// could hold the lock for ever if they could open the file.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return func() {}, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	unlock = func() { _ = unix.Close(fd) }         // closing unlocks; no data was written
	if err := unix.Fchmod(fd, 0o600); err != nil { // earlier versions let others open it
		return unlock, &os.PathError{Op: "restrict to its owner", Path: path, Err: err}
	}
	for {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return unlock, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return unlock, &os.PathError{Op: "lock", Path: path, Err: err}
		}
		select {
		case <-ctx.Done():
			return unlock, context.Cause(ctx)
		case <-time.After(lockPause):
		}
	}
}

// mostStored is the size of the largest file that readOwn reads, room for thousands of entries.
const mostStored = 4 << 20

// readOwn reads a regular file that belongs to this user. If everybody can write to the directory, another
// user could have put a file there with bursts that are too small, or a FIFO, for which an open would wait.
func readOwn(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var facts unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &facts); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if facts.Mode&unix.S_IFMT != unix.S_IFREG || int(facts.Uid) != os.Geteuid() || facts.Size > mostStored {
		return nil, fmt.Errorf("read %s: want a regular file of user %d, of at most %d bytes", path,
			os.Geteuid(), mostStored)
	}
	return io.ReadAll(io.LimitReader(file, mostStored))
}

// sortEntries gives the entries a fixed order in the file.
func sortEntries(entries []cachedEntry) {
	slices.SortFunc(entries, func(a, b cachedEntry) int {
		return cmp.Or(cmp.Compare(a.Kernel, b.Kernel), cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.CPUs, b.CPUs),
			cmp.Compare(a.Qdisc, b.Qdisc), cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.MTU, b.MTU))
	})
}

// takenByOthers is the load of this host: what a hypervisor took, and what processes other than this one
// used outside interrupts.
func takenByOthers() (share func() float64) {
	before := readProcessors()
	return func() float64 {
		now := readProcessors()
		return max(0, now.others-before.others) / max(now.total-before.total, 0.01)
	}
}

// processors is the time of all CPUs together, in seconds.
type processors struct{ others, total float64 }

func readProcessors() (p processors) {
	var own unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &own) != nil {
		return p
	}
	cpus := usage.ReadCPUs("/proc")
	return processors{others: cpus.Work + cpus.Steal - float64(own.Utime.Nano()+own.Stime.Nano())/1e9,
		total: cpus.Total}
}
