package follow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	golayers "github.com/google/gopacket/layers"

	"railbed/capture/bundle"
	"railbed/capture/follow"
	"railbed/capture/report"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// readRun follows the packets of a scene as the recording of a run.
func readRun(t *testing.T, s *verifytest.Scene, told report.Report) *follow.Recording {
	t.Helper()
	dir := t.TempDir()
	told.Format = report.Format
	for name, document := range map[string]any{bundle.PlanFile: s.Plan, report.JSONFile: told} {
		text, err := json.Marshal(document)
		if err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	err := os.WriteFile(filepath.Join(dir, "run.pcapng"), s.Write(), 0o600)
	run, opened := bundle.Open(dir)
	if err = errors.Join(err, opened); err != nil {
		t.Fatal(err)
	}
	r, err := follow.ReadRun(t.Context(), run)
	if err = errors.Join(err, run.Close()); err != nil {
		t.Fatal(err)
	}
	return r
}

// texts formats the causes of the messages from a node.
func texts(t *testing.T, r *follow.Recording, from string) (text string) {
	t.Helper()
	answers := r.Why(r.Select(follow.Selection{From: from}))
	if len(answers) != 1 {
		t.Fatalf("answers %+v", answers)
	}
	for _, c := range answers[0].Causes {
		text += fmt.Sprintf("%s at %s: %s\n", c.Part, strings.Join(c.Where, ", "), c.What)
	}
	return text
}

// hit adds the record of a fault at a tap, for a packet that passed the tap.
func hit(s *verifytest.Scene, id uint64, tap, does string) {
	one := s.Of(id, tap, true)
	one.Record, one.Comment = true, "railbed verdict="+does+" reason=fault name=f1 depth=0 late=0ns"
	s.Insert(one)
}

// lose makes the record of a packet at a tap the packet's last, and the record of its drop.
func lose(s *verifytest.Scene, id uint64, tap, reason string) {
	kept := s.Of(id, tap, false)
	s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Time > kept.Time })
	kept.Comment, kept.Time = "railbed verdict=drop reason="+reason+" depth=0 late=0ns", kept.Time+10
	s.Insert(kept)
}

// write is the i-th write of one segment.
func write(i uint32) golayers.TCP { return golayers.TCP{Seq: 1 + i*946, ACK: true, PSH: true} }

// TestWhyNamesFaultsThatHoldPacketsBack: a fault holds one of four packets back for 8 ms, at a NIC or at a
// port to a NIC. The time is the fault's, and the fault is the first cause, although most other packets wait
// in a queue for 40 ms.
func TestWhyNamesFaultsThatHoldPacketsBack(t *testing.T) {
	const by = 8_000
	for _, test := range []struct {
		tap   string
		stamp int // the first that is later
		crowd bool
	}{{"h0:eth0", 1, false}, {"leaf1:p1", 3, false}, {"h0:eth0", 1, true}, {"leaf1:p1", 3, true}} {
		s := pair(t)
		for i := range uint32(40) {
			at := unhindered(int64(i) * 100_000)
			if i%4 == 1 {
				for k := test.stamp; k < len(at); k++ {
					at[k] += by
				}
			} else if test.crowd && i%4 > 1 {
				at[2], at[3] = at[2]+40_000, at[3]+40_000
			}
			if id := pass(s, false, at, write(i), true); i%4 == 1 {
				hit(s, id, test.tap, "delay")
			}
		}
		answer, text := causes(t, s)
		wantFirst(t, text, "fault at "+test.tap+": delayed packets: fault f1\n")
		if c := answer.Causes[0]; c.Extra.Microseconds() != 10*by || c.Messages != 10 || !c.Injected {
			t.Errorf("%+v: %+v", test, c)
		}
	}
}

