package engine

import (
	"testing"

	"railbed/testkit/privacytest"
)

// FuzzEncrypted lets bytes forge packets, and replay genuine ones, between peers that encrypt. The
// attacker knows all but the secret. Every message between the peers arrives, whole and once, and
// no peer fails.
func FuzzEncrypted(f *testing.F) {
	f.Add([]byte{3, 200, 0, 8, 100, 10, 0, 0, 0, 0, 0, 1, 50})
	secret := privacytest.Secret()
	f.Fuzz(func(t *testing.T, script []byte) {
		x := newAttack(t, script, secret)
		x.talk(x.a, x.b, 2000)
		x.talk(x.b, x.a, 3000)
		x.talk(x.a, x.c, 2000)
		x.play()
		x.a.full = false
		x.talk(x.a, x.b, 5000)
		x.settle(t, func(n *testNode) bool { return len(n.failed) > 0 })
	})
}
