package rd

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/transports"
	"railbed/transports/rd/privacy"
)

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

// interopMessages returns messages with different bytes, one after another in a region.
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
// same time, while the other one loses, doubles, trims and delays packets of both
// directions.
func TestInterop(t *testing.T) {
	lossy := orders{"lose_in": 7, "lose_out": 9, "lose_acks": 5, "double_out": 11, "delay_out": 23}
	worse := orders{"lose_in": 7, "lose_out": 9, "lose_acks": 5, "double_out": 11, "delay_out": 23,
		"trim_in": 5, "trim_out": 13}
	for name, c := range map[string]struct {
		python pythonConfig
		most   int // bytes of a message
	}{
		"clean": {most: 1 << 20},
		"lossy": {pythonConfig{faults: lossy}, 1 << 20},
		// Each packet, also the last of all: only PROBEs show it.
		"all lost": {pythonConfig{faults: orders{"lose_in": 1, "lose_out": 1}}, 100_000},
		"IPv6":     {pythonConfig{faults: worse, v6: true}, 100_000},
		"encrypted": {pythonConfig{faults: worse, secret: privacy.Generate(), packets: 40},
			100_000},
		"encrypted, readable": {pythonConfig{faults: lossy, v6: true, secret: privacy.Generate(),
			readable: true}, 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			p := startPython(t, c.python)
			config := c.python.config(t)
			config.Engines = 2
			e := open(t, config)
			peer := p.meet(e)
			there, thereSize := interopMessages(0xAA000000, c.most)
			here, hereSize := interopMessages(0xBB000000, c.most)
			region := make([]byte, hereSize)
			r, err := e.Register(region, transports.RemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			const key = 0xC0FFEE0123456789
			p.region(key, thereSize)
			for i, m := range here {
				p.tell(orders{"op": "write", "life": e.Life(), "id": i,
					"key": binary.BigEndian.Uint64(r.Remote()), "offset": m.offset, "data": m.data,
					"immediate": m.imm})
			}
			for i, m := range there {
				q := transports.Request{ID: uint64(i), Op: transports.OpWrite, Peer: peer, Local: m.data,
					Remote: binary.BigEndian.AppendUint64(nil, key), Offset: uint64(m.offset)}
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
				t.Errorf("peer.py has other bytes than were sent, from %d on",
					differ(got, want(there, thereSize)))
			}
			if !bytes.Equal(region, want(here, hereSize)) {
				t.Errorf("other bytes than peer.py sent, from %d on", differ(region, want(here, hereSize)))
			}
			p.checkCounts(e)
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
		case <-time.After(hosttest.Bound):
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
		case c.Err == nil && c.Op != transports.OpReceive && c.Op != transports.OpPeerDown && !ids[c.ID] &&
			c.Bytes == len(sent[c.ID].data):
			ids[c.ID] = true
		default:
			t.Fatalf("completion %+v", c)
		}
	}
}

func nextCompletion(t *testing.T, e *Endpoint) transports.Completion {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Bound)
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
func (p *python) checkCounts(e *Endpoint) {
	t, c, faults := p.t, e.Counters(), p.faults
	p.tell(orders{"op": "stats"})
	s := p.await("stats").stats
	t.Logf("here %+v\nthere %v", c, s)
	if c.Hostile+c.Corrupt+c.Foreign+c.Refused+c.Forged+c.Unprotected > 0 ||
		c.Trimmed > uint64(s["trimmed_out"]) {
		t.Errorf(
			"what peer.py sends is counted as hostile, corrupt, foreign, refused, forged or trimmed: %+v", c)
	}
	if s["invalid"]+s["dropped"]+s["twice"]+s["rejects_in"]+s["rejects_out"]+s["forged"]+s["replayed"] > 0 ||
		s["nacks_in"] > s["trimmed_out"] || s["nacks_out"] > s["trimmed_in"] {
		t.Errorf("what this side sends is invalid or refused: %v", s)
	}
	for fault, count := range map[string]string{"lose_in": "lost_in", "lose_out": "lost_out",
		"lose_acks": "lost_acks", "double_out": "doubled",
		"delay_out": "delayed", "trim_in": "trimmed_in", "trim_out": "trimmed_out"} {
		if _, wanted := faults[fault]; wanted != (s[count] > 0) {
			t.Errorf("%s is %d", count, s[count])
		}
	}
	if c.Repeated < uint64(s["lost_in"]+s["trimmed_in"]) || s["repeated"] < s["lost_out"]+s["trimmed_out"] ||
		c.Duplicates+c.Replayed < uint64(s["doubled"]) {
		t.Error("fewer packets were sent again than lost, or fewer came twice than were sent twice")
	}
	if _, trims := faults["trim_in"]; trims && (s["nacks_in"] == 0 || s["nacks_out"] == 0) {
		t.Error("nobody said what was trimmed")
	}
	if p.packets > 0 && (s["epochs_in"] == 0 || s["epochs_out"] == 0) {
		t.Error("keys were not changed")
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
	p := startPython(t, pythonConfig{})
	e := open(t, Config{})
	peer, err := e.AddPeer(p.address()) // peer.py adds it later, and until then calls it a stranger
	if err != nil {
		t.Fatal(err)
	}
	const key, short = 0xC0FFEE0123456789, 1000
	p.region(key, short)
	data := bytes.Repeat([]byte{7}, 30_000)
	post := func(id uint64, key uint64, data []byte) {
		t.Helper()
		q := transports.Request{ID: id, Op: transports.OpWriteImm, Imm: uint32(id), Peer: peer, Local: data,
			Remote: binary.BigEndian.AppendUint64(nil, key)}
		if n, err := e.Post(t.Context(), []transports.Request{q}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	post(1, key+1, data)
	post(2, key, data)
	post(3, key, data[:short])
	hosttest.Until(t, "a reject", func() bool {
		p.tell(orders{"op": "stats"})
		return p.await("stats").stats["rejects_out"] > 0
	})
	p.tell(p.peer(e))
	for range 3 {
		if c := nextCompletion(t, e); (c.ID == 3) != (c.Err == nil) ||
			c.Err != nil && !errors.Is(c.Err, transports.ErrAccess) {
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
		p.tell(orders{"op": "write", "life": e.Life(), "id": i, "key": w.key, "offset": 0, "data": w.data,
			"immediate": i})
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
	if c := e.Counters(); s["rejects_out"] == 0 || s["nacks_out"] == 0 || s["nacks_in"] == 0 ||
		s["skips_out"] == 0 || s["skips_in"] == 0 || s["invalid"]+s["dropped"]+s["twice"] > 0 ||
		c.Hostile+c.Corrupt+c.Foreign > 0 {
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
	if _, err := other.Post(t.Context(),
		[]transports.Request{{Op: transports.OpWriteImm, Peer: gone}}); err != nil {
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
