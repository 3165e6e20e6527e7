package live

import (
	"time"

	"golang.org/x/sys/unix"
)

// cores determines from the kernel's data whether the host's cores have spare time. Without these
// data they count as having none.
type cores struct {
	fd      int // of the file CPUPressure; -1 is none
	at      time.Duration
	stalled time.Duration // time until then in which some task waited for a CPU
	spare   bool
	idle    bool // there is a core for each task nearly all the time
	short   bool // according to these data they have none
	starved bool // tasks wait for them nearly all the time
	text    [256]byte
}

const (
	// coresEach is the shortest interval between two readings.
	coresEach = 100 * time.Millisecond
	// The cores have spare time if tasks wait for a CPU in less than 1/coresShort of the time.
	coresShort = 2
	// The cores are idle if tasks wait for a CPU in less than 1/coresIdle of the time.
	coresIdle = 20
	// Programs are starved if tasks wait for a CPU in all but 1/coresStarved of the time.
	coresStarved = 5
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

// refresh reads the file again if it is time. Now is real time since an arbitrary start.
func (c *cores) refresh(now time.Duration) {
	if c.fd < 0 || now-c.at < coresEach {
		return
	}
	n, err := unix.Pread(c.fd, c.text[:], 0)
	if err != nil {
		c.spare, c.idle, c.short, c.starved = false, false, false, false
		c.end() // otherwise each round would retry
		return
	}
	c.saw(now, c.text[:n])
}

// saw evaluates the kernel's text.
func (c *cores) saw(now time.Duration, text []byte) {
	stalled, ok := SomePressure(text)
	known, waited := ok && c.at > 0, stalled-c.stalled
	c.spare = known && waited < (now-c.at)/coresShort
	c.idle = known && waited*coresIdle < now-c.at
	c.short = known && !c.spare
	c.starved = known && waited*coresStarved >= (now-c.at)*(coresStarved-1)
	c.at, c.stalled = now, stalled
}
