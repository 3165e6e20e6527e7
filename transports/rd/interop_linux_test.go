package rd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"railbed/testbed/hosttest"
	"railbed/transports"
)

// interopTimeout bounds each wait for the other implementation.
const interopTimeout = 10 * time.Second

// python is testdata/peer.py at work: an implementation of PROTOCOL.md that
// shares nothing with this one.
type python struct {
	t      *testing.T
	life   uint64
	at     netip.Addr
	in     io.Writer
	events chan pythonEvent
}

// pythonEvent is one line of what it says.
type pythonEvent struct {
	Event string
	stats map[string]int
	// Of came and sent.
	ID, Total int
	Immediate *uint32
	Error     string
	Data      []byte
	Why       string
}

// orders are what it reads; bytes travel as base64.
type orders map[string]any

// startPython starts one that loses, doubles and delays as faults say. It hears
// at an address of its own, so that its ports are free.
func startPython(t *testing.T, n int, faults orders) *python {
	t.Helper()
	hosttest.Need(t, hosttest.Python)
	var life [8]byte
	rand.Read(life[:])
	pid := os.Getpid()
	p := &python{t: t, life: binary.BigEndian.Uint64(life[:]), at: netip.AddrFrom4([4]byte{127, byte(64 + n), byte(pid >> 8), byte(pid)}), events: make(chan pythonEvent, 4096)}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	command := exec.CommandContext(ctx, "python3", "testdata/peer.py")
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
	p.tell(orders{"life": p.life, "ip": p.at.String(), "port": 61696, "paths": []int{63489, 64000, 65535}, "mtu": 1408, "room": 64, "faults": faults})
	p.await("ready")
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
	case <-time.After(interopTimeout):
		p.t.Fatalf("peer.py does not say %s", event)
	}
	panic("unreachable")
}

// address is its address, by the layout of PROTOCOL.md and without the code
// that this package has for it.
func (p *python) address() []byte {
	b := []byte{'R', 'D', 1, 0, 1, 0, 0, 64}
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
	return orders{"op": "peer", "life": binary.BigEndian.Uint64(b[8:]), "ip": netip.AddrFrom16([16]byte(b[16:32])).Unmap().String(),
		"port": 61696 + int(b[3]), "engines": b[4], "room": binary.BigEndian.Uint16(b[6:])}
}

// interopSizes are messages of no packet's worth, of less, of one and just
// more, and of many.
var interopSizes = []int{0, 1, 64, 1408, 1409, 100_000, 1 << 20}

// interopMessage is one of them; each but the longest goes with an immediate and
// without.
type interopMessage struct {
	offset int
	data   []byte
	imm    *uint32
}

// interopMessages have bytes of their own, one behind another in a region.
func interopMessages(base uint32, most int) (all []interopMessage, region int) {
	for round := range uint32(2) {
		for i, size := range interopSizes {
			if size > most || size == 1<<20 && round == 1 {
				continue // peer.py is slow
			}
			m := interopMessage{offset: region, data: make([]byte, size)}
			rand.Read(m.data)
			if imm := base + round<<8 + uint32(i); (uint32(i)+round)%2 == 0 {
				m.imm = &imm
			}
			all, region = append(all, m), region+size+3 // what lies between stays 0
		}
	}
	return all, region
}

func want(all []interopMessage, region int) []byte {
	b := make([]byte, region)
	for _, m := range all {
		copy(b[m.offset:], m.data)
	}
	return b
}

// TestInterop has this implementation and the other write to each other at the
// same time, while the other one loses, doubles and delays packets of both
// directions.
func TestInterop(t *testing.T) {
	for name, faults := range map[string]orders{
		"clean": {},
		"lossy": {"lose_in": 7, "lose_out": 9, "lose_acks": 5, "double_out": 11, "delay_out": 23},
		// Each packet, also the last of all: only PROBEs show it.
		"all lost": {"lose_in": 1, "lose_out": 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := startPython(t, 0, faults)
			e := open(t, Config{Engines: 2})
			peer := p.meet(e)
			most := 1 << 20
			if faults["lose_in"] == 1 {
				most = 100_000
			}
			there, thereSize := interopMessages(0xAA000000, most)
			here, hereSize := interopMessages(0xBB000000, most)
			region := make([]byte, hereSize)
			r, err := e.Register(region, transports.RemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			const key = 0xC0FFEE0123456789
			p.tell(orders{"op": "region", "key": uint64(key), "size": thereSize, "writable": true})
			for i, m := range here {
				p.tell(orders{"op": "write", "life": e.Life(), "id": i, "key": binary.BigEndian.Uint64(r.Remote()), "offset": m.offset, "data": m.data, "immediate": m.imm})
			}
			for i, m := range there {
				q := transports.Request{ID: uint64(i), Op: transports.OpWrite, Peer: peer, Local: m.data, Remote: binary.BigEndian.AppendUint64(nil, key), Offset: uint64(m.offset)}
				if m.imm != nil {
					q.Op, q.Imm = transports.OpWriteImm, *m.imm
				}
				if n, err := e.Post(t.Context(), []transports.Request{q}); n != 1 || err != nil {
					t.Fatal(n, err)
				}
			}
			p.checkSent(len(here), there)
			checkCompletions(t, e, there, here)
			p.tell(orders{"op": "read", "key": uint64(key)})
			if got := p.await("bytes").Data; !bytes.Equal(got, want(there, thereSize)) {
				t.Errorf("peer.py has other bytes than were sent, from %d on", differ(got, want(there, thereSize)))
			}
			if !bytes.Equal(region, want(here, hereSize)) {
				t.Errorf("other bytes than peer.py sent, from %d on", differ(region, want(here, hereSize)))
			}
			p.checkCounts(e, faults)
		})
	}
}