// TestWhyJoinsWhatAFaultDid: a fault holds the first packet of each other message back, and the sender sends
// it again before it arrives. The fault also drops a packet. All that is one cause.
func TestWhyJoinsWhatAFaultDid(t *testing.T) {
	s := pair(t)
	for i := range uint32(40) {
		at := unhindered(int64(i) * 100_000)
		if i%2 == 0 {
			pass(s, false, at, write(i), true)
			continue
		}
		late := at
		late[1], late[2], late[3] = at[1]+50_000, at[2]+50_000, at[3]+50_000
		id := pass(s, false, late, write(i), true)
		if i == 21 {
			lose(s, id, "leaf1:p0", "fault name=f1")
		} else {
			hit(s, id, "h0:eth0", "delay")
		}
		pass(s, false, unhindered(at[0]+20_000), write(i), true)
	}
	answer, text := causes(t, s)
	wantFirst(t, text, "fault at h0:eth0: delayed packets: fault f1; it led to: packets were sent "+
		"again that had arrived, dropped packets: fault f1 at leaf1:p0\n")
	if c := answer.Causes[0]; c.Messages != 20 || c.Extra.Milliseconds() != 20*20 || len(answer.Causes) > 1 {
		t.Errorf("the causes are\n%s%+v", text, c)
	}
}

// TestWhyNamesFaultsThatChangePackets: a fault changes a packet at h0's NIC. The receiver does not take it,
// or the switch drops it.
func TestWhyNamesFaultsThatChangePackets(t *testing.T) {
	for _, test := range []struct{ does, dropped, first string }{
		{"corrupt", "", "recover at h0:eth0: corrupted packets: fault f1\n"},
		{"truncate", "", "recover at h0:eth0: truncated packets: fault f1\n"},
		{"rewrite", "malformed", "recover at h0:eth0: rewritten packets: fault f1; it led to: dropped " +
			"packets: malformed at leaf1:p0\n"},
	} {
		s := pair(t)
		for i := range uint32(20) {
			id := pass(s, false, unhindered(int64(i)*50_000), write(i), true)
			if i != 10 {
				continue
			}
			hit(s, id, "h0:eth0", test.does)
			s.Change(func(k verifytest.Sighting) bool { return k.ID == id && k.Tap != "h0:eth0" },
				func(k *verifytest.Sighting) {
					k.Frame = slices.Clone(k.Frame)
					k.Frame[100] ^= 4
				})
			if test.dropped != "" {
				lose(s, id, "leaf1:p0", test.dropped)
			}
			pass(s, false, unhindered(int64(i)*50_000+20_000), write(i), true)
		}
		_, text := causes(t, s)
		wantFirst(t, text, test.first)
	}
}

// TestWhyMakesALinkThatIsDownOneCause: packets to h1 have no route while h1's link is down. The link's own
// losses or the run's report show when that is.
func TestWhyMakesALinkThatIsDownOneCause(t *testing.T) {
	const down = "recover at h1--leaf1: the link was down"
	step := func(from, to int64) report.Report {
		at := func(us int64) time.Time { return time.Unix(0, verifytest.Start+us*1000) }
		return report.Report{Acts: []report.Act{{Step: "link h1--leaf1 down", Kind: "down",
			Links: []string{"h1--leaf1"}, From: at(from), To: at(to)}}}
	}
	for what, test := range map[string]struct {
		lost  bool // h1 loses packets, too
		told  report.Report
		first string
	}{
		"recorded": {lost: true, first: down + "; it led to: dropped packets: no-route at leaf1:p0\n"},
		"told": {told: step(500_000, 620_000), first: down + `, by the step "link h1--leaf1 down"; ` +
			"it led to: dropped packets: no-route at leaf1:p0\n"},
		"both": {lost: true, told: step(500_000, 620_000), first: down +
			`, by the step "link h1--leaf1 down"; ` + "it led to: dropped packets: no-route at leaf1:p0\n"},
		"later":  {told: step(700_000, 800_000), first: "recover at leaf1:p0: dropped packets: no-route\n"},
		"no one": {first: "recover at leaf1:p0: dropped packets: no-route\n"},
	} {
		t.Run(what, func(t *testing.T) {
			s := pair(t)
			for i := range uint32(20) {
				at := int64(i) * 50_000
				id := pass(s, false, unhindered(at), write(i), true)
				if i != 11 {
					pass(s, true, unhindered(at+1000), golayers.TCP{Seq: 1, ACK: true, Ack: 1 + (i+1)*946},
						false)
					continue
				}
				lose(s, id, "leaf1:p0", "no-route")
				if test.lost {
					back := pass(s, true, unhindered(at-500), golayers.TCP{Seq: 1, ACK: true, Ack: 1}, false)
					s.Remove(func(k verifytest.Sighting) bool { return k.ID == back && k.Tap != "h1:eth0" })
					s.Change(func(k verifytest.Sighting) bool { return k.ID == back },
						func(k *verifytest.Sighting) {
							k.Comment = "railbed verdict=drop reason=link-down depth=0 late=0ns"
						})
				}
				pass(s, false, unhindered(at+30_000), write(i), true)
			}
			text := texts(t, readRun(t, s, test.told), "h0")
			wantFirst(t, text, test.first)
			if n := strings.Count(text, "no-route"); n != 1 {
				t.Errorf("the causes are\n%s", text)
			}
		})
	}
}

