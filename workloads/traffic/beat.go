package traffic

import (
	"io"
	"time"
)

// beatEvery is the time between two beats of a process.
const beatEvery = 200 * time.Millisecond

// Beat writes a byte to the channel every beatEvery until a write fails. A process that is stopped
// by a signal, or gets no processor, writes no bytes.
func Beat(channel io.Writer) {
	for {
		if _, err := channel.Write([]byte{'.'}); err != nil {
			return // the step has ended, or the reader is gone
		}
		time.Sleep(beatEvery)
	}
}
