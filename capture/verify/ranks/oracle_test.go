package ranks

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/units"
	"railbed/testkit/hosttest"
	"railbed/testkit/verifytest"
)

// TestBytesAgreeWithTshark computes the bytes of each rank with tshark alone,
// from the same file: the sequence numbers that its dissector calls relative
// tell what was sent once.
func TestBytesAgreeWithTshark(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	for _, family := range []int{4, 6} {
		s := verifytest.NewScene(t)
		s.Ring(family)
		for c := range 5 { // and some retransmissions
			from, to := s.Workload.Ranks[0], s.Workload.Ranks[1]
			s.Send("h0", "eth0", sentAgain(s, from, to, c))
		}
		name := filepath.Join(t.TempDir(), "x.pcapng")
		if err := os.WriteFile(name, s.Write(), 0o600); err != nil {
			t.Fatal(err)
		}
		check := NewBytesPerRank(s.Workload, units.Ratio{})
		results, _ := s.Run(check)
		source := map[int]string{4: "ip.src", 6: "ipv6.src"}[family]
		out, err := exec.Command("tshark", "-n", "-r", name, "-Y",
			fmt.Sprintf("tcp.dstport == %d && frame.packet_flags_direction == 2", verifytest.Service),
			"-o", "tcp.relative_sequence_numbers:FALSE",
			"-T", "fields", "-e", "frame.interface_name", "-e", source, "-e", "tcp.srcport", "-e",
			"tcp.seq_raw", "-e", "tcp.len").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, rank := range s.Workload.Ranks {
			unique, all := 0, 0
			seen := map[string]bool{}
			for line := range strings.Lines(string(out)) {
				fields := strings.Fields(line)
				if fields[0] != rank.Node+":"+rank.NIC || fields[1] != rank.Addr.String() {
					continue
				}
				var length int
				fmt.Sscan(fields[4], &length)
				all += length
				if segment := strings.Join(fields[2:], " "); !seen[segment] {
					seen[segment] = true
					unique += length
				}
			}
			got := results[0].Measured[fmt.Sprintf("rank%d.bytes", rank.Rank)]
			again := results[0].Measured[fmt.Sprintf("rank%d.retransmitted", rank.Rank)]
			if int(got) != unique || int(again) != all-unique || unique == 0 {
				t.Errorf("IPv%d rank %d: we say %.0f and %.0f again, tshark %d and %d", family, rank.Rank,
					got, again, unique, all-unique)
			}
		}
	}
}

// sentAgain is a segment that the ring sent before.
func sentAgain(s *verifytest.Scene, from, to evidence.Rank, connection int) verifytest.TCP {
	return verifytest.TCP{
		Src:     verifytest.AddrPort(from, 20000+connection),
		Dst:     verifytest.AddrPort(to, verifytest.Service),
		Flow:    connection,
		Seq:     5000 - 255,
		Payload: 1000,
	}
}

// TestStreamAgainstMap compares the stream with a map of every byte, on random
// segments in random order with losses and repetitions.
func TestStreamAgainstMap(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		initial := uint32(random.Uint64())
		if seed%2 == 0 {
			initial = 0xFFFFF000 // wraps
		}
		s := new(stream)
		const segments, step = 400, 3000
		var seen [segments * step]bool
		var fresh, repeated uint64
		s.add(initial, 0, true)
		highest := 0
		for range segments {
			from := max(0, highest+random.IntN(4000)-2500)
			length := random.IntN(1500)
			s.add(initial+1+uint32(from), length, false)
			for b := from; b < from+length; b++ {
				if seen[b] {
					repeated++
				} else {
					fresh++
				}
				seen[b] = true
			}
			if length > 0 {
				highest = max(highest, from+length)
			}
		}
		if s.overflow {
			continue
		}
		if s.fresh != fresh || s.repeated != repeated || s.unseen() != int64(highest)-int64(fresh) {
			t.Fatalf("seed %d: fresh %d, repeated %d, unseen %d; want %d, %d, %d", seed, s.fresh, s.repeated,
				s.unseen(), fresh, repeated, highest-int(fresh))
		}
	}
}

// What a connection lacks is not forgotten when another one has its ports.
func TestStreamRemembersHolesOfTheConnectionBefore(t *testing.T) {
	s := new(stream)
	s.add(100, 0, true)
	s.add(101, 10, false)
	s.add(131, 10, false) // 20 bytes are missing
	s.add(100, 0, true)   // the SYN again
	s.add(5000, 0, true)
	s.add(5001, 10, false)
	s.add(5014, 10, false) // 3 more
	if s.unseen() != 23 || s.fresh != 40 {
		t.Errorf("%d bytes unseen and %d seen, want 23 and 40", s.unseen(), s.fresh)
	}
}

// benchFile is a capture of some 350,000 packets, on disk.
func benchFile(b *testing.B) (name string, s *verifytest.Scene, packets int) {
	s = verifytest.NewScene(b)
	s.Ring(4)
	once, last := s.Sightings, s.Now
	for round := range int64(9) {
		for _, k := range once {
			k.Time += (round + 1) * (last - verifytest.Start + 1_000_000)
			s.Sightings = append(s.Sightings, k)
		}
		s.Now += last - verifytest.Start + 1_000_000
	}
	name = filepath.Join(b.TempDir(), "bench.pcapng")
	if err := os.WriteFile(name, s.Write(), 0o600); err != nil {
		b.Fatal(err)
	}
	return name, s, len(s.Sightings)
}

// The two benchmarks answer one question from one file: the payload bytes that
// each rank sent through its NIC.
func BenchmarkBytesPerRank(b *testing.B) {
	name, s, packets := benchFile(b)
	b.ReportAllocs()
	for b.Loop() {
		file, err := os.Open(name)
		if err != nil {
			b.Fatal(err)
		}
		results, _, err := evidence.Run(b.Context(), file, evidence.Options{Plan: s.Plan},
			NewBytesPerRank(s.Workload, units.Ratio{Num: 1, Den: 50}))
		file.Close()
		if err != nil || results[0].Measured["rank0.bytes"] == 0 {
			b.Fatal(err, results)
		}
	}
	b.ReportMetric(float64(packets*b.N)/b.Elapsed().Seconds(), "packets/s")
}

func BenchmarkBytesPerRankTshark(b *testing.B) {
	hosttest.Need(b, hosttest.Tshark)
	name, _, packets := benchFile(b)
	for b.Loop() {
		// Name resolution, reassembly and the analysis of sequence numbers are
		// off: the sweep's fastest setting. A read filter without -2 is the
		// same as -Y.
		out, err := exec.Command("tshark", "-n", "-r", name, "-Y",
			fmt.Sprintf("tcp.dstport == %d && tcp.len > 0 && frame.packet_flags_direction == 2",
				verifytest.Service),
			"-o", "tcp.desegment_tcp_streams:FALSE", "-o", "tcp.analyze_sequence_numbers:FALSE", "-o",
			"ip.defragment:FALSE",
			"-T", "fields", "-e", "frame.interface_id", "-e", "ip.src", "-e", "tcp.srcport", "-e",
			"tcp.seq_raw", "-e", "tcp.len").Output()
		if err != nil || len(out) == 0 {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(packets*b.N)/b.Elapsed().Seconds(), "packets/s")
}
