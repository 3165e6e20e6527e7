package runner

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"railbed/capture/bundle"
	"railbed/capture/follow"
	"railbed/capture/layers"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// followed has a lossy link, a queue that fills and three transports.
const followed = `
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2, striped: 1}
  switch: {kind: soft, buffer: 128KB}
  links:
    default: {rate: 200mbit, delay: 20us}
    "leaf1--spine2": {loss: 2%}
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: rd, kind: all-reduce, transport: rd, size: 256KiB, iterations: 2}
  - workload: {name: tcp, kind: all-reduce, transport: tcp, size: 128KiB, iterations: 1}
  - workload: {name: roce, kind: all-reduce, transport: roce, size: 128KiB, iterations: 1}
  - traffic: {name: incast, from: [h1, h2, h3], to: [h0], rate: 100mbit, size: 1000B, for: 100ms}
`

// messageSpan is a message as Wireshark shows it at the NICs.
type messageSpan struct{ start, placed, packets int64 }

// TestTimesOfMessagesAddUp follows the messages of a run over lossy links. Each message's parts add up to
// its time within a microsecond. Its first sending and last arrival are those that Wireshark's own
// dissectors show.
func TestTimesOfMessagesAddUp(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Testbed, hosttest.Tshark)
	o := options(t, followed)
	r := runAll(t, t.Context(), o)
	if r.Verdict != verdict.Pass && r.Verdict != verdict.Overloaded {
		want(t, r, verdict.Pass)
	}
	recording := recordingOf(t, o)
	found := map[string][]messageSpan{}
	var total follow.Account
	for i := range recording.Messages {
		m := &recording.Messages[i]
		flow := &recording.Flows[m.Flow]
		found[flow.Protocol] = append(found[flow.Protocol], messageSpan{m.Start, m.Placed,
			int64(len(m.Packets))})
		if m.Placed == 0 {
			continue
		}
		if off := m.Account.Total() - (m.Placed - m.Start); off < -1000 || off > 1000 {
			t.Errorf("message %d: its parts %v differ from its time by %d ns", m.Number, m.Account, off)
		}
		for part, ns := range m.Account {
			if ns < 0 && follow.Part(part) != follow.Emulator {
				t.Errorf("message %d: %v is %d ns", m.Number, follow.Part(part), ns)
			}
		}
		if flow.Protocol != "udp" && flow.Workload != flow.Protocol {
			t.Errorf("message %d of %s belongs to workload %q", m.Number, flow.Protocol, flow.Workload)
		}
		total.Add(&m.Account)
	}
	for _, part := range []follow.Part{follow.Host, follow.Recover, follow.Queue, follow.Serialise,
		follow.Propagate} {
		if total[part] <= 0 {
			t.Errorf("no message spent time on %v", part)
		}
	}
	if total[follow.Unseen] != 0 {
		t.Errorf("%d ns passed where the recording has no tap", total[follow.Unseen])
	}
	for protocol, shown := range wiresharkMessages(t, filepath.Join(o.Out, "run.pcapng")) {
		slices.SortFunc(shown, bySpan)
		slices.SortFunc(found[protocol], bySpan)
		if !slices.Equal(found[protocol], shown) {
			t.Errorf("%s: %d messages differ from Wireshark's %d: %v and %v", protocol, len(found[protocol]),
				len(shown),
				firstOther(found[protocol], shown), firstOther(shown, found[protocol]))
		}
		t.Logf("%s: %d messages", protocol, len(shown))
	}
}

// recordingOf follows the packets of a run's recording.
func recordingOf(t *testing.T, o Options) *follow.Recording {
	t.Helper()
	run, err := bundle.Open(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	recording, err := follow.ReadRun(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	return recording
}

func bySpan(a, b messageSpan) int {
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.placed, b.placed), cmp.Compare(a.packets,
		b.packets))
}

// firstOther returns the first message of a that b lacks.
func firstOther(a, b []messageSpan) any {
	for _, m := range a {
		if !slices.Contains(b, m) {
			return m
		}
	}
	return "none"
}

