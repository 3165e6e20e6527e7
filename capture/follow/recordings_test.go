package follow_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	golayers "github.com/google/gopacket/layers"

	"railbed/capture/bundle"
	"railbed/capture/follow"
	"railbed/testkit/verifytest"
)

// TestRecordingsOfDifferentTimes follows two packets. The recording of the receiver's NIC ends between them,
// so it is not known whether the second arrived.
func TestRecordingsOfDifferentTimes(t *testing.T) {
	s := pair(t)
	segment := func(seq uint32) golayers.TCP {
		return golayers.TCP{Seq: seq, ACK: true, PSH: true, Window: 1000}
	}
	pass(s, false, unhindered(0), segment(1), true)
	pass(s, false, unhindered(20_000), segment(947), true)
	pass(s, true, unhindered(40_000), segment(1), false) // the last record is long after
	const receiver = "h1:eth0"
	for _, late := range []bool{true, false} {
		dir := t.TempDir()
		text, err := json.Marshal(s.Plan)
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, bundle.PlanFile), text, 0o600))
		s.Untapped = map[string]bool{receiver: true}
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "a.pcapng"), s.Write(), 0o600))
		s.Untapped = map[string]bool{"h0:eth0": true, "leaf1:p0": true, "leaf1:p1": true}
		all, end := s.Sightings, s.Now
		s.Sightings = nil
		for _, k := range all {
			if k.Time < verifytest.Start+10_000_000 {
				s.Sightings = append(s.Sightings, k)
			}
		}
		if late {
			s.Now = verifytest.Start + 10_000_000
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "b.pcapng"), s.Write(), 0o600))
		s.Sightings, s.Now = all, end
		run, opened := bundle.Open(dir)
		if err = errors.Join(err, opened); err != nil {
			t.Fatal(err)
		}
		r, err := follow.ReadRun(t.Context(), run)
		if err = errors.Join(err, run.Close()); err != nil {
			t.Fatal(err)
		}
		first, second := &r.Messages[0], &r.Messages[1]
		wantLost := 1 // the recording goes on and lacks it
		if late {
			wantLost = 0
		}
		life := r.MessageLife(1, false)
		if first.Placed == 0 || second.Placed != 0 || second.Lost != wantLost || life.Unseen != late {
			t.Errorf("ends early %v: first placed at %d; second %+v, unseen %v", late, first.Placed, second,
				life.Unseen)
		}
	}
}
