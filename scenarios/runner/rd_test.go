package runner

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"railbed/scenarios/runner/judge"

	"railbed/capture/pcapng"
	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/testkit/hosttest"
)

// rdRing is ring over reliable datagrams, with the checks for them.
const rdRing = `
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2, striped: 1}
  switch: {kind: router}
  links: {default: {rate: 100mbit, mtu: 4200}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: ar, kind: all-reduce, transport: rd, size: 512KiB, iterations: 1, warmup: 1}
checks:
  - workload: {name: ar, correct: true}
  - packets: {bytes-per-rank: {workload: ar, formula: ring-all-reduce, tolerance: 2%}}
  - packets: {rank-nic: ar}
  - packets: {that: "every rd message is placed exactly once"}
  - packets: {that: "no rd packet is sent again without need"}
`

// TestChecksOfReliableDatagramsCanFail checks that a run over reliable datagrams passes. The same
// recording must fail without a packet that arrived, with a packet that was sent twice, or with a
// rank elsewhere.
func TestChecksOfReliableDatagramsCanFail(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Testbed)
	o := options(t, rdRing)
	_, held := runAndHold(t, o)
	t.Run("Wireshark", func(t *testing.T) {
		wiresharkAgrees(t, filepath.Join(o.Out, "run.pcapng"), wire.RDData, wire.RDAck, wire.RDClose)
	})
	// A busy machine may make the sender believe that a packet is lost, so the run's own
	// verdict of the last check is not asked for.
	checks := rejudge(t, o, held)
	for i, c := range checks[:4] {
		if c.Verdict != verdict.Pass {
			t.Errorf("check %d: %+v", i, c)
		}
	}
	for name, c := range map[string]struct {
		edit  func(nic bool, p *pcapng.Packet, rd wire.RD) (copies int)
		check int
		want  verdict.Verdict
	}{
		"nothing": {func(bool, *pcapng.Packet, wire.RD) int { return 1 }, 3, verdict.Pass},
		"a packet does not come": {once(func(nic bool, p *pcapng.Packet, rd wire.RD) bool {
			return nic && p.Flags&pcapng.DirectionMask == pcapng.Inbound
		}, 0), 3, verdict.Fail},
		"packets are sent twice": {func(nic bool, p *pcapng.Packet, rd wire.RD) int {
			if nic && p.Flags&pcapng.DirectionMask == pcapng.Outbound && rd.Base().PSN%32 == 0 {
				return 2
			}
			return 1
		}, 4, verdict.Fail},
		"a rank sends less": {func(nic bool, p *pcapng.Packet, rd wire.RD) int {
			if nic && p.Flags&pcapng.DirectionMask == pcapng.Outbound && rd.Base().PSN%8 == 0 {
				return 0
			}
			return 1
		}, 1, verdict.Fail},
	} {
		altered := filepath.Join(t.TempDir(), "altered.pcapng")
		rewrite(t, filepath.Join(o.Out, "run.pcapng"), altered, c.edit)
		open := func(string) (io.ReadCloser, error) { return os.Open(altered) }
		checks, err := judge.Checks(t.Context(), o.File, o.Plan, held, open, func(int64) {})
		if err != nil {
			t.Fatal(err)
		}
		if checks[c.check].Verdict != c.want {
			t.Errorf("%s: check %d is %+v, want %s", name, c.check, checks[c.check], c.want)
		}
	}
	twice := filepath.Join(t.TempDir(), "twice.pcapng")
	rewrite(t, filepath.Join(o.Out, "run.pcapng"), twice,
		once(func(nic bool, p *pcapng.Packet, rd wire.RD) bool {
			return nic && p.Flags&pcapng.DirectionMask == pcapng.Outbound
		}, 2))
	// Of a thousandth a pause of the host's may be the reason, where it had one.
	late := *held
	late.Fidelity = &report.Fidelity{Pressure: 1}
	judged, err := judge.Checks(t.Context(), o.File, o.Plan, &late, func(string) (io.ReadCloser, error) {
		return os.Open(twice)
	}, func(int64) {})
	if err != nil || judged[4].Verdict != verdict.Inconclusive {
		t.Errorf("%v, sent twice while the emulation was late: %+v, want INCONCLUSIVE", err, judged[4])
	}
	e := *held
	e.Workloads = []judge.Finished{held.Workloads[0]}
	e.Workloads[0].Traffic.Ranks = append(e.Workloads[0].Traffic.Ranks[:0:0], e.Workloads[0].Traffic.Ranks...)
	e.Workloads[0].Traffic.Ranks[3].Node = "h0"
	if checks := rejudge(t, o, &e); checks[2].Verdict != verdict.Fail {
		t.Errorf("a rank on another NIC: %+v", checks[2])
	}
}

// once makes so many copies of the hundredth packet that matches, and one of all
// others.
func once(match func(nic bool, p *pcapng.Packet, rd wire.RD) bool, copies int) func(bool, *pcapng.Packet,
	wire.RD) int {
	matched := 0
	return func(nic bool, p *pcapng.Packet, rd wire.RD) int {
		if match(nic, p, rd) {
			if matched++; matched == 100 {
				return copies
			}
		}
		return 1
	}
}

// openRecording opens a recording until the test ends.
func openRecording(t *testing.T, path string) *pcapng.Reader {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	r, err := pcapng.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rewrite makes the recording of another run: packets of data over IPv4 were there as
// often as edit says, a nanosecond apart, and the recorder counted them so.
func rewrite(t *testing.T, from, to string, edit func(nic bool, p *pcapng.Packet, rd wire.RD) int) {
	t.Helper()
	r := openRecording(t, from)
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w, err := pcapng.NewWriter(out, r.Section())
	if err != nil {
		t.Fatal(err)
	}
	added, more := 0, map[int]uint64{}
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for ; added < len(r.Interfaces()); added++ {
			if _, err := w.AddInterface(r.Interfaces()[added]); err != nil {
				t.Fatal(err)
			}
		}
		copies := 1
		if data := p.Data; len(data) > 42+wire.RDDataLen && wire.IsPortRD(wire.UDP(data[34:]).DstPort()) {
			if rd := wire.RD(data[42:]); rd.HasBase() && rd.Type() == wire.RDData {
				copies = edit(r.Interfaces()[p.Interface].Hardware == pcapng.HardwareNIC, p, rd)
			}
		}
		more[p.Interface] += uint64(copies) - 1 // wraps
		for range copies {
			if err := w.WritePacket(p); err != nil {
				t.Fatal(err)
			}
			p.Time++
		}
	}
	for _, s := range r.Statistics() {
		s.Received, s.Accepted, s.Delivered = s.Received+more[s.Interface], s.Accepted+more[s.Interface],
			s.Delivered+more[s.Interface]
		if err := w.WriteStatistics(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}
