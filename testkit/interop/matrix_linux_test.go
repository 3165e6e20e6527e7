package interop

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/internal/reexec"
	"railbed/internal/verdict"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/transports/roce/queuepair"
)

// The tests run testbeds on this executable.
var _ = hosttest.MarkPackage(hosttest.Unraced)

var (
	all    = flag.Bool("all", false, "try every cell, not a subset with all pairs of values")
	update = flag.Bool("update", false, "with -all, write the table into "+document)
	only   = flag.String("cells", "", "try only cells whose names contain this `text`")
)

func TestMain(m *testing.M) {
	testbed.Init(reexec.Parts{ownPart: ownMain})
	os.Exit(hosttest.Main(m))
}

// end is one end of a cell's connection.
type end struct {
	*peer
	open order
	answer
}

// order gives an order about the end's queue. That it fails says nothing about the
// protocol, and ends the test.
func (r *run) order(e *end, o order) answer {
	r.Helper()
	o.Queue = e.open.Queue
	if r.spoil != nil {
		r.spoil(e, &o)
	}
	a, err := e.ask(o)
	if err != nil {
		r.Fatalf("%s: %v; the guest's kernel: %s", e.open.Queue, err, strings.Join(r.log(r.booted), "\n"))
	}
	return a
}

// ends returns the requester and the responder of a cell.
func (r *run) ends(c cell) (asks, answers *end) {
	at := func(p *peer, node string, nic int) *end {
		return &end{peer: p, open: order{At: r.addr(node, nic, c.family),
			Device: map[string][]string{"rxe": {"rxe_eth0", "rxe_eth1"}, "ours": {"eth0"}}[node][nic]}}
	}
	switch c.way {
	case ownToRXE:
		asks, answers = at(r.ours, "ours", 0), at(r.rxe, "rxe", 0)
	case rxeToOwn:
		asks, answers = at(r.rxe, "rxe", 0), at(r.ours, "ours", 0)
	default:
		asks, answers = at(r.rxe, "rxe", 0), at(r.rxe, "rxe", 1)
	}
	asks.open.Queue, answers.open.Queue = "requester", "responder"
	return asks, answers
}

// limit is how long a cell may take, in seconds.
const limit = 40

// try does a cell on a new connection, and returns what was not as it should be.
func (r *run) try(c cell) (wrong []string) {
	r.Helper()
	r.number++
	asks, answers := r.ends(c)
	seeds := []string{fmt.Sprint("requester ", r.number), fmt.Sprint("responder ", r.number)}
	x := newExchange(c, seeds[0], seeds[1])
	for i, e := range []*end{asks, answers} {
		e.open.Do, e.open.MTU, e.open.Size, e.open.Depth, e.open.Reads, e.open.Timeout, e.open.Retries,
			e.open.Seed = "open", c.mtu, x.size, 256, 16, 14, r.retries, seeds[i]
		// One end of each connection goes over the end of all PSNs.
		e.open.PSN = uint32(1000*r.number + i)
		if r.number%2 == i {
			e.open.PSN = 0xFFFFFF - uint32(r.number%50)
		}
		e.answer = r.order(e, e.open)
		defer r.order(e, order{Do: "close"})
	}
	r.order(asks, order{Do: "connect", At: answers.open.At, QPN: answers.QPN, PSN: answers.open.PSN})
	r.order(answers, order{Do: "connect", At: asks.open.At, QPN: asks.QPN, PSN: asks.open.PSN})
	wrong = x.sent(r.exchange(c, x, asks, answers))
	if n := len(x.receives); n > 0 {
		wrong = append(wrong, x.received(c,
			r.order(answers, order{Do: "wait", Count: n, Seconds: 5}).Done)...)
	}
	for _, side := range []struct {
		*end
		memory []byte
		of     func(message) int
	}{{asks, x.asked, func(m message) int { return m.Local }},
		{answers, x.served, func(m message) int { return m.Remote }}} {
		ranges := x.ranges(side.of)
		a := r.order(side.end, order{Do: "report", Ranges: ranges})
		if a.State != "RTS" {
			wrong = append(wrong, fmt.Sprintf("%s is in state %s", side.open.Queue, a.State))
		}
		if bad := differ(side.memory, ranges, a.Sums); len(bad) > 0 {
			wrong = append(wrong, fmt.Sprintf("at the %s other bytes: %s", side.open.Queue,
				strings.Join(bad, ", ")))
		}
	}
	r.settle()
	return wrong
}

