package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// loopbackIndex is the index of lo in every namespace.
const loopbackIndex = 1

// ProbeNetem tries netem once per process, in a namespace of its own. It returns nil if netem
// works, else the kernel's error.
var ProbeNetem = sync.OnceValue(func() error {
	return probeQdisc(func(b *Batch) {
		b.SetNetem("lo", loopbackIndex, Root, Handle(1, 0), Netem{Delay: time.Millisecond, Limit: 10})
	})
})

// ProbeTBF tries the token bucket filter once per process, as ProbeNetem does.
var ProbeTBF = sync.OnceValue(func() error {
	return probeQdisc(func(b *Batch) {
		b.SetTBF("lo", loopbackIndex, Root, Handle(1, 0), TBF{Rate: 1e9, Burst: 100_000, Limit: 100_000})
	})
})

func probeQdisc(set func(*Batch)) error {
	ns, err := NewNamespace()
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(func() error { return Try(set) })
}

// Try makes requests in the calling thread's network namespace. Its error has the kernel's words alone, for
// those who ask what the kernel can do.
func Try(set func(*Batch)) error {
	conn, err := Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	batch := NewBatch("probe", nil)
	set(batch)
	var refused *RequestError
	if err := conn.Do(batch); !errors.As(err, &refused) {
		return err
	}
	if refused.Detail != "" {
		return fmt.Errorf("%s (%w)", refused.Detail, refused.Errno)
	}
	return refused.Errno
}

// CheckClock compares the packet scheduler's clock tick with the tick that this package assumes. A
// wrong tick would set wrong delays or none.
var CheckClock = sync.OnceValue(func() error {
	text, err := os.ReadFile("/proc/self/net/psched")
	if err != nil {
		return fmt.Errorf("read packet scheduler clock: %w", err)
	}
	return checkClock(string(text))
})

// checkClock parses /proc/net/psched: nanoseconds per microsecond and nanoseconds per tick, in
// hexadecimal, and two historical fields.
func checkClock(text string) error {
	var perMicrosecond, perTick int64
	if _, err := fmt.Sscanf(text, "%x %x", &perMicrosecond, &perTick); err != nil {
		return fmt.Errorf("read packet scheduler clock %q: %w", strings.TrimSpace(text), err)
	}
	if perMicrosecond != 1000 || time.Duration(perTick) != tick {
		return fmt.Errorf("packet scheduler clock: a tick is %d/%d us here, want %d/1000", perTick,
			perMicrosecond, tick)
	}
	return nil
}
