package interop

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"railbed/testbed"
)

// order is an order to an end of a connection, a line of JSON. Both kinds of ends understand it:
// testdata/peer.py on rdma_rxe, and own.
type order struct {
	Do     string     `json:"do"` // open, connect, receive, post, wait, report, close, counters
	Device string     `json:"device,omitempty"`
	Queue  string     `json:"queue,omitempty"`
	At     netip.Addr `json:"address,omitzero"` // of open the own one, of connect the other's

	// Of open. Timeout is IBTA's code, and Retries is 0 for all that there are.
	MTU     int    `json:"mtu,omitempty"`
	Size    int    `json:"size,omitempty"` // bytes of memory
	Seed    string `json:"seed,omitempty"`
	Depth   int    `json:"depth,omitempty"`
	Reads   int    `json:"reads,omitempty"`
	Timeout uint8  `json:"timeout,omitempty"`
	Retries int    `json:"retries,omitempty"`

	PSN uint32 `json:"psn"`           // of open the own first one, of connect the other's
	QPN uint32 `json:"qpn,omitempty"` // of connect

	From   int     `json:"from"`             // of receive and post: the ids count from here
	Places []place `json:"places,omitempty"` // of receive

	// Of post.
	Op       string    `json:"op,omitempty"`
	RKey     uint32    `json:"rkey,omitempty"`
	Base     uint64    `json:"base,omitempty"`
	Messages []message `json:"messages,omitempty"`

	Count   int     `json:"count,omitempty"`   // of wait
	Seconds int     `json:"seconds,omitempty"` // of wait
	Ranges  []place `json:"ranges,omitempty"`  // of report
}

// place is an offset in a queue's memory and a length.
type place [2]int

// message is one request.
type message struct {
	Local   int    `json:"local"`
	Remote  int    `json:"remote"`
	Length  int    `json:"length"`
	Imm     uint32 `json:"imm"`
	Compare uint64 `json:"compare"`
	Operand uint64 `json:"operand"`
}

// answer is an end's answer to an order.
type answer struct {
	Error    string            `json:"error,omitempty"`
	QPN      uint32            `json:"qpn,omitempty"`
	RKey     uint32            `json:"rkey,omitempty"`
	Base     uint64            `json:"base,omitempty"`
	Done     []done            `json:"done,omitempty"`
	State    string            `json:"state,omitempty"` // RTS of a queue that works
	Sums     []string          `json:"sums,omitempty"`  // SHA-256 of ranges
	Counters map[string]uint64 `json:"counters,omitempty"`
}

// done is a completion. Bytes and Imm are of receives.
type done struct {
	ID     int     `json:"id"`
	Status int     `json:"status"` // 0 is success, and other numbers of ibv_wc_status
	Why    string  `json:"why,omitempty"`
	Bytes  int     `json:"bytes"`
	Imm    *uint32 `json:"imm,omitempty"`
}

// peer is a process in a node that carries out orders.
type peer struct {
	cmd    *testbed.Cmd
	input  *io.PipeWriter
	lines  chan string
	stderr *strings.Builder // complete when lines is closed
}

// patience bounds one order, beside what a wait waits.
const patience = 60 * time.Second

// start starts a command that carries out orders.
func start(t *testing.T, cmd *testbed.Cmd) *peer {
	t.Helper()
	stdin, input := io.Pipe()
	output, stdout := io.Pipe()
	p := &peer{cmd: cmd, input: input, lines: make(chan string), stderr: new(strings.Builder)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, p.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	go func() {
		cmd.Wait()
		stdout.Close()
		stdin.Close()
	}()
	t.Cleanup(func() {
		input.Close()
		for range p.lines { // until it has ended
		}
	})
	return p
}

// ask gives an order and returns the answer.
func (p *peer) ask(o order) (a answer, err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return a, err
	}
	if _, err := p.input.Write(append(text, '\n')); err != nil {
		return a, fmt.Errorf("%s: %w", o.Do, err)
	}
	select {
	case line, ok := <-p.lines:
		if !ok {
			return a, fmt.Errorf("%s: the peer has ended: %s", o.Do, p.stderr)
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			return a, fmt.Errorf("%s: answer %.200q: %w", o.Do, line, err)
		}
	case <-time.After(patience + time.Duration(o.Seconds)*time.Second):
		return a, fmt.Errorf("%s: no answer", o.Do)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %w", o.Do, errors.New(a.Error))
	}
	return a, nil
}