// exchange posts the messages of a cell, and returns the requester's completions. It posts the
// first message alone, so that a recording shows the path MTU before any packet is missing. It
// posts all receives except the first while messages are in transit, so that some messages find
// none.
func (r *run) exchange(c cell, x *exchange, asks, answers *end) (list []done) {
	r.Helper()
	for _, part := range [][2]int{{0, 1}, {1, len(x.messages)}} {
		receive := func(when bool) {
			if when && consumes(c.op) {
				r.order(answers, order{Do: "receive", From: part[0], Places: x.receives[part[0]:part[1]]})
			}
		}
		receive(part[0] == 0)
		r.order(asks, order{Do: "post", Op: c.op, RKey: answers.RKey, Base: answers.Base, From: part[0],
			Messages: x.messages[part[0]:part[1]]})
		receive(part[0] > 0)
		list = append(list, r.order(asks,
			order{Do: "wait", Count: part[1] - part[0], Seconds: limit}).Done...)
		if len(list) != part[1] || slices.ContainsFunc(list, func(d done) bool { return d.Status != 0 }) {
			break
		}
	}
	return list
}

// sent looks at the requester's completions.
func (x *exchange) sent(list []done) (wrong []string) {
	if len(list) != len(x.messages) {
		wrong = append(wrong, fmt.Sprintf("%d of %d requests completed", len(list), len(x.messages)))
	}
	for i, d := range list {
		if d.Status != 0 || d.ID != i {
			wrong = append(wrong, fmt.Sprintf("completion %d: %+v", i, d))
		}
	}
	return wrong
}

// received compares the responder's completions with the sent messages.
func (x *exchange) received(c cell, list []done) (wrong []string) {
	if len(list) != len(x.messages) {
		wrong = append(wrong, fmt.Sprintf("%d of %d receives completed", len(list), len(x.messages)))
	}
	for i, d := range list {
		m := x.messages[min(d.ID, len(x.messages)-1)]
		ok := d.Status == 0 && d.ID == i && d.Bytes == m.Length &&
			(d.Imm != nil) == strings.HasSuffix(c.op, "_IMM")
		if !ok || d.Imm != nil && *d.Imm != m.Imm {
			wrong = append(wrong, fmt.Sprintf("receive %d: %+v, want %+v", i, d, m))
		}
	}
	return wrong
}

// attempts is how often a cell is tried to meet what it is about.
const attempts = 8

// cell tries a cell until the link has done to it what it is to do.
func (r *run) cell(c cell) (o outcome) {
	o.cell = c
	begin := time.Now()
	_, before := r.passed()
	for o.tries < attempts && len(o.wrong) == 0 && (o.tries == 0 || o.met < impairments[c.impair].met) {
		o.tries++
		o.wrong = r.try(c)
		_, met := r.passed()
		o.met = met - before
	}
	o.took = time.Since(begin)
	return o
}

// outcome is the result of a cell.
type outcome struct {
	cell
	tries   int
	met     uint64
	took    time.Duration
	wrong   []string
	control []string // what rdma_rxe did to itself
	verdict verdict.Verdict
	log     []string
}

// again is how often a cell that failed is tried with rdma_rxe at both ends, to see
// whether that fails, too.
const again = 5

// judge decides about a cell that was tried.
func (r *run) judge(o *outcome, logged int) {
	c := o.cell
	c.way = control
	for range again {
		o.control = r.cell(c).wrong
		if len(o.wrong) == 0 || len(o.control) > 0 {
			break
		}
	}
	switch {
	case len(o.wrong) == 0:
		o.verdict = verdict.Pass
	case len(o.control) > 0:
		o.verdict, o.log = verdict.Inconclusive, r.log(logged)
	default:
		o.verdict, o.log = verdict.Fail, r.log(logged)
	}
	r.Logf("%-60v %-12s tries %d, met %d packets, %v", o.cell, o.verdict, o.tries, o.met,
		o.took.Round(time.Millisecond))
	for _, what := range o.wrong {
		r.Logf("  %s", what)
	}
	for _, what := range o.control {
		r.Logf("  rxe to rxe: %s", what)
	}
	if o.verdict != verdict.Pass {
		r.Logf("  the guest's kernel: %s", strings.Join(o.log[max(0, len(o.log)-8):], "\n"))
	}
}

// TestMatrix tries cells, impairment by impairment, and looks at the packets of each.
func TestMatrix(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.VM, hosttest.Tap, hosttest.Pyverbs)
	cells := pairwise()
	if *all {
		cells = every()
	}
	number := -1
	cells = slices.DeleteFunc(cells, func(c cell) bool {
		number++
		return !strings.Contains(c.String(), *only) || !*all && !hosttest.Sampled(t, number)
	})
	r := newRun(t)
	d := &table{kernel: strings.TrimSpace(r.guest("uname -r"))}
	for i := range impairments {
		if slices.ContainsFunc(cells, func(c cell) bool { return c.impair == i }) {
			r.group(i, cells, d)
		}
	}
	d.proves(t)
	r.reds()
	r.verdicts()
	if *update && *all && *only == "" && !t.Failed() {
		d.write(t)
	}
}

