package capture

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestPassages(t *testing.T) {
	const second = int64(time.Second)
	p := newPassages(time.Second)
	p.push(7, 1, 10)
	p.push(7, 2, 20)
	p.push(7, 3, 30)
	p.push(8, 4, 40)
	p.remove(7, 2)
	p.remove(9, 2)
	for _, c := range []struct {
		key      uint64
		from, to int64
		want     uint64 // 0 is none
	}{{7, 0, 5, 0}, {7, 0, 100, 1}, {7, 31, 100, 0}, {7, 0, 100, 0}, {8, 0, 40, 4}, {8, 0, 40, 0}} {
		if got, found := p.pop(c.key, c.from, c.to); got != c.want || found != (c.want != 0) {
			t.Errorf("pop %d from %d to %d is %d, %v; want %d", c.key, c.from, c.to, got, found, c.want)
		}
	}
	// Those of the last window are found, in their order, and those of long ago are not.
	p.push(1, 1, 50)
	p.push(1, 2, second+100)
	p.push(1, 3, second+200)
	for _, want := range []uint64{1, 2, 3} {
		if got, _ := p.pop(1, 0, 2*second); got != want {
			t.Errorf("popped %d, want %d", got, want)
		}
	}
	p.push(2, 1, 2*second)
	for i := range int64(4) {
		p.push(uint64(100+i), 1, (4+2*i)*second)
	}
	if got, found := p.pop(2, 0, 20*second); found || len(p.young)+len(p.old) > 2 {
		t.Errorf("found %d of long ago, and hold %d and %d lanes", got, len(p.young), len(p.old))
	}
}

// TestJoinerPairsEqualPackets has bursts of equal packets cross from a node to the
// switch and from the switch to a node. Some are lost by the tap at the sender, and
// counted there; the records of some come late, as after a pause. Each
// packet of a tap has the id of its own serial.
func TestJoinerPairsEqualPackets(t *testing.T) {
	const tick, behind = int64(time.Millisecond), 20
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 6))
		j := newJoiner("run")
		at := int64(1e18)
		sent := map[uint64]uint64{} // id by serial
		var late []passage          // serials whose records have not come
		tell := func() {
			for _, one := range late {
				j.enter(1, one.value, one.time+20_000)
			}
			late = nil
		}
		for serial := uint64(1); serial <= 2000; serial++ {
			at += tick
			seen := random.IntN(10) > 0 || len(late) > 0
			switch {
			case len(late) > 0 && len(late) < behind || random.IntN(50) == 0 && seen:
				sent[serial] = j.sent(1, at)
				late = append(late, passage{serial, at})
			default:
				tell()
				j.enter(1, serial, at+20_000)
				if seen {
					sent[serial] = j.sent(1, at)
				}
			}
		}
		tell()
		for serial, id := range sent {
			if j.id(serial) != id {
				t.Fatalf("seed %d: serial %d has the id %#x at the switch and %#x at the node's NIC", seed,
					serial, j.id(serial), id)
			}
		}
		for serial := uint64(1); serial <= 2000; serial += 10 {
			for i := range uint64(10) {
				j.left.push(2, serial+i, at+int64(i))
			}
			j.left.remove(2, serial+3) // the node's queue had no room for it
			for i := range uint64(10) {
				if id := j.id(serial + i); i != 3 && j.arrived(2, at+500+int64(i)) != id {
					t.Fatalf("seed %d: serial %d arrived with another id than %#x", seed, serial+i, id)
				}
			}
			at += tick
		}
		if a, b := j.arrived(2, at), j.arrived(2, at); a == b || a == 0 {
			t.Errorf("two packets without a record have the ids %#x and %#x", a, b)
		}
	}
}
