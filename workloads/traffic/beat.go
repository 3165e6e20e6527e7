package traffic

import (
	"io"
	"time"
)

// BeatEvery is the time between two beats of a process.
const BeatEvery = 200 * time.Millisecond

// Beat writes a byte to the channel every BeatEvery until a write fails. A
// process that a signal has stopped, or that gets no processor, writes none.
func Beat(channel io.Writer) {
	for {
		if _, err := channel.Write([]byte{'.'}); err != nil {
			return // the step has ended, or nothing reads
		}
		time.Sleep(BeatEvery)
	}
}