// TestWhyNamesFaultsOfNodes: h0 sends nothing for 300 ms. That is the fault's doing only if the fault is at
// h0 and in force.
func TestWhyNamesFaultsOfNodes(t *testing.T) {
	act := func(kind, node string, from, to int64) report.Report {
		at := func(us int64) time.Time { return time.Unix(0, verifytest.Start+us*1000) }
		a := report.Act{Step: "fault f1", Kind: kind, Fault: "f1", Nodes: []string{node}, From: at(from)}
		if to > 0 {
			a.To = at(to)
		}
		return report.Report{Acts: []report.Act{a}}
	}
	const stopped = "host at h0: fault f1 stopped its programs; it led to: no message under way\n"
	for what, test := range map[string]struct {
		told  report.Report
		first string
	}{
		"hang":     {act("hang", "h0", 200_000, 490_000), stopped},
		"earlier":  {act("hang", "h0", 20_000, 180_000), "host at h0: no message was under way for"},
		"a moment": {act("hang", "h0", 250_000, 260_000), "host at h0: no message was under way for"},
		"disk":     {act("disk", "h0", 200_000, 490_000), "host at h0: no message was under way for"},
		"slow": {act("slow", "h0", 0, 0), "host at h0: fault f1 limited the processor time of its " +
			"programs; it led to: no message under way\n"},
		// It is a cause although no message was late because of it.
		"crash": {act("crash", "h0", 560_000, 0), "host at h0: fault f1 ended its programs\n"},
	} {
		s := pair(t)
		for i := range uint32(20) {
			at := int64(i) * 10_000
			if i >= 10 {
				at += 300_000
			}
			pass(s, false, unhindered(at), write(i), true)
		}
		if text := texts(t, readRun(t, s, test.told), "h0"); !strings.HasPrefix(text, test.first) {
			t.Errorf("%s: the causes are\n%swant first\n%s", what, text, test.first)
		}
	}
}

// TestWhyNamesCopiesOfAFault: a fault at h0's NIC makes a copy of each packet, so that twice as many packets
// wait at leaf1's port.
func TestWhyNamesCopiesOfAFault(t *testing.T) {
	s := pair(t)
	for i := range uint32(20) {
		pass(s, false, unhindered(int64(i)*1000), write(i), true)
	}
	const burst = 100_000
	for i := range int64(60) {
		left := burst + 90 + 160*i
		at := stamps{burst + 80*i, burst + 90 + 80*i, left, left + 90}
		id := pass(s, false, at, write(20+uint32(i)), true)
		hit(s, id, "h0:eth0", "duplicate")
		twin := s.Of(id, "leaf1:p1", true)
		twin.Time += 80_000
		s.Insert(twin)
	}
	_, text := causes(t, s)
	const copies = " packets were copies that fault f1 made"
	const waits = "queue at leaf1:p1: packets waited in the queue, behind packets from h0 (100%); "
	if !strings.HasPrefix(text, waits) ||
		!strings.Contains(text, copies) {
		t.Errorf("the causes are\n%s", text)
	}
}

