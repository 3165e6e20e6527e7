package rd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"railbed/testkit/hosttest"
	"railbed/transports"
	"railbed/transports/rd/privacy"
)

const interopKey = 0xC0FFEE0123456789

// interopRemote is its handle.
var interopRemote = binary.BigEndian.AppendUint64(nil, interopKey)

// pattern is bytes of which none is 0.
func pattern(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i%251) + 1
	}
	return b
}

// withHoles returns a region's content after a message with holes.
func withHoles(data []byte, holes []transports.Hole) (b []byte, missing int) {
	b = bytes.Clone(data)
	for _, h := range holes {
		clear(b[h.Offset:][:h.Bytes])
		missing += h.Bytes
	}
	return b, missing
}

// TestInteropHoles has each side leave out what was lost, as far as the message may
// have holes: both agree on which bytes are missing, and on nothing else.
func TestInteropHoles(t *testing.T) {
	const size, droppable = 100_000, 12_000
	for name, c := range map[string]pythonConfig{
		"clear":     {faults: orders{"lose_in": 7, "lose_out": 6, "trim_in": 17}},
		"encrypted": {faults: orders{"lose_in": 6, "lose_out": 7}, v6: true, secret: privacy.Generate()},
	} {
		t.Run(name, func(t *testing.T) {
			p := startPython(t, c)
			e := open(t, c.config(t))
			peer := p.meet(e)
			data := pattern(size)
			p.region(interopKey, size)
			post(t, e, transports.Request{ID: 1, Op: transports.OpWriteImm, Imm: 1, Peer: peer, Local: data,
				Remote: interopRemote, Droppable: droppable})
			came := p.await("came")
			var holes []transports.Hole
			for _, h := range came.Holes {
				holes = append(holes, transports.Hole{Offset: h[0], Bytes: h[1]})
			}
			p.tell(orders{"op": "read", "key": uint64(interopKey)})
			expect, missing := withHoles(data, holes)
			if got := p.await("bytes").Data; !bytes.Equal(got, expect) || missing != came.Missing ||
				missing == 0 || missing > droppable {
				t.Errorf("peer.py misses %d bytes, of them %d told, and has others from %d on", missing,
					came.Missing, differ(got, expect))
			}
			if s := nextCompletion(t, e); s.Err != nil || s.Missing < missing || s.Missing > droppable ||
				s.Bytes+s.Missing != size {
				t.Errorf("completion %+v, and peer.py misses %d bytes", s, missing)
			}

			region := make([]byte, size)
			r, err := e.Register(region, transports.RemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			p.tell(orders{"op": "write", "life": e.Life(), "id": 2,
				"key": binary.BigEndian.Uint64(r.Remote()), "offset": 0, "data": data, "immediate": 2,
				"droppable": droppable})
			got := nextCompletion(t, e)
			if expect, missing = withHoles(data, got.Holes); got.Imm != 2 || !bytes.Equal(region, expect) ||
				missing != got.Missing || missing == 0 || missing > droppable || got.Bytes != size-missing {
				t.Errorf("completion %+v; other bytes from %d on", got, differ(region, expect))
			}
			if s := p.await("sent"); s.Error != "" || s.Missing < missing || s.Missing > droppable {
				t.Errorf("peer.py says %+v, and %d bytes are missing", s, missing)
			}
			p.tell(orders{"op": "stats"})
			if s, c := p.await("stats").stats,
				e.Counters(); s["skips_in"] == 0 || s["skips_out"] == 0 ||
				s["invalid"]+s["dropped"]+s["twice"]+s["forged"] > 0 || c.Hostile+c.Corrupt+c.Forged > 0 {
				t.Errorf("here %+v\nthere %v", c, s)
			}
		})
	}
}

// TestInteropCanceled makes each side cancel a partly received message, and a message that was not
// sent. The other side reports neither of them, but the next message.
func TestInteropCanceled(t *testing.T) {
	const size, whole = 16 << 20, 30_000
	// Neither side can send all of the message before it is canceled.
	p := startPython(t, pythonConfig{faults: orders{"hold": 200_000, "lose_in": 7, "lose_out": 9}})
	e := open(t, Config{Rate: 8_000_000})
	peer := p.meet(e)
	p.region(interopKey, size)
	data := pattern(size)
	ctx, cancel := context.WithCancel(t.Context())
	for id := range uint64(2) { // the second waits for the first
		post(t, e, transports.Request{ID: id, Op: transports.OpWriteImm, Imm: 1, Peer: peer,
			Local: data[:size/2], Remote: interopRemote, Offset: id * size / 2, Context: ctx})
	}
	post(t, e, transports.Request{ID: 2, Op: transports.OpWriteImm, Imm: 2, Peer: peer, Local: data[:whole],
		Remote: interopRemote, Offset: size - whole})
	hosttest.Until(t, "the first packets", func() bool { return e.Counters().Sent >= 20 })
	cancel()
	for range 3 {
		if c := nextCompletion(t, e); (c.ID == 2) != (c.Err == nil) ||
			c.Err != nil && !errors.Is(c.Err, transports.ErrCanceled) {
			t.Errorf("completion %+v", c)
		}
	}
	if c := p.await("came"); *c.Immediate != 2 || c.Total != whole {
		t.Errorf("peer.py received %+v", c)
	}

	region := make([]byte, size)
	r, err := e.Register(region, transports.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	write := func(id, bytes, offset int) {
		p.tell(orders{"op": "write", "life": e.Life(), "id": id, "key": binary.BigEndian.Uint64(r.Remote()),
			"offset": offset, "data": data[:bytes], "immediate": id})
	}
	before := e.Counters().ReceivedBytes
	write(3, 1<<20, 0)
	write(4, 1<<20, 0)
	hosttest.Until(t, "a part of the message",
		func() bool { return e.Counters().ReceivedBytes >= before+100_000 })
	p.tell(orders{"op": "cancel", "life": e.Life(), "id": 4})
	p.tell(orders{"op": "cancel", "life": e.Life(), "id": 3})
	for _, id := range []int{4, 3} {
		if s := p.await("sent"); s.ID != id || s.Error != "canceled" {
			t.Errorf("peer.py says %+v of message %d", s, id)
		}
	}
	clear(region[:1<<20]) // nothing more of it is written
	write(5, whole, size-whole)
	if c := nextCompletion(t, e); c.Op != transports.OpReceive || c.Imm != 5 || c.Bytes != whole {
		t.Errorf("completion %+v", c)
	}
	if s := p.await("sent"); s.ID != 5 || s.Error != "" || !bytes.Equal(region[size-whole:], data[:whole]) ||
		len(bytes.Trim(region[:1<<20], "\x00")) > 0 {
		t.Errorf("peer.py says %+v, or there are other bytes", s)
	}
	p.tell(orders{"op": "stats"})
	// Message 3 had begun when it was canceled, message 4 perhaps not.
	if s, c := p.await("stats").stats,
		e.Counters(); s["skips_in"] < 2 || s["skips_out"] < 1 || s["invalid"]+s["dropped"]+s["twice"] > 0 ||
		c.Hostile+c.Corrupt > 0 {
		t.Errorf("here %+v\nthere %v", c, s)
	}
}

// post posts one request that is taken.
func post(t *testing.T, e *Endpoint, r transports.Request) {
	t.Helper()
	if n, err := e.Post(t.Context(), []transports.Request{r}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
}
