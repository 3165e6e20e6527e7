package rdchecks

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/testkit/verifytest"
	"railbed/transports"
	"railbed/transports/rd/engine"
	"railbed/transports/rd/path"
)

// speaker is a rank whose packets an engine of rd makes, and not the test.
type speaker struct {
	*engine.Engine
	rank      int
	other     *speaker
	s         *verifytest.Scene
	random    *rand.Rand
	events    *clock.Queue[func(clock.Time)]
	region    engine.Region
	alarm     clock.Time
	canceled  int
	completed int
}

func (h *speaker) Region(uint64) *engine.Region { return &h.region }

func (h *speaker) Reserve() bool { return true }

func (h *speaker) Deliver(transports.Completion) {}

func (h *speaker) Failed(transports.Peer, error) { h.s.T.Error("a peer failed") }

func (h *speaker) Complete(c transports.Completion) {
	if h.completed++; errors.Is(c.Err, transports.ErrCanceled) {
		h.canceled++
	}
}

// speakers are ranks 0 and 1, which know each other.
func speakers(s *verifytest.Scene, seed uint64, events *clock.Queue[func(clock.Time)]) (pair [2]*speaker) {
	s.RDRanks(4)
	s.Step = 0
	random := rand.New(rand.NewPCG(seed, 7))
	for i := range pair {
		pair[i] = &speaker{rank: i, s: s, random: random, events: events,
			region: engine.Region{Memory: make([]byte, 1<<20), Writable: true}}
		pair[i].Engine = engine.New(engine.Config{
			Life:      verifytest.RDLife(i),
			Port:      32,
			Payload:   verifytest.RDPayloadBytes,
			FirstPath: wire.PortRDPath,
			Room:      64,
			Pacer:     engine.NewPacer(1_000_000_000),
			Paths: func() path.Chooser {
				chooser, err := path.New(path.KindOblivious, verifytest.RDPaths, path.Options{Seed: seed})
				if err != nil {
					s.T.Fatal(err)
				}
				return chooser
			},
		}, pair[i])
	}
	pair[0].other, pair[1].other = pair[1], pair[0]
	for i, h := range pair {
		h.AddPeer(engine.Peer{Life: verifytest.RDLife(1 - i), Port: 32, Engines: 1, Room: 64})
	}
	return pair
}

// drive sends what may go: it is seen at taps, and some of it is lost behind the
// sender's NIC.
func (h *speaker) drive(now clock.Time) {
	var p engine.Packet
	for h.Next(now, &p) {
		d := wire.RD(append(bytes.Clone(p.Header), p.Payload...))
		h.s.Now = max(h.s.Now+1, verifytest.Start+int64(now))
		h.s.RD(h.rank, 1-h.rank, max(p.Path, 0), d)
		if h.random.IntN(12) == 0 {
			id, left := h.s.IDs, h.s.Now
			h.s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Time > left+200 })
			continue
		}
		at := uint16(wire.PortRDPath + max(p.Path, 0))
		h.events.Push(clock.Time(h.s.Now-verifytest.Start).Add(10*time.Microsecond), func(now clock.Time) {
			h.other.Receive(now, engine.Arrival{Data: d, Path: at, From: h.s.Workload.Ranks[h.rank].Addr})
			h.other.drive(now)
		})
	}
	if at := h.Deadline(); at != clock.Never && (h.alarm <= now || at < h.alarm) {
		h.alarm = max(at, now+1)
		h.events.Push(h.alarm, h.drive)
	}
}

// played is a recording of 30 messages that one rank sends to another, by real
// engines; each second is canceled about when it is sent. It says how many were.
func played(t *testing.T, seed uint64) (s *verifytest.Scene, canceled int) {
	s = verifytest.NewScene(t)
	var events clock.Queue[func(clock.Time)]
	a := speakers(s, seed, &events)[0]
	for i := range uint64(30) {
		m := engine.Message{ID: i, Op: transports.OpWriteImm, Local: make([]byte,
			20*verifytest.RDPayloadBytes), Key: 7, Imm: uint32(i)}
		if taken, err := a.Post(0, 0, &m); !taken || err != nil {
			t.Fatal(taken, err)
		}
		if i%2 == 0 {
			at := time.Duration(i)*180*time.Microsecond +
				time.Duration(a.random.Int64N(int64(400*time.Microsecond)))
			events.Push(clock.Time(at), func(now clock.Time) {
				a.Cancel(now, 0, m.Number, transports.ErrCanceled)
				a.drive(now)
			})
		}
	}
	a.drive(0)
	for events.Len() > 0 {
		now, do := events.Pop()
		do(now)
	}
	if a.completed != 30 {
		t.Fatalf("seed %d: %d messages completed", seed, a.completed)
	}
	s.Now += 100_000_000
	return s, a.canceled
}

// TestCanceledByEngines: a real sender cancels messages at any moment, while packets are lost.
// These messages do not count as lost. In the same recording without the arrival of the skips that
// end them, they do count as lost.
func TestCanceledByEngines(t *testing.T) {
	begun := 0
	for seed := range uint64(10) {
		s, canceled := played(t, seed)
		results, _ := s.Run(newPlaced())
		found := int(results[0].Measured["canceled"])
		if results[0].Verdict != pass || found > canceled ||
			int(results[0].Measured["placed"]) < 30-canceled {
			t.Errorf("seed %d: %d were canceled: %v", seed, canceled, results[0])
		}
		if begun += found; found == 0 {
			continue
		}
		s, _ = played(t, seed)
		s.Sightings = hideSkips(s.Sightings)
		if results, _ = s.Run(newPlaced()); results[0].Verdict != fail {
			t.Errorf("seed %d, without skips: %v", seed, results[0])
		}
	}
	if begun < 20 {
		t.Errorf("%d canceled messages had begun", begun)
	}
}

// hideSkips returns the sightings without arriving skips and without acknowledgements.
func hideSkips(all []verifytest.Sighting) (kept []verifytest.Sighting) {
	for _, k := range all {
		if d := verifytest.DatagramOf(k.Frame); d.Type() != wire.RDSkip && d.Type() != wire.RDAck ||
			k.Tap == "h0:eth0" && k.Out {
			kept = append(kept, k)
		}
	}
	return kept
}