// wiresharkMessages puts messages together from the output of tshark for the packets at NICs. Those of TCP
// are cut behind segments with PSH.
func wiresharkMessages(t *testing.T, path string) map[string][]messageSpan {
	lua := filepath.Join(t.TempDir(), "railbed.lua")
	mustWrite(t, lua, string(layers.Dissector))
	args := []string{"-r", path, "-X", "lua_script:" + lua, "-Y", `frame.interface_name contains "eth0"`,
		"-o", "tcp.relative_sequence_numbers:FALSE", "-T", "fields", "-E", "separator=,", "-E",
		"occurrence=f"}
	for _, field := range []string{"frame.time_epoch", "frame.packet_flags_direction", "ip.src", "ip.dst",
		"rd.life",
		"rd.source", "rd.destination", "rd.data.message", "rd.data.position", "rd.length", "rd.data.total",
		"tcp.srcport",
		"tcp.dstport", "tcp.seq_raw", "tcp.len", "tcp.flags.push"} {
		args = append(args, "-e", field)
	}
	out, err := exec.Command("tshark", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	pieces := map[string]*seenPieces{}
	order := map[string][]string{}
	for _, row := range rows {
		whole, fraction, _ := strings.Cut(row[0], ".")
		at := atoi(t, whole)*1e9 + atoi(t, fraction)
		direction := atoi(t, strings.TrimPrefix(row[1], "0x"))
		var protocol, key string
		var position, length int64
		switch {
		case row[7] != "":
			protocol, key = "rd", strings.Join(append([]string{"rd"}, append(row[2:8:8], row[10])...), " ")
			position, length = atoi(t, row[8]), max(atoi(t, row[9]), 1)
		case row[14] != "" && row[14] != "0":
			protocol, key = "tcp", fmt.Sprint("tcp ", row[2:4], row[11:13])
			position, length = atoi(t, row[13]), atoi(t, row[14])
		default:
			continue
		}
		if pieces[key] == nil {
			pieces[key] = &seenPieces{}
			order[protocol] = append(order[protocol], key)
		}
		pieces[key].all = append(pieces[key].all, piece{position, position + length, at, direction == 2})
		if row[15] == "1" {
			pieces[key].ends = append(pieces[key].ends, position+length)
		}
	}
	shown := map[string][]messageSpan{}
	for protocol, keys := range order {
		for _, key := range keys {
			shown[protocol] = append(shown[protocol], pieces[key].messages()...)
		}
	}
	return shown
}

// piece is a part of a stream or message as a NIC sent or received it.
type piece struct {
	from, to, at int64
	sent         bool
}

// seenPieces are the pieces of a stream or message, and the positions at which messages end.
type seenPieces struct {
	all  []piece
	ends []int64
}

// messages cuts the stream into messages. Between two neighbouring edges of pieces all bytes have one fate.
func (s *seenPieces) messages() (all []messageSpan) {
	var edges []int64
	for _, p := range s.all {
		edges = append(edges, p.from, p.to)
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	if len(s.ends) == 0 { // one message
		s.ends = edges[len(edges)-1:]
	}
	slices.Sort(s.ends)
	from := edges[0]
	for _, end := range slices.Compact(append(s.ends, edges[len(edges)-1])) {
		m, missing := messageSpan{}, !slices.Contains(s.ends, end)
		for _, p := range s.all {
			if p.sent && p.from < end && p.to > from {
				if m.packets++; m.start == 0 || p.at < m.start {
					m.start = p.at
				}
			}
		}
		for i := 1; i < len(edges); i++ {
			if edges[i-1] < from || edges[i] > end {
				continue
			}
			came := int64(0)
			for _, p := range s.all {
				if !p.sent && p.from <= edges[i-1] && p.to >= edges[i] && (came == 0 || p.at < came) {
					came = p.at
				}
			}
			m.placed, missing = max(m.placed, came), missing || came == 0
		}
		if missing {
			m.placed = 0
		}
		all = append(all, m)
		from = end
	}
	return all
}

func atoi(t *testing.T, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
