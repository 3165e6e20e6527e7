package follow_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	golayers "github.com/google/gopacket/layers"

	"railbed/capture/follow"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// TestMemoryIsBounded: a recording that is larger than the limit is followed up to the limit. Its memory is
// measured, and not computed.
func TestMemoryIsBounded(t *testing.T) {
	s := verifytest.NewScene(t)
	s.Plan = plantest.Compile(t, softPair)
	const sent = 5000
	for i := range uint32(sent) {
		pass(s, false, unhindered(int64(i)*20_000), golayers.TCP{Seq: 1 + i*946, ACK: true, PSH: true}, true)
	}
	recording := s.Write()
	take := func(memory int64) (r *follow.Recording, took int64) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r, err := follow.Read(t.Context(), bytes.NewReader(recording),
			follow.Options{Options: s.Options(), Memory: memory})
		if err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		return r, int64(after.HeapAlloc) - int64(before.HeapAlloc)
	}
	whole, took := take(0)
	if len(whole.Messages) != sent || whole.LeftOut != 0 || len(whole.Lacks()) != 0 {
		t.Errorf("without a limit: %d messages, %d records left out, lacks %q", len(whole.Messages),
			whole.LeftOut, whole.Lacks())
	}
	limit := took / 4
	part, took := take(limit)
	if took > limit*3/2 {
		t.Errorf("a limit of %d bytes: the recording takes %d", limit, took)
	}
	followed, records := 0, 4*sent
	for i := range part.Packets {
		followed += len(part.Sights(i))
	}
	if followed+part.LeftOut != records || followed < records/8 {
		t.Errorf("%d records followed and %d left out, of %d", followed, part.LeftOut, records)
	}
	// The last records of the part are of the packets that the limit cut off, and of no lost packets.
	_, texts := causesOf(part)
	if strings.Contains(texts, "lost") || strings.Contains(texts, "dropped") {
		t.Errorf("the end of the part is a loss:\n%s", texts)
	}
	want := fmt.Sprintf("without %d records after them", part.LeftOut)
	if lacks := strings.Join(part.Lacks(), "; "); !strings.Contains(lacks, want) {
		t.Errorf("lacks %q, want %q", lacks, want)
	}
}
