package capture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/reexec"
)

// part is the name under which this executable starts itself as a recorder.
const part = "capture"

// playsParts is set once Parts was called.
var playsParts atomic.Bool

// Parts returns the part that reexec.Run needs so that captures run in their own process. Programs
// pass it to reexec.Run before they do anything else.
func Parts() reexec.Parts {
	playsParts.Store(true)
	return reexec.Parts{part: func([]string) int { return recordMain() }}
}

// Descriptors of the recording process.
const (
	controlFd = 3 // stream socket: order, answer, then the end, then the result
	outFd     = 4 // pipe for the stream
	firstTap  = 5
)

// recordOrder is the order to the recording process.
type recordOrder struct {
	Taps    []recordTap `json:"taps"`
	HasFeed bool        `json:"has_feed"` // its descriptor follows the taps' sockets
	Options Options     `json:"options"`
}

// recordTap is a tap whose socket the recording process inherits.
type recordTap struct {
	Node  string `json:"node"`
	Port  string `json:"port"`
	Link  string `json:"link"`
	NIC   bool   `json:"nic"`
	Ranks []int  `json:"ranks,omitempty"`
	Index int    `json:"index"`
	MTU   int    `json:"mtu"`
	// Soft taps have no socket.
	Soft   bool   `json:"soft,omitempty"`
	Fed    bool   `json:"fed,omitempty"`
	Number uint16 `json:"number,omitempty"`
}

// recordEnd tells the recording process to end.
type recordEnd struct {
	Outside []uint64 `json:"outside,omitempty"` // by tap
}

// recordAnswer is sent when all taps record, and at the end. Between the request to end and the end, signs of
// life are sent.
type recordAnswer struct {
	Beat  bool   `json:"beat,omitempty"` // only a sign of life
	Error string `json:"error,omitempty"`
	Stats Stats  `json:"stats"`
}

// startProcess passes the sockets to a recording process and starts the recording.
func startProcess(ctx context.Context, taps []Tap, rings []*ring, options Options, w io.Writer) (*Session,
	error) {
	out, err := NewOutput(w)
	if err != nil {
		return nil, errors.Join(err, closeRings(rings))
	}
	child, err := spawn(rings, options.Feed, out.File)
	out.Passed()
	// The child has its own copies of the sockets, and nothing is mapped here yet.
	if err = errors.Join(err, closeRings(rings)); err != nil {
		child.end()
		return nil, err
	}
	order := recordOrder{Options: options, HasFeed: options.Feed != nil}
	for i, tap := range taps {
		one := recordTap{Node: tap.Node, Port: tap.Port, Link: tap.Link, NIC: tap.NIC, Ranks: tap.Ranks,
			Soft: tap.Soft, Fed: tap.Fed, Number: tap.Number}
		if !tap.Soft {
			one.Index, one.MTU = rings[i].index, rings[i].mtu
		}
		order.Taps = append(order.Taps, one)
	}
	if err := json.NewEncoder(child.control).Encode(order); err != nil {
		child.end()
		return nil, fmt.Errorf("send options to the recording process: %w", err)
	}
	if _, err := child.answer(); err != nil {
		child.end()
		return nil, err
	}
	s := &Session{done: make(chan struct{})}
	// Closing the write side of the control socket ends the recording. Both writes fail if the
	// recording has ended.
	s.stop = sync.OnceFunc(func() {
		_ = json.NewEncoder(child.control).Encode(recordEnd{Outside: options.lostOutside()})
		_ = child.control.CloseWrite()
		go child.watchEnd(s.done)
	})
	release := context.AfterFunc(ctx, s.stop)
	go func() {
		defer close(s.done)
		defer release()
		s.stats, s.err = child.follow(out)
	}()
	return s, nil
}

// child is a recording process, as its parent sees it.
type child struct {
	process *os.Process
	control *net.UnixConn
	decoder *json.Decoder
	// beats counts the process's signs of life after the request to end.
	beats atomic.Uint64
	// hung is set if watchEnd killed the process.
	hung atomic.Bool
}

const (
	// endPatience is how long a recording that must end may give no sign of life, and endLooks is how many
	// times the parent checks during that time. The parent counts checks instead of measuring time,
	// so that a parent that was delayed itself kills no recording.
	endPatience = 10 * time.Second
	endLooks    = 50
	// beatTick is the interval of the signs of life.
	beatTick = endPatience / 20
)

// errHung is the error of a recording whose process did not end after the request to end.
var errHung = errors.New(
	"the recording process does not answer, and was killed: it was stopped, or got no processor")

// watchEnd kills a process that was asked to end if it neither ends nor gives a sign of life for
// endPatience. A process lives while it waits for the reader of its stream.
func (c *child) watchEnd(done <-chan struct{}) {
	ticker := time.NewTicker(endPatience / endLooks)
	defer ticker.Stop()
	for looks, last := 0, c.beats.Load(); looks < endLooks; looks++ {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		if beats := c.beats.Load(); beats != last {
			looks, last = 0, beats
		}
	}
	c.hung.Store(true)
	_ = c.process.Kill() // it may have ended
}

