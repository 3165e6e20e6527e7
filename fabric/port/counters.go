package port

import "sync/atomic"

// counters are the counts that a port itself keeps. One thread adds, once a batch where possible;
// any thread may read.
type counters struct {
	frames, bytes       counter // received
	outFrames, outBytes counter // sent
	truncated, refused  counter
	completed, failed   counter
}

// counter has one writer, so adding needs no atomic addition.
type counter struct{ value atomic.Uint64 }

func (c *counter) Add(n uint64) { c.value.Store(c.value.Load() + n) }

func (c *counters) received(frames, bytes int) {
	if frames > 0 {
		c.frames.Add(uint64(frames))
		c.bytes.Add(uint64(bytes))
	}
}

func (c *counters) sent(frames, bytes int) {
	if frames > 0 {
		c.outFrames.Add(uint64(frames))
		c.outBytes.Add(uint64(bytes))
	}
}

func (c *counters) read() Stats {
	return Stats{
		Received: c.frames.value.Load(), ReceivedBytes: c.bytes.value.Load(),
		Sent: c.outFrames.value.Load(), SentBytes: c.outBytes.value.Load(),
		Truncated: c.truncated.value.Load(), Refused: c.refused.value.Load(),
		ChecksumsCompleted: c.completed.value.Load(), SendFailed: c.failed.value.Load(),
	}
}
