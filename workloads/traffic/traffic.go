// Package traffic sends datagrams or pause frames from a node, regardless of whether they arrive.
// It is the load of scenarios that test the fabric and not a transport.
//
// The argument of a process selects one of three parts. A sink receives datagrams until it is
// ended, a source sends them at a rate, and a pauser sends PFC frames. Checks judge the packets.
// The output of the processes is for people, except for the time in which the host held a source
// up. In addition, Beat tells the step that a process runs.
package traffic

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"railbed/internal/units"
)

// Part is the name under which an executable starts itself as such a process.
const Part = "traffic"

// Ready is the line that a sink and a source print when they are ready. The source then waits for a
// line on its input.
const Ready = "ready"

// Order is the job of a process. Exactly one field is set.
type Order struct {
	Sink   *Sink   `json:"sink,omitempty"`
	Source *Source `json:"source,omitempty"`
	Pauser *Pauser `json:"pauser,omitempty"`
}

// SinkPart is the part of a sink, as Order.Part returns it.
const SinkPart = "sink"

// Part returns the part that the process plays: sink, source or pauser.
func (o Order) Part() string {
	switch {
	case o.Sink != nil:
		return SinkPart
	case o.Source != nil:
		return "source"
	}
	return "pauser"
}

// Sink receives datagrams at a port.
type Sink struct {
	Addr netip.AddrPort `json:"addr"`
}

// Source sends datagrams to each of To in turn, from Flows source ports each.
type Source struct {
	From  netip.Addr       `json:"from"`
	To    []netip.AddrPort `json:"to"`
	Port  uint16           `json:"port"` // first source port
	Flows int              `json:"flows"`
	// Payload is the number of payload bytes of a datagram, at least MinPayload.
	Payload int `json:"payload"`
	// Frame is the number of bytes of the datagram's frame, to which Rate applies. A Rate of 0 is
	// no limit.
	Frame int           `json:"frame"`
	Rate  units.Rate    `json:"rate"`
	For   time.Duration `json:"for"`
	// TOS is the DSCP and ECN field.
	TOS int `json:"tos"`
}

// Pauser sends a PFC frame through a NIC once per Every, and at the end a frame that lets the peer
// resume.
type Pauser struct {
	NIC        string        `json:"nic"`
	Priorities []int         `json:"priorities"`
	Quanta     int           `json:"quanta"`
	Every      time.Duration `json:"every"`
	For        time.Duration `json:"for"`
}

// minPayload has room for the bytes that tell datagrams apart.
const minPayload = 16

// heldUp begins the last line of a source or pauser.
const heldUp = "held up by the host: "

// HeldUp parses the output of a source. It returns the time for which busy cores of the host
// delayed the source, so that it sent less than its rate. Time in which a source waits for its
// node's own queue does not count. HeldUp reports false if the source did not finish.
func HeldUp(output string) (time.Duration, bool) {
	_, text, found := strings.Cut(output, "\n"+heldUp)
	held, err := time.ParseDuration(strings.TrimSpace(text))
	return held, found && err == nil
}

// Arg returns the process's argument for an order.
func (o Order) Arg() (string, error) {
	text, err := json.Marshal(o)
	return string(text), err
}

// Main is the main function of the process. It executes the order in its one argument, and returns
// the exit code.
func Main(args []string, in io.Reader, out, errors io.Writer) int {
	var order Order
	err := fmt.Errorf("want one argument, got %d", len(args))
	if len(args) == 1 {
		err = json.Unmarshal([]byte(args[0]), &order)
	}
	switch {
	case err != nil:
	case order.Sink != nil:
		err = order.Sink.run(out)
	case order.Source != nil:
		err = order.Source.run(in, out)
	case order.Pauser != nil:
		err = order.Pauser.run(in, out)
	default:
		err = fmt.Errorf("the order is empty, want a sink, a source or a pauser")
	}
	if err != nil {
		fmt.Fprintln(errors, "railbed traffic:", err)
		return 1
	}
	return 0
}

// begin prints that the process is ready and waits for the line that starts it.
func begin(in io.Reader, out io.Writer) error {
	if _, err := fmt.Fprintln(out, Ready); err != nil {
		return err
	}
	var line [1]byte
	if _, err := in.Read(line[:]); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	return nil
}