// spawn starts the process, which writes into out, with the sockets and the feed, if there is one. On
// failure it returns the parts of the child that exist.
func spawn(rings []*ring, feed, out *os.File) (*child, error) {
	c := new(child)
	control, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return c, fmt.Errorf("make control socket: %w", err)
	}
	defer unix.Close(control[1])
	own := os.NewFile(uintptr(control[0]), "control")
	defer own.Close() // FileConn makes a copy
	conn, err := net.FileConn(own)
	if err != nil {
		return c, fmt.Errorf("open control socket: %w", err)
	}
	c.control = conn.(*net.UnixConn)
	c.decoder = json.NewDecoder(c.control)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return c, err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), null.Fd(), 2, uintptr(control[1]), out.Fd()}
	for _, r := range rings {
		if r != nil {
			files = append(files, uintptr(r.fd))
		}
	}
	if feed != nil {
		files = append(files, feed.Fd())
	}
	// syscall.ForkExec takes raw descriptors; os.File would close them. The new session is a
	// scheduling group (autogroup) of its own.
	pid, err := syscall.ForkExec(reexec.Self, reexec.Argv(part), &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return c, fmt.Errorf("start recording process: %w", err)
	}
	c.process, err = os.FindProcess(pid)
	return c, err
}

// end kills the process, if there is one, and closes the descriptors.
func (c *child) end() {
	if c.process != nil {
		_ = c.process.Kill() // it may have ended
		_, _ = c.process.Wait()
	}
	if c.control != nil {
		_ = c.control.Close()
	}
}

// answer reads the next answer of the process that is no sign of life.
func (c *child) answer() (Stats, error) {
	answer := recordAnswer{Beat: true}
	for ; answer.Beat; c.beats.Add(1) {
		answer = recordAnswer{}
		if err := c.decoder.Decode(&answer); err != nil {
			return Stats{}, fmt.Errorf("the recording process ended: %w", err)
		}
	}
	if answer.Error != "" {
		return answer.Stats, errors.New(answer.Error)
	}
	return answer.Stats, nil
}

// follow waits for the end of the recording and of the copying, and returns the result.
func (c *child) follow(out *Output) (Stats, error) {
	stats, err := c.answer()
	state, waited := c.process.Wait() // its end of the pipe is closed then
	if copied := out.Wait(); copied != nil {
		err = fmt.Errorf("write capture: %w", copied)
	}
	if c.hung.Load() {
		err = errHung
	}
	if waited == nil && err == nil && !state.Success() {
		err = fmt.Errorf("the recording process ended: %s", state)
	}
	return stats, errors.Join(err, waited, c.control.Close())
}

// recordMain is the main function of the recording process.
func recordMain() int {
	reexec.RealTime(reexec.RecorderPriority) // if it is refused, larger rings must suffice
	control, out := os.NewFile(controlFd, "control"), os.NewFile(outFd, "stream")
	decoder, encoder := json.NewDecoder(control), json.NewEncoder(control)
	var order recordOrder
	if err := decoder.Decode(&order); err != nil {
		return 1
	}
	var taps []Tap
	var rings []*ring
	next := firstTap
	for _, tap := range order.Taps {
		taps = append(taps, Tap{Node: tap.Node, Port: tap.Port, Link: tap.Link, NIC: tap.NIC,
			Ranks: tap.Ranks, Soft: tap.Soft, Fed: tap.Fed, Number: tap.Number})
		if tap.Soft {
			rings = append(rings, nil)
			continue
		}
		rings = append(rings, &ring{fd: next, index: tap.Index, mtu: tap.MTU})
		next++
	}
	if order.HasFeed {
		order.Options.Feed = os.NewFile(uintptr(next), "feed")
	}
	r, err := newRecorder(taps, rings, order.Options, out)
	if err != nil {
		_ = encoder.Encode(recordAnswer{Error: err.Error()}) // there is no other channel for the error
		return 1
	}
	if err := encoder.Encode(recordAnswer{}); err != nil {
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		var end recordEnd
		if decoder.Decode(&end) == nil { // else the parent has ended
			r.setOutside(end.Outside)
		}
	}()
	done := make(chan error)
	go func() { done <- r.run(ctx) }()
	beat := time.NewTicker(beatTick)
	defer beat.Stop()
	for {
		select {
		case err := <-done:
			answer := recordAnswer{Stats: r.stats()}
			if err != nil {
				answer.Error = err.Error()
			}
			_ = out.Close()
			if encoder.Encode(answer) != nil {
				return 1
			}
			return 0
		case <-beat.C:
			if ctx.Err() != nil && encoder.Encode(recordAnswer{Beat: true}) != nil {
				return 1
			}
		}
	}
}
