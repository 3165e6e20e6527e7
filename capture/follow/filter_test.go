package follow_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	golayers "github.com/google/gopacket/layers"

	"railbed/capture/follow"
	"railbed/testkit/hosttest"
	"railbed/testkit/verifytest"
)

// TestWiresharkFindsMessages: tshark selects the records of each message, of which TCP's sequence numbers
// wrap and some packets are sent again.
func TestWiresharkFindsMessages(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	s := pair(t)
	seq := uint32(0xFFFFFFFF - 2000)
	for i := range int64(2) {
		for k := range uint32(4) {
			segment := golayers.TCP{Seq: seq + k*946, ACK: true, PSH: k == 3}
			pass(s, false, unhindered(i*10_000+int64(k)*80), segment, true)
		}
		pass(s, false, unhindered(i*10_000+1000), golayers.TCP{Seq: seq + 2*946, ACK: true}, true)
		pass(s, true, unhindered(i*10_000+2000), golayers.TCP{Seq: 1, ACK: true, Ack: seq}, false)
		seq += 4 * 946
	}
	k := segment(s, 0, 0)
	k.Datagram = make([]byte, 100)
	for range 2 {
		s.Send("h0", "eth0", k)
	}
	path := filepath.Join(t.TempDir(), "run.pcapng")
	if err := os.WriteFile(path, s.Write(), 0o600); err != nil {
		t.Fatal(err)
	}
	r := read(t, s)
	for i := range r.Messages {
		if i%2 == 1 {
			continue // like the message before
		}
		var want []int
		for _, p := range r.Messages[i].Packets {
			for _, sight := range r.Sights(int(p)) {
				want = append(want, sight.Number)
			}
		}
		slices.Sort(want)
		filter := r.MessageLife(i, false).Wireshark
		out, err := exec.Command("tshark", "-r", path, "-Y", filter, "-T", "fields", "-e",
			"frame.number").Output()
		if err != nil {
			t.Fatalf("%s: %v", filter, err)
		}
		var got []int
		for _, line := range strings.Fields(string(out)) {
			n, err := strconv.Atoi(line)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, n)
		}
		if !slices.Equal(got, want) {
			t.Errorf("message %d: %s selects %v, want %v", i+1, filter, got, want)
		}
	}
}

// TestFollowNamesTheRecordOfADrop: a packet that was sent in one record is dropped in another, which why
// names, too.
func TestFollowNamesTheRecordOfADrop(t *testing.T) {
	s := pair(t)
	id := pass(s, false, unhindered(0), golayers.TCP{Seq: 1, ACK: true, PSH: true}, true)
	at := s.Of(id, "leaf1:p0", false)
	s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && strings.HasSuffix(k.Tap, "1:p1") })
	s.Remove(func(k verifytest.Sighting) bool { return k.Tap == "h1:eth0" })
	at.Time, at.Comment = at.Time+10, "railbed verdict=drop reason=fault name=lossy depth=0 late=0ns"
	s.Insert(at)
	s.Now += 1e9
	r := read(t, s)
	p := r.PacketLife(0)
	answers := r.Why(r.Select(follow.Selection{}))
	if p.Outcome != "dropped: fault lossy at leaf1:p0, record 3" || p.Record != 1 || p.DropRecord != 3 ||
		len(answers) != 1 || len(answers[0].Causes) != 1 || answers[0].Causes[0].Record != p.DropRecord {
		t.Errorf("%+v, %+v", p, answers)
	}
}
