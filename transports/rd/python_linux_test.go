package rd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/transports"
	"railbed/transports/rd/privacy"
)

// python is testdata/peer.py at work: an implementation of PROTOCOL.md that
// shares nothing with this one.
type python struct {
	t *testing.T
	pythonConfig
	life   uint64
	at     netip.Addr
	port   int
	in     io.Writer
	events chan pythonEvent
}

// pythonConfig says how peer.py talks.
type pythonConfig struct {
	faults   orders // what it loses, doubles, trims and delays
	v6       bool
	secret   privacy.Material // none: it does not encrypt
	readable bool
	packets  int // of a key, where it encrypts
}

// config is an endpoint's that talks the same way.
func (c *pythonConfig) config(t *testing.T) Config {
	e := Config{Readable: c.readable, Keys: privacy.Limits{Packets: uint64(c.packets)}}
	if c.v6 {
		e.Addr = netip.IPv6Loopback()
	}
	if c.secret != nil {
		secret, err := privacy.New(c.secret)
		if err != nil {
			t.Fatal(err)
		}
		e.Secret = secret
	}
	return e
}

// pythonEvent is one line of the peer's output.
type pythonEvent struct {
	Event string
	stats map[string]int
	Port  int // of ready
	// Of came and sent.
	ID, Total, Missing int
	Immediate          *uint32
	Holes              [][2]int
	Error              string
	Data               []byte
	Why                string
}

// orders are the peer's input; bytes are sent as base64.
type orders map[string]any

// startPython starts a Python peer. It receives at an address of its own, so that its ports are
// free. With IPv6, where there is one loopback address, it uses the last free slot.
func startPython(t *testing.T, c pythonConfig) *python {
	t.Helper()
	hosttest.Need(t, hosttest.Python)
	program := "python3"
	if c.secret != nil {
		hosttest.Need(t, hosttest.PythonAES)
		program = "/usr/bin/python3"
	}
	var life [8]byte
	rand.Read(life[:])
	at, slots := ownLoopback(), []int{0}
	if c.v6 {
		at, slots = netip.IPv6Loopback(), []int{15, 14, 13, 12, 11, 10, 9, 8}
	}
	p := &python{t: t, pythonConfig: c, life: binary.BigEndian.Uint64(life[:]), at: at,
		events: make(chan pythonEvent, 4096)}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	command := exec.CommandContext(ctx, program, "testdata/peer.py")
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var trouble bytes.Buffer
	command.Stderr = &trouble
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p.in = in
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer close(p.events)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var e pythonEvent
			if err := json.Unmarshal(line, &e); err == nil && e.Event == "stats" {
				json.Unmarshal(bytes.Replace(line, []byte(`"event": "stats", `), nil, 1), &e.stats)
			}
			transports.AfterRead() // what it says happened after what it was sent
			p.events <- e
		}
	}()
	t.Cleanup(func() {
		in.Close()
		<-over
		if err := command.Wait(); err != nil || trouble.Len() > 0 {
			t.Errorf("peer.py: %v\n%s", err, &trouble)
		}
		cancel()
	})
	// PSNs begin at most 64 before 0 and messages 4: both wrap in each test.
	p.life |= 0xFFFF_FFC0_FFFF_FFFC
	p.tell(orders{"life": p.life, "ip": p.at.String(), "port": 61696, "slots": slots,
		"paths": []int{63489, 64000, 65535}, "mtu": 1408, "room": 64,
		"faults": c.faults, "secret": []byte(c.secret), "readable": c.readable, "packets": c.packets})
	p.port = p.await("ready").Port
	return p
}

func (p *python) tell(o orders) {
	p.t.Helper()
	line, err := json.Marshal(o)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		p.t.Fatal(err)
	}
}

// await is the next event, which has to be this one.
func (p *python) await(event string) pythonEvent {
	p.t.Helper()
	select {
	case e, ok := <-p.events:
		if !ok || e.Event != event {
			p.t.Fatalf("peer.py says %+v, want %s", e, event)
		}
		return e
	case <-time.After(hosttest.Bound):
		p.t.Fatalf("peer.py does not say %s", event)
	}
	panic("unreachable")
}

// address is its address, by the layout of PROTOCOL.md and without the code
// that this package has for it.
func (p *python) address() []byte {
	b := []byte{'R', 'D', 1, byte(p.port - 61696), 1, 0, 0, 64}
	if p.secret != nil {
		b[5] = 1
	}
	b = binary.BigEndian.AppendUint64(b, p.life)
	at := p.at.As16()
	return append(b, at[:]...)
}

// meet tells each of the other.
func (p *python) meet(e *Endpoint) transports.Peer {
	p.t.Helper()
	peer, err := e.AddPeer(p.address())
	if err != nil {
		p.t.Fatal(err)
	}
	p.tell(p.peer(e))
	return peer
}

// peer is the order to talk with e, whose address is read by its layout.
func (p *python) peer(e *Endpoint) orders {
	b := e.Address()
	return orders{"op": "peer", "life": binary.BigEndian.Uint64(b[8:]),
		"ip":   netip.AddrFrom16([16]byte(b[16:32])).Unmap().String(),
		"port": 61696 + int(b[3]), "engines": b[4], "room": binary.BigEndian.Uint16(b[6:])}
}

// region makes a region of its own, which is there when this returns.
func (p *python) region(key uint64, size int) {
	p.t.Helper()
	p.tell(orders{"op": "region", "key": key, "size": size, "writable": true})
	p.tell(orders{"op": "stats"})
	p.await("stats")
}