// reds gives ends other orders than the test assumes. No cell may pass then.
func (r *run) reds() {
	r.Helper()
	c := cell{op: queuepair.WriteImm.String(), way: ownToRXE, mtu: 1024, family: 4}
	for want, spoil := range map[string]func(*end, *order){
		"requests completed": func(e *end, o *order) { // as an end that counts PSNs wrongly
			if o.Do == "connect" && e.peer == r.rxe {
				o.PSN++
			}
		},
		"at the responder other bytes: message 2 ": func(_ *end, o *order) {
			if o.Do == "post" && o.From > 0 {
				o.Messages = slices.Clone(o.Messages)
				o.Messages[1].Local++
			}
		},
		"what is beside the messages": func(_ *end, o *order) {
			if o.Do == "report" {
				o.Ranges = append(slices.Clone(o.Ranges[:len(o.Ranges)-1]),
					place{0, o.Ranges[len(o.Ranges)-1][1] - 1})
			}
		},
		"receive 3: ": func(_ *end, o *order) {
			if o.Do == "post" && o.From > 0 {
				o.Messages = slices.Clone(o.Messages)
				o.Messages[2].Imm++
			}
		},
	} {
		r.spoil = spoil
		wrong := strings.Join(r.try(c), "; ")
		if r.spoil = nil; !strings.Contains(wrong, want) {
			r.Errorf("a cell that is to fail by %q: %q", want, wrong)
		}
	}
}

// verdicts makes two cells fail. If the link passes no packets, rdma_rxe fails against itself too,
// and Railbed's end is not judged. If only Railbed's end behaves differently, Railbed's end fails.
func (r *run) verdicts() {
	r.Helper()
	c := cell{op: queuepair.Write.String(), way: rxeToOwn, mtu: 1024, family: 4}
	judged := func() (o outcome, text string) {
		logged := len(r.log(0))
		r.guest("echo a line of the guest > /dev/kmsg")
		o = r.cell(c)
		r.judge(&o, logged)
		return o, (&table{outcomes: []outcome{o}}).String()
	}
	deaf := r.link.AToB
	deaf.Loss = ratio(100)
	r.setLink(deaf, r.link.BToA)
	r.retries = 2
	o, text := judged()
	r.retries = 0
	r.impair(impairments[0])
	lines := []string{"| WRITE | rxe to ours |  |  | INCONCLUSIVE (rxe) |",
		"| WRITE | rxe to rxe |  |  | fails |", "a line of the guest\n"}
	if o.verdict != verdict.Inconclusive || slices.ContainsFunc(lines, func(line string) bool {
		return !strings.Contains(text, line)
	}) {
		r.Errorf("a link that lets nothing through: %s: %v, rxe to rxe %v\n%s", o.verdict, o.wrong, o.control,
			text)
	}
	if all := strings.Join(append(o.wrong, o.control...), "; "); strings.Count(all, "Status:12") < 2 {
		// IBV_WC_RETRY_EXC_ERR
		r.Errorf("a link that lets nothing through: %s", all)
	}
	r.spoil = func(e *end, o *order) {
		if o.Do == "report" && e.peer == r.ours {
			o.Ranges = slices.Clone(o.Ranges)
			o.Ranges[0][0]++
		}
	}
	o, text = judged()
	if r.spoil = nil; o.verdict != verdict.Fail ||
		!strings.Contains(text, "| WRITE | rxe to ours |  |  | FAIL |") ||
		!strings.Contains(text, "| WRITE | rxe to rxe |  |  | works |") {
		r.Errorf("an end of ours that is wrong: %s: %v, rxe to rxe %v\n%s", o.verdict, o.wrong, o.control,
			text)
	}
}

// group tries the cells of one impairment.
func (r *run) group(index int, cells []cell, d *table) {
	r.Helper()
	kind := impairments[index]
	r.impair(kind)
	logged, e := len(r.log(0)), r.record(kind.name)
	for _, c := range cells {
		if c.impair == index {
			o := r.cell(c)
			r.judge(&o, logged)
			switch {
			case o.verdict == verdict.Fail:
				r.Errorf("%v: %s", c, strings.Join(o.wrong, "; "))
			case o.verdict == verdict.Pass && o.met < kind.met:
				r.Errorf("%v: nothing happened to its packets in %d tries", c, o.tries)
			}
			d.outcomes = append(d.outcomes, o)
		}
	}
	r.impair(impairments[0])
	d.findings = append(d.findings, e.judge(kind.name))
}
