package interop

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"railbed/capture/layers"
	"railbed/capture/verify"
	core "railbed/capture/verify/evidence"
	"railbed/capture/verify/rocechecks"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
)

// evidence is the evidence about a group of cells, independent of the ends' answers: the packets at
// all NICs, and the counters of both ends.
type evidence struct {
	*run
	file    *os.File
	capture *testbed.Capture
	before  counters
}

// counters has the counters of Railbed's end and of rdma_rxe's first device.
type counters struct{ ours, rxe map[string]uint64 }

func (r *run) counters() (c counters) {
	r.Helper()
	for _, one := range []struct {
		*peer
		to *map[string]uint64
	}{{r.ours, &c.ours}, {r.rxe, &c.rxe}} {
		a, err := one.ask(order{Do: "counters", Device: "rxe_eth0"})
		if err != nil {
			r.Fatal(err)
		}
		*one.to = a.Counters
	}
	return c
}

// grown are the counters that are not what they were, and by how much.
func grown(now, before map[string]uint64) map[string]uint64 {
	now = maps.Clone(now)
	for name := range now {
		now[name] -= before[name]
	}
	maps.DeleteFunc(now, func(_ string, n uint64) bool { return n == 0 })
	return now
}

// record begins to collect evidence.
func (r *run) record(kind string) *evidence {
	r.Helper()
	e := &evidence{run: r, before: r.counters()}
	var err error
	if e.file, err = os.Create(filepath.Join(r.ArtifactDir(), kind+".pcapng")); err != nil {
		r.Fatal(err)
	}
	if e.capture, err = r.tb.Capture(r.Context(), supervisor.CaptureRequest{At: []string{"nics"}},
		e.file); err != nil {
		r.Fatal(err)
	}
	return e
}

// arrivals counts what came to rdma_rxe's first NIC, by whether the ICRC is right.
type arrivals struct{ right, wrong uint64 }

func (k *arrivals) Begin(*core.Capture)   {}
func (k *arrivals) Result() verify.Result { return verify.Result{Name: "arrivals"} }

func (k *arrivals) Packet(p *core.Packet) {
	switch {
	case p.Tap.Node != "rxe" || p.Tap.Port != "eth0" || p.Direction != core.In || p.Drop != "":
	case p.RoCE != nil && p.RoCE.ICRC() == layers.ICRCRight:
		k.right++
	case p.RoCE != nil || p.RoCEFault != core.RoCESound:
		k.wrong++
	}
}

// finding is the result of the evidence about a group of cells.
type finding struct {
	kind     string
	came     arrivals
	accepted uint64 // by rdma_rxe
	refused  uint64 // by ours, for a wrong ICRC
	rules    []verify.Result
}

// judge ends the recording and holds it and the counters against what the link did.
func (e *evidence) judge(kind string) finding {
	e.Helper()
	defer e.file.Close()
	stats, err := e.capture.Stop()
	if err != nil {
		e.Fatal(err)
	}
	now := e.counters()
	ours, rxe := grown(now.ours, e.before.ours), grown(now.rxe, e.before.rxe)
	if _, err := e.file.Seek(0, 0); err != nil {
		e.Fatal(err)
	}
	came := new(arrivals)
	rules := []verify.Check{came}
	for _, rule := range []string{spec.RoCERuleICRC, spec.RoCERulePSN, spec.RoCERuleAcks, spec.RoCERuleWrites,
		spec.RoCERuleGoBack} {
		check, err := rocechecks.New(&spec.RoCECheck{Rule: rule})
		if err != nil {
			e.Fatal(err)
		}
		rules = append(rules, check)
	}
	results, _, err := verify.Run(e.Context(), e.file, verify.Options{Plan: e.tb.Plan()}, rules...)
	if err != nil {
		e.Fatal(err)
	}
	f := finding{kind, *came, rxe["rcvd_pkts"], ours["bad_icrc"], results[1:]}
	e.Logf("%s: of ours %v\nof rxe %v\nto rxe came %+v\n%+v", kind, ours, rxe, f.came, stats)
	corrupted := kind == "corrupt"
	// A sample of cells may have few packets, none of which the link happens to corrupt.
	few := corrupted && !*all && f.came.right < 400 && f.came.wrong+f.refused == 0
	if !corrupted {
		e.decodes()
	}
	for _, result := range f.rules {
		e.Logf("%s: %s %s: %s", kind, result.Name, result.Verdict, result.Summary)
		// What the link corrupts is to be found.
		failed := result.Verdict == verdict.Fail
		if failed != (corrupted && result.Name == "roce icrc") && !few {
			e.Errorf("%s: %s: %s %s\n%s", kind, result.Name, result.Verdict, result.Summary,
				strings.Join(result.Details, "\n"))
		}
	}
	// rdma_rxe counts a packet once its ICRC was right, and no other (rxe_rcv in
	// rxe_recv.c). Some that are right come late, when their queue pair is gone: on
	// a busy host these are many copies of earlier packets.
	if f.accepted > f.came.right || f.accepted*2 < f.came.right {
		e.Errorf("%s: rdma_rxe took %d packets, and %d came with the right ICRC", kind, f.accepted,
			f.came.right)
	}
	if f.came.wrong+f.refused > 0 != corrupted && !few ||
		*all && corrupted && min(f.came.wrong, f.refused) == 0 {
		e.Errorf("%s: %d packets came to rdma_rxe with a wrong ICRC, and ours refused %d", kind, f.came.wrong,
			f.refused)
	}
	if n := rxe["retry_exceeded_err"] + rxe["retry_rnr_exceeded_err"] + rxe["send_err"]; n > 0 {
		e.Errorf("%s: rdma_rxe gave up: %v", kind, rxe)
	}
	return f
}

// decodes has Wireshark's dissector, if it is installed, decode the recording. The dissector must
// not guess the protocol of payloads, because random bytes match any protocol.
func (e *evidence) decodes() {
	e.Helper()
	if hosttest.Probe(hosttest.Tshark) != nil {
		return
	}
	tshark := func(filter string) []string {
		args := []string{"-n", "-o", "infiniband.identify_payload:FALSE", "-r", e.file.Name(), "-Y", filter,
			"-T", "fields", "-e", "frame.number", "-e", "_ws.col.Info"}
		for _, p := range []string{"rpcordma", "smb_direct", "nvme-rdma", "lnet", "iser", "smc"} {
			args = append(args, "--disable-protocol", p)
		}
		out, err := exec.CommandContext(e.Context(), "tshark", args...).Output()
		if err != nil {
			e.Fatal(err)
		}
		return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	}
	if bad := tshark("_ws.malformed || udp.port == 4791 && !infiniband.invariant.crc"); bad[0] != "" {
		e.Errorf("tshark finds %d malformed packets: %s", len(bad),
			strings.Join(bad[:min(len(bad), 5)], "\n"))
	}
	if seen := tshark("infiniband.bth.destqp"); len(seen) < 100 {
		e.Errorf("tshark finds %d packets of RoCEv2", len(seen))
	}
}
