package ranks

import (
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/units"
)

// Bytes of which some could not be read are not counted against what was received.
func TestMissingBytesThatCannotBeRead(t *testing.T) {
	for _, unread := range []uint64{0, 1} {
		w := evidence.Workload{Ranks: []evidence.Rank{{Missing: new(uint64)}, {}}}
		b := NewBytesPerRank(w, units.Ratio{}).(*bytesPerRank)
		b.placed[evidence.RDSpace{}] = &placedBytes{left: 64, received: 1000}
		b.unread[1] = unread
		var f evidence.Finding
		if b.judgeMissing(&f, 0); len(f.Absent) != 1-int(unread) || len(f.Unclear) != int(unread) {
			t.Errorf("%d unread: %+v", unread, f)
		}
	}
}
