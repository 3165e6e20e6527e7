// Package traffic sends datagrams or pause frames from a node, whatever comes of
// them: the load of scenarios that are about the fabric and not about a
// transport.
//
// A process plays one of three parts, told by its argument: a sink takes
// datagrams until it is ended, a source sends them at a rate, a pauser sends PFC
// frames. The packets are the evidence; what the processes print is for people,
// but for the time in which the host held a source up. Beside that, Beat tells the
// step that a process runs.
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

// Part is the name by which an executable starts itself as such a process.
const Part = "traffic"

// Ready is the line that a sink and a source print when they can go on: the
// source then waits for a line on its input.
const Ready = "ready"

// Order is what a process is to do. Exactly one field is set.
type Order struct {
	Sink   *Sink   `json:"sink,omitempty"`
	Source *Source `json:"source,omitempty"`
	Pauser *Pauser `json:"pauser,omitempty"`
}

// SinkPart is what Order.Part calls a sink.
const SinkPart = "sink"

// Part names the part that the process plays: sink, source or pauser.
func (o Order) Part() string {
	switch {
	case o.Sink != nil:
		return SinkPart
	case o.Source != nil:
		return "source"
	}
	return "pauser"
}

// Sink takes datagrams at a port.
type Sink struct {
	Addr netip.AddrPort `json:"addr"`
}

// Source sends datagrams to each of To in turn, by Flows source ports each.
type Source struct {
	From  netip.Addr       `json:"from"`
	To    []netip.AddrPort `json:"to"`
	Port  uint16           `json:"port"` // first source port
	Flows int              `json:"flows"`
	// Payload is the bytes of a datagram, at least MinPayload.
	Payload int `json:"payload"`
	// Frame is the bytes of the datagram's frame, of which Rate is; a Rate of 0
	// is none.
	Frame int           `json:"frame"`
	Rate  units.Rate    `json:"rate"`
	For   time.Duration `json:"for"`
	// TOS is the DSCP and ECN field.
	TOS int `json:"tos"`
}

// Pauser sends PFC frames by a NIC, one every Every, and at the end one that
// lets the far end go on.
type Pauser struct {
	NIC        string        `json:"nic"`
	Priorities []int         `json:"priorities"`
	Quanta     int           `json:"quanta"`
	Every      time.Duration `json:"every"`
	For        time.Duration `json:"for"`
}

// MinPayload has room for what tells datagrams apart.
const MinPayload = 16

// heldUp begins the last line of a source or pauser.
const heldUp = "held up by the host: "

// HeldUp finds in what a source printed for how long the host held it up, so that
// it sent less than it was asked to: cores were busy. A source that has to wait
// for its node's own queue is not held up. It reports false where the source
// did not come to its end.
func HeldUp(output string) (time.Duration, bool) {
	_, text, found := strings.Cut(output, "\n"+heldUp)
	held, err := time.ParseDuration(strings.TrimSpace(text))
	return held, found && err == nil
}

// Arg is the process's argument for an order.
func (o Order) Arg() (string, error) {
	text, err := json.Marshal(o)
	return string(text), err
}

// Main is the process: it does what its one argument says, and returns its exit
// code.
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
		err = fmt.Errorf("an order for nothing")
	}
	if err != nil {
		fmt.Fprintln(errors, "railbed traffic:", err)
		return 1
	}
	return 0
}

// begin says that the process is ready and waits until it is told to start.
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
