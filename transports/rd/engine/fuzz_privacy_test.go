package engine

import (
	"bytes"
	"testing"
	"time"

	"railbed/fabric/clock"
)

// FuzzEncrypted lets bytes forge packets, and replay genuine ones, between peers
// that encrypt, by somebody who knows all but the secret: every message between
// them comes, whole and once, and nobody is taken for dead.
func FuzzEncrypted(f *testing.F) {
	f.Add([]byte{3, 200, 0, 8, 100, 10, 0, 0, 0, 0, 0, 1, 50})
	secret := testSecret(f)
	f.Fuzz(func(t *testing.T, script []byte) {
		x := newAttack(t, script, secret)
		x.talk(x.a, x.b, 2000)
		x.talk(x.b, x.a, 3000)
		x.talk(x.a, x.c, 2000)
		x.play()
		x.a.full = false
		x.talk(x.a, x.b, 5000)
		x.order = 19_000_000
		x.run(x.now.Add(20 * time.Second))
		x.checkGuards()
		for r, before := range x.closed {
			if !bytes.Equal(r.Memory, before) {
				t.Fatal("a closed region was written to")
			}
		}
		if x.honest != 0 {
			t.Fatalf("%d messages did not come; %v", x.honest, x.failures())
		}
		for _, n := range x.nodes {
			if err := n.consistent(); err != nil {
				t.Fatalf("%v: %v", n, err)
			}
			if len(n.failed) > 0 {
				t.Fatalf("%v took a peer for dead: %v", n, n.failed)
			}
			for id, open := range x.posted[n] {
				if open != 0 {
					t.Fatalf("%v: message %d is still to complete %d times:%s", n, id, open, n.state())
				}
			}
			if text := n.state(); text != "" || n.Deadline() != clock.Never {
				t.Fatalf("%v is not quiet at %v:%s", n, n.Deadline(), text)
			}
		}
	})
}
