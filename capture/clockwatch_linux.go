package capture

import "golang.org/x/sys/unix"

// readClocks reads CLOCK_REALTIME, which stamps packets, and CLOCK_MONOTONIC.
func readClocks() clocks {
	return clocks{before: readClock(unix.CLOCK_MONOTONIC), real: readClock(unix.CLOCK_REALTIME),
		after: readClock(unix.CLOCK_MONOTONIC)}
}

func readClock(id int32) int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(id, &t) // fails for clocks that do not exist
	return t.Nano()
}
