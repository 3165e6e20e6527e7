package rd

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/transports"
)

// TestRegionCloses checks that nothing is written into a region after Close has returned. This
// includes a message that began before, whose sender gets an error.
func TestRegionCloses(t *testing.T) {
	const rate = 2_000_000 // the message would take 2 s
	a, b := open(t, Config{Rate: rate, Engines: 2}), open(t, Config{Engines: 2})
	peer, err := a.AddPeer(b.Address())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.AddPeer(a.Address()); err != nil {
		t.Fatal(err)
	}
	memory := make([]byte, 500_000)
	region, err := b.Register(memory, transports.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	post(t, a, transports.Request{ID: 1, Op: transports.OpWriteImm, Peer: peer,
		Local: bytes.Repeat([]byte{1}, len(memory)), Remote: region.Remote()})
	hosttest.Until(t, "some packets", func() bool { return b.Counters().Received > 3 })
	if err := region.Close(); err != nil {
		t.Fatal(err)
	}
	kept := bytes.Clone(memory)
	if c := nextCompletion(t, a); c.ID != 1 || !errors.Is(c.Err, transports.ErrAccess) {
		t.Errorf("completion %+v", c)
	}
	time.Sleep(20 * time.Millisecond) // of the packets that were under way
	if !bytes.Equal(memory, kept) || bytes.Count(kept, []byte{1}) == len(kept) {
		t.Errorf("%d bytes were written, %d of them before", bytes.Count(memory, []byte{1}),
			bytes.Count(kept, []byte{1}))
	}
}

// TestFamilies holds that an endpoint takes no peer at an address of the other family,
// and says at once that it has room for some packets.
func TestFamilies(t *testing.T) {
	four, six := open(t, Config{}), open(t, Config{Addr: netip.IPv6Loopback()})
	for _, pair := range [][2]*Endpoint{{four, six}, {six, four}} {
		if _, err := pair[0].AddPeer(pair[1].Address()); err == nil {
			t.Errorf("%v took a peer at %v", pair[0].config.Addr, pair[1].config.Addr)
		}
		if room := pair[0].self.room; room < 2 || int(room) > 64 {
			t.Errorf("%v has room for %d", pair[0].config.Addr, room)
		}
	}
}