func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// checkSent waits until peer.py has sent all of its messages and received ours,
// each once.
func (p *python) checkSent(sent int, came []interopMessage) {
	p.t.Helper()
	type key struct {
		total int
		imm   string
	}
	name := func(imm *uint32) string {
		if imm == nil {
			return ""
		}
		return fmt.Sprint(*imm)
	}
	open, ids := map[key]int{}, map[int]bool{}
	for _, m := range came {
		open[key{len(m.data), name(m.imm)}]++
	}
	for range sent + len(came) {
		select {
		case e := <-p.events:
			k := key{e.Total, name(e.Immediate)}
			switch {
			case e.Event == "sent" && e.Error == "" && !ids[e.ID]:
				ids[e.ID] = true
			case e.Event == "came" && open[k] > 0:
				open[k]--
			default:
				p.t.Fatalf("peer.py says %+v", e)
			}
		case <-time.After(interopTimeout):
			p.t.Fatalf("peer.py sent %v, and does not have %v", ids, open)
		}
	}
}

// checkCompletions polls what the endpoint has to say of both directions: each
// request and each number once.
func checkCompletions(t *testing.T, e *Endpoint, sent, came []interopMessage) {
	t.Helper()
	numbers, ids, left := map[uint32]int{}, map[uint64]bool{}, len(sent)
	for _, m := range came {
		if m.imm != nil {
			numbers[*m.imm] = len(m.data)
			left++
		}
	}
	for range left {
		c := nextCompletion(t, e)
		bytes, told := numbers[c.Imm]
		switch {
		case c.Err == nil && c.Op == transports.OpReceive && told && bytes == c.Bytes:
			delete(numbers, c.Imm)
		case c.Err == nil && c.Op != transports.OpReceive && c.Op != transports.OpPeerDown && !ids[c.ID] && c.Bytes == len(sent[c.ID].data):
			ids[c.ID] = true
		default:
			t.Fatalf("completion %+v", c)
		}
	}
}

func nextCompletion(t *testing.T, e *Endpoint) transports.Completion {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), interopTimeout)
	defer cancel()
	var c [1]transports.Completion
	for e.Poll(c[:]) == 0 {
		if err := e.Wait(ctx); err != nil {
			t.Fatalf("no completion: %v; %+v", err, e.Counters())
		}
	}
	return c[0]
}

// checkCounts compares what both counted.
func (p *python) checkCounts(e *Endpoint, faults orders) {
	t, c := p.t, e.Counters()
	p.tell(orders{"op": "stats"})
	s := p.await("stats").stats
	t.Logf("here %+v\nthere %v", c, s)
	if c.Hostile+c.Corrupt+c.Foreign+c.Refused+c.Trimmed > 0 {
		t.Errorf("what peer.py sends is counted as hostile, corrupt, foreign, refused or trimmed: %+v", c)
	}
	if s["invalid"]+s["dropped"]+s["twice"]+s["rejects_in"]+s["rejects_out"]+s["nacks_in"]+s["nacks_out"] > 0 {
		t.Errorf("what this side sends is invalid or refused: %v", s)
	}
	for fault, count := range map[string]string{"lose_in": "lost_in", "lose_out": "lost_out", "lose_acks": "lost_acks", "double_out": "doubled", "delay_out": "delayed"} {
		if _, wanted := faults[fault]; wanted != (s[count] > 0) {
			t.Errorf("%s is %d", count, s[count])
		}
	}
	if c.Repeated < uint64(s["lost_in"]) || s["repeated"] < s["lost_out"] || c.Duplicates < uint64(s["doubled"]) {
		t.Error("fewer packets were sent again than lost, or fewer came twice than were sent twice")
	}
	if _, asks := faults["delay_out"]; asks && s["ack_words"] == 0 {
		t.Error("no acknowledgement had a bitmap")
	}
	if faults["lose_in"] == 1 && (s["probes_in"] == 0 || s["probes_out"] == 0) {
		t.Error("nobody asked")
	}
}

