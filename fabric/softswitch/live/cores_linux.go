package live

import (
	"time"

	"golang.org/x/sys/unix"
)

// cores is whether the host's cores have time to spare, as the kernel tells. Where
// it does not, they have none.
type cores struct {
	fd      int // of the file that tells; -1 is none
	at      time.Duration
	stalled time.Duration // by then, some task waited for a CPU
	spare   bool
	text    [256]byte
}

const (
	// coresEach is how often they are looked at, at most.
	coresEach = 100 * time.Millisecond
	// A task may wait for a CPU in one of so many parts of the time.
	coresShort = 2
)

func (c *cores) begin() {
	var err error
	if c.fd, err = unix.Open(CPUPressure, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		c.fd = -1
	}
}

func (c *cores) end() {
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
		c.fd = -1
	}
}

// look looks again if it is time, now being real time since any moment.
func (c *cores) look(now time.Duration) {
	if c.fd < 0 || now-c.at < coresEach {
		return
	}
	n, err := unix.Pread(c.fd, c.text[:], 0)
	if err != nil {
		c.spare = false
		c.end() // else each round would try again
		return
	}
	c.saw(now, c.text[:n])
}

// saw reads what the kernel told.
func (c *cores) saw(now time.Duration, text []byte) {
	stalled, ok := SomePressure(text)
	c.spare = ok && c.at > 0 && stalled-c.stalled < (now-c.at)/coresShort
	c.at, c.stalled = now, stalled
}
