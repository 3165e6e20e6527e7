package verify

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"railbed/capture/verify/evidence"
	"railbed/capture/verify/fabricchecks"
	"railbed/capture/verify/ranks"
	"railbed/capture/verify/rocechecks"
	"railbed/internal/units"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// A capture that begins in the middle of the judged traffic gives no FAIL.
func TestLateCaptureAccusesNobody(t *testing.T) {
	for name, play := range map[string]func(*verifytest.Scene, int){"tcp": (*verifytest.Scene).Ring,
		"rd": (*verifytest.Scene).RDRing} {
		s := verifytest.NewScene(t)
		play(s, 4)
		s.Begin(2)
		results, _ := s.Run(ranks.NewBytesPerRank(s.Workload, units.Ratio{Num: 2, Den: 100}),
			ranks.NewRankNIC(s.Workload), fabricchecks.NewConservation("*"))
		for i, r := range results {
			if r.Verdict == fail || i == 0 && r.Verdict != unclear {
				t.Errorf("%s: %v", name, r)
			}
		}
	}
}

// More flows than are followed are said, whatever else the packets carry.
func TestMoreFlowsThanAreFollowed(t *testing.T) {
	q := verifytest.NewQP(t, 4)
	q.RD(0, 2, 0, q.Data(q.Base(0, 2, 0, uint32(verifytest.RDLife(0)>>32)), 1, 100, 0))
	q.Write()
	var out bytes.Buffer
	w := pcapgo.NewWriterNanos(&out)
	err := w.WriteFileHeader(65535, golayers.LinkTypeEthernet)
	put := func(frame []byte) {
		if err == nil {
			err = w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, verifytest.Start),
				CaptureLength: len(frame), Length: len(frame)}, frame)
		}
	}
	frame := bytes.Clone(q.Sightings[0].Frame)
	const followed = 1 << 17 // flows
	for i := range uint32(followed) {
		binary.BigEndian.PutUint32(frame[30:], 0x0B000000+i)
		put(frame)
	}
	for _, k := range q.Sightings {
		put(k.Frame)
	}
	if err != nil {
		t.Fatal(err)
	}
	checks := []evidence.Check{thatRD(t, spec.ThatRDPlaced), thatRD(t, spec.ThatRDNeeded),
		ranks.NewBytesPerRank(q.Workload, units.Ratio{}),
		ranks.NewRankNIC(q.Workload), fabricchecks.NewLossless(&spec.LosslessCheck{}),
		fabricchecks.NewTrims(&spec.TrimsCheck{}, nil)}
	for _, name := range everyCheck() {
		if rule, is := strings.CutPrefix(name, "roce "); is {
			check, err := rocechecks.New(&spec.RoCECheck{Rule: rule})
			if err != nil {
				t.Fatal(err)
			}
			checks = append(checks, check)
		}
	}
	results, _, err := evidence.Run(t.Context(), &out, evidence.Options{}, checks...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Verdict != unclear {
			t.Errorf("want INCONCLUSIVE: %v", r)
		}
	}
}

// Where the recorder did not keep up, an acknowledgement may stand before its packet.
func TestUnorderedCaptureAccusesNobody(t *testing.T) {
	for _, sound := range []bool{true, false} {
		s := verifytest.NewScene(t)
		s.RDRing(4)
		slices.SortStableFunc(s.Sightings, func(a, b verifytest.Sighting) int { return int(a.Time - b.Time) })
		i := slices.IndexFunc(s.Sightings, func(k verifytest.Sighting) bool {
			return k.Tap == "h1:eth0" && !k.Out && verifytest.IsData(k)
		})
		late := s.Sightings[i]
		s.Sightings = append(slices.Delete(s.Sightings, i, i+1), late)
		if s.Unsorted = true; sound { // its time is the time of its new place
			s.Sightings[len(s.Sightings)-1].Time = s.Sightings[len(s.Sightings)-2].Time
		}
		results, _ := s.Run(thatRD(t, spec.ThatRDPlaced))
		if sound {
			verifytest.Wants(t, results[0], fail, "acknowledged")
		} else {
			verifytest.Wants(t, results[0], pass, "1 packet stood behind later ones and were sorted")
		}
	}
}