// TestWhyRanksCircumstancesLast: most nodes send late, and the recording ends under way. A port's drops come
// first.
func TestWhyRanksCircumstancesLast(t *testing.T) {
	s := verifytest.NewScene(t)
	s.Plan = plantest.Compile(t, softPair)
	for i := range uint32(40) {
		at := unhindered(int64(i) * 100_000)
		if i%2 == 1 { // the emulator is late
			at[1], at[2], at[3] = at[1]+60_000, at[2]+60_000, at[3]+60_000
		}
		id := pass(s, false, at, write(i), true)
		if i%2 == 1 {
			late := func(k verifytest.Sighting) bool { return k.ID == id && k.Tap[:5] == "leaf1" }
			s.Change(late,
				func(k *verifytest.Sighting) { k.Comment = "railbed depth=0 late=60000000ns" })
		}
		if i == 10 {
			lose(s, id, "leaf1:p0", "tail")
			pass(s, false, unhindered(at[0]+90_000), write(i), true)
		}
	}
	last := pass(s, false, unhindered(4_000_000), write(40), true)
	s.Remove(func(k verifytest.Sighting) bool { return k.ID == last && k.Tap != "h0:eth0" })
	s.Now = verifytest.Start + 4_000_100_000
	_, text := causes(t, s)
	wantFirst(t, text, "recover at leaf1:p0: dropped packets: tail\n")
	for _, later := range []string{"emulator at the emulator", "unseen at h0:eth0: the recording ends"} {
		if !strings.Contains(text, "\n"+later) {
			t.Errorf("the causes are\n%swant later\n%s", text, later)
		}
	}
}

// TestWhyFollowsPacketsThatTheKernelChanges: a fault of the kernel changes a packet at h0's NIC or at the
// router. The changed bytes have another id. The receiver discards them, and the sender sends the packet
// again.
func TestWhyFollowsPacketsThatTheKernelChanges(t *testing.T) {
	for _, tap := range []string{"h0:eth0", "leaf1:p1"} {
		s := verifytest.NewScene(t)
		s.Plan = plantest.Compile(t, strings.Replace(softPair, "{kind: soft, pfc: {priorities: [3]}}",
			"{kind: router}", 1))
		for i := range uint32(20) {
			at := int64(i) * 50_000
			id := pass(s, false, stamps{at, at + 90, at + 100, at + 190}, write(i), true)
			if i != 10 {
				continue
			}
			found := s.Of(id, tap, true)
			before := found
			before.Record, before.Time = true, found.Time-1
			before.Comment = "railbed verdict=corrupt reason=fault name=f1"
			s.IDs++
			s.Change(func(k verifytest.Sighting) bool { return k.ID == id && k.Time >= found.Time },
				func(k *verifytest.Sighting) {
					k.ID, k.Frame = s.IDs, slices.Clone(k.Frame)
					k.Frame[100] ^= 4
				})
			s.Insert(before)
			pass(s, false, unhindered(at+20_000), write(i), true)
		}
		s.Change(func(k verifytest.Sighting) bool { return !k.Record },
			func(k *verifytest.Sighting) { k.Comment = "" })
		answer, text := causes(t, s)
		wantFirst(t, text, "recover at "+tap+": corrupted packets: fault f1\n")
		if c := answer.Causes[0]; c.Messages != 1 || c.Extra.Milliseconds() != 20 || answer.Lost != 1 {
			t.Errorf("%s: %+v", tap, answer)
		}
	}
}
