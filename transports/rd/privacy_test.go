package rd

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"railbed/testkit/privacytest"
	"railbed/transports"
	"railbed/transports/rd/privacy"
)

// TestWhoEncrypts checks that an endpoint that encrypts and another that does not cannot be peers.
// It checks that endpoints with different secrets accept nothing from each other.
func TestWhoEncrypts(t *testing.T) {
	clear, sealed := open(t, Config{}),
		open(t, Config{Secret: privacytest.Secret(), PeerTimeout: time.Second})
	if _, err := clear.AddPeer(sealed.Address()); err == nil || !strings.Contains(err.Error(), "no secret") {
		t.Errorf("a peer that encrypts: %v", err)
	}
	if _, err := sealed.AddPeer(clear.Address()); err == nil ||
		!strings.Contains(err.Error(), "does not encrypt") {
		t.Errorf("a peer that does not: %v", err)
	}
	secret, err := privacy.New(privacy.Generate())
	if err != nil {
		t.Fatal(err)
	}
	stranger := open(t, Config{Secret: secret, PeerTimeout: time.Second})
	peer, err := sealed.AddPeer(stranger.Address())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.AddPeer(sealed.Address()); err != nil {
		t.Fatal(err)
	}
	memory := make([]byte, 100)
	region, err := stranger.Register(memory, transports.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if n, err := sealed.Post(ctx, []transports.Request{{Op: transports.OpWriteImm, Peer: peer,
		Local: bytes.Repeat([]byte{1}, 100), Remote: region.Remote()}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for done := make([]transports.Completion, 1); ; {
		if err := sealed.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if sealed.Poll(done) == 1 {
			if !errors.Is(done[0].Err, transports.ErrPeerFailed) {
				t.Errorf("%+v", done[0])
			}
			break
		}
	}
	if c := stranger.Counters(); c.Forged == 0 || c.Received != 0 || !bytes.Equal(memory, make([]byte, 100)) {
		t.Errorf("%+v", c)
	}
}
