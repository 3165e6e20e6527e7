package rd

import (
	"errors"
	"testing"
	"time"

	"railbed/testkit/privacytest"
	"railbed/transports"
)

// TestAddressTaken checks that an owner that adds another endpoint at a peer's address need not
// wait for the peer's timeout: the requests outstanding to the peer end at once.
func TestAddressTaken(t *testing.T) {
	for name, c := range map[string]Config{"clear": {}, "encrypted": {Secret: privacytest.Secret()}} {
		t.Run(name, func(t *testing.T) {
			c.PeerTimeout = time.Hour
			a := open(t, c)
			c.Addr = ownLoopback()
			b := open(t, c)
			old, err := a.AddPeer(b.Address())
			if err != nil {
				t.Fatal(err)
			}
			beside := open(t, c) // at the address, and other ports
			if _, err := a.AddPeer(beside.Address()); err != nil {
				t.Fatal(err)
			}
			post(t, a, transports.Request{ID: 1, Op: transports.OpWriteImm, Peer: old})
			b.Close() // it was not told of a, and says nothing to it
			again := open(t, c)
			added, err := a.AddPeer(again.Address())
			if err != nil {
				t.Fatal(err)
			}
			if c := nextCompletion(t, a); c.ID != 1 || !errors.Is(c.Err, transports.ErrPeerFailed) {
				t.Errorf("completion %+v", c)
			}
			if c := nextCompletion(t, a); c.Op != transports.OpPeerDown || c.Peer != old {
				t.Errorf("completion %+v", c)
			}
			if _, err := again.AddPeer(a.Address()); err != nil {
				t.Fatal(err)
			}
			post(t, a, transports.Request{ID: 2, Op: transports.OpWriteImm, Imm: 2, Peer: added})
			if c := nextCompletion(t, a); c.ID != 2 || c.Err != nil {
				t.Errorf("completion %+v", c)
			}
			if c := nextCompletion(t, again); c.Imm != 2 {
				t.Errorf("completion %+v", c)
			}
		})
	}
}