// TestInteropRefused has each side write where the other does not let it, say
// that it does not know the other, and end.
func TestInteropRefused(t *testing.T) {
	p := startPython(t, 1, orders{})
	e := open(t, Config{})
	peer, err := e.AddPeer(p.address()) // peer.py is told later: until then it calls this endpoint a stranger
	if err != nil {
		t.Fatal(err)
	}
	const key, short = 0xC0FFEE0123456789, 1000
	p.tell(orders{"op": "region", "key": uint64(key), "size": short, "writable": true})
	data := bytes.Repeat([]byte{7}, 30_000)
	post := func(id uint64, key uint64, data []byte) {
		t.Helper()
		q := transports.Request{ID: id, Op: transports.OpWriteImm, Imm: uint32(id), Peer: peer, Local: data, Remote: binary.BigEndian.AppendUint64(nil, key)}
		if n, err := e.Post(t.Context(), []transports.Request{q}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	post(1, key+1, data)
	post(2, key, data)
	post(3, key, data[:short])
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		p.tell(orders{"op": "stats"})
		if p.await("stats").stats["rejects_out"] > 0 {
			break
		}
	}
	p.tell(p.peer(e))
	for range 3 {
		if c := nextCompletion(t, e); (c.ID == 3) != (c.Err == nil) || c.Err != nil && !errors.Is(c.Err, transports.ErrAccess) {
			t.Errorf("completion %+v", c)
		}
	}
	if c := p.await("came"); c.Total != short || *c.Immediate != 3 {
		t.Errorf("peer.py received %+v", c)
	}
	region := make([]byte, short)
	r, err := e.Register(region, transports.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	handle := binary.BigEndian.Uint64(r.Remote())
	for i, w := range []struct {
		key  uint64
		data []byte
		want string
	}{{handle + 1, data, "no-region"}, {handle, data, "bounds"}, {handle, data[:short], ""}} {
		p.tell(orders{"op": "write", "life": e.Life(), "id": i, "key": w.key, "offset": 0, "data": w.data, "immediate": i})
		if s := p.await("sent"); s.ID != i || s.Error != w.want {
			t.Errorf("peer.py says %+v, want %q", s, w.want)
		}
	}
	if c := nextCompletion(t, e); c.Op != transports.OpReceive || c.Imm != 2 {
		t.Errorf("completion %+v", c)
	}
	if !bytes.Equal(region, data[:short]) {
		t.Error("other bytes than peer.py sent")
	}
	p.tell(orders{"op": "stats"})
	s := p.await("stats").stats
	t.Logf("here %+v\nthere %v", e.Counters(), s)
	if c := e.Counters(); s["rejects_out"] == 0 || s["nacks_out"] == 0 || s["nacks_in"] == 0 || s["skips_out"] == 0 || s["skips_in"] == 0 || s["invalid"]+s["dropped"]+s["twice"] > 0 || c.Hostile+c.Corrupt+c.Foreign > 0 {
		t.Errorf("here %+v\nthere %v", c, s)
	}
	p.checkEnd(e, peer)
}

// checkEnd has this endpoint end, then peer.py for another endpoint.
func (p *python) checkEnd(e *Endpoint, peer transports.Peer) {
	t := p.t
	e.Close()
	if f := p.await("failed"); f.Why != "closed" {
		t.Errorf("peer.py says %+v of an endpoint that closed", f)
	}
	other := open(t, Config{})
	raw := p.address()
	raw[15]++ // a life that is over
	gone, err := other.AddPeer(raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Post(t.Context(), []transports.Request{{Op: transports.OpWriteImm, Peer: gone}}); err != nil {
		t.Fatal(err)
	}
	if c := nextCompletion(t, other); !errors.Is(c.Err, transports.ErrPeerFailed) {
		t.Errorf("completion %+v", c)
	}
	if c := nextCompletion(t, other); c.Op != transports.OpPeerDown {
		t.Errorf("completion %+v", c)
	}
	p.meet(other)
	p.tell(orders{"op": "close"})
	if c := nextCompletion(t, other); c.Op != transports.OpPeerDown {
		t.Errorf("completion %+v", c)
	}
}
