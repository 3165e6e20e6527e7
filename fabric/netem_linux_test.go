package fabric

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/vmtest"
	"railbed/testkit/plantest"
)

// late is the largest excess over the requested delay for a quarter of the packets: a guest's
// processor is emulated, and shares the host's with whatever else runs there. Without that they are
// late by 1 ms. None may ever be early.
const late = 10 * time.Millisecond

// TestNetem builds links with delay, jitter, loss and the like in a guest whose kernel has netem,
// and measures their effects.
func TestNetem(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Root) // an ordinary user's guest would be the same one again
	if !vmtest.InGuest(t, vmtest.Options{Modules: []string{"veth", "sch_tbf", "sch_netem"}, CPUs: 2,
		Timeout: 5 * time.Minute}) {
		return
	}
	r := buildNetem(t)
	t.Run("delay", func(t *testing.T) { delays(t, r) })
	t.Run("change", func(t *testing.T) { delayChangesLive(t, r) })
	t.Run("jitter", func(t *testing.T) { jitters(t, r) })
	t.Run("loss", func(t *testing.T) { losses(t, r) })
	t.Run("duplication and corruption", func(t *testing.T) { alters(t, r) })
	t.Run("rate", func(t *testing.T) { ratesBelowNetem(t, r) })
	t.Run("queue", func(t *testing.T) { overflows(t, r) })
	t.Run("alterations", func(t *testing.T) { alterations(t, r) })
}

// netemLink is between h0 and the router; only it is ever anything but fast.
const netemLink = "h0--leaf1"

// netemQueue is long enough for everything that a test has under way.
const netemQueue = 4 << 20

func ms(n int) units.Duration { return units.Duration(time.Duration(n) * time.Millisecond) }

func percent(n uint64) units.Ratio { return units.Ratio{Num: n, Den: 100} }

// netemRig is the fabric that the tests share.
type netemRig struct {
	*Fabric
	plan *plan.Plan
	ns   map[string]*kernel.Namespace
}

func buildNetem(t *testing.T) *netemRig {
	t.Helper()
	p := plantest.Compile(t, `name: t
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: router}
  links:
    "`+netemLink+`": {a-to-b: {delay: 30ms, jitter: 5ms, loss: 10%}, b-to-a: {delay: 10ms}}
`)
	for i := range p.Links { // as fast as the guest can
		p.Links[i].AToB.Rate, p.Links[i].BToA.Rate = 0, 0
	}
	f, ns := build(t, p)
	if err := f.Verify(context.Background()); err != nil {
		t.Fatal(err)
	}
	return &netemRig{f, p, ns}
}

// set changes both directions of the link and has them verified. What the
// kernel got from an earlier test must leave nothing behind.
func (r *netemRig) set(t *testing.T, fromH0, toH0 plan.Direction) {
	t.Helper()
	for dir, d := range map[Direction]plan.Direction{AToB: fromH0, BToA: toH0} {
		if d.Queue == 0 {
			d.Queue = netemQueue
		}
		if err := r.SetLink(context.Background(), netemLink, dir, d); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Verify(context.Background()); err != nil {
		t.Error(err)
	}
}

// load describes the datagrams that a test sends in one direction.
type load struct {
	count, length int           // of datagrams, and of each in bytes
	gap           time.Duration // between two of them; none if it is 0
}

// arrival is a datagram as it arrived: its number, and its time under way.
type arrival struct {
	number int
	took   time.Duration
	at     time.Time
}

// quiet is the time without an arrival after which missing datagrams count as lost.
const quiet = 300 * time.Millisecond

// fromH0 sends from h0 to h1, toH0 the other way; both cross the link once.
func (r *netemRig) fromH0(t *testing.T, l load) []arrival {
	t.Helper()
	return datagrams(t, r.ns["h0"], r.ns["h1"], addrs(r.plan, "h1")[0], l)
}

func (r *netemRig) toH0(t *testing.T, l load) []arrival {
	t.Helper()
	return datagrams(t, r.ns["h1"], r.ns["h0"], addrs(r.plan, "h0")[0], l)
}

// datagrams sends numbered datagrams and returns what arrived, in that order.
// Both ends have one clock.
func datagrams(t *testing.T, from, to *kernel.Namespace, address netip.Addr, l load) []arrival {
	t.Helper()
	var receiver, sender *net.UDPConn
	err := to.Do(func() (err error) {
		if receiver, err = net.ListenUDP("udp",
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, 0))); err != nil {
			return err
		}
		return holdEverything(receiver)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	err = from.Do(func() (err error) {
		sender, err = net.DialUDP("udp", nil, receiver.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	start, got := time.Now(), make(chan []arrival, 1)
	sent := make(chan struct{})
	go func() {
		var arrivals []arrival
		for packet := make([]byte, 65536); ; {
			_ = receiver.SetReadDeadline(time.Now().Add(quiet)) // of an open socket
			if _, err := receiver.Read(packet); err != nil {
				select {
				case <-sent:
					got <- arrivals
					return
				default:
					continue
				}
			}
			now := time.Now()
			left := time.Duration(binary.BigEndian.Uint64(packet[8:]))
			arrivals = append(arrivals, arrival{int(binary.BigEndian.Uint64(packet)), now.Sub(start) - left,
				now})
		}
	}()
	defer hosttest.OnFirstCore(t)()
	packet := make([]byte, l.length)
	for i := range l.count {
		time.Sleep(time.Until(start.Add(time.Duration(i) * l.gap)))
		binary.BigEndian.PutUint64(packet, uint64(i))
		binary.BigEndian.PutUint64(packet[8:], uint64(time.Since(start)))
		if _, err := sender.Write(packet); err != nil {
			t.Error(err)
		}
	}
	close(sent)
	return <-got
}

// holdEverything gives the socket room for all that a test sends: the receiver
// may be kept waiting for longer than a default buffer lasts.
func holdEverything(receiver *net.UDPConn) error {
	raw, err := receiver.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	})
	return errors.Join(err, failed)
}

// quantile is of the times that the datagrams were under way.
func quantile(arrivals []arrival, q float64) time.Duration {
	var all []time.Duration
	for _, a := range arrivals {
		all = append(all, a.took)
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))]
}

// binomial is the range that a count of independent draws leaves once in
// about two million runs: five standard deviations.
func binomial(n int, p float64) (least, most float64) {
	mean, deviation := float64(n)*p, math.Sqrt(float64(n)*p*(1-p))
	return mean - 5*deviation, mean + 5*deviation
}

// checkDelay: no datagram was faster than requested, and a quarter was no slower. It reports
// whether the quarter was no slower, because a pause of the host can delay it.
func checkDelay(t *testing.T, what string, got []arrival, asked units.Duration) bool {
	t.Helper()
	least, quarter, median := quantile(got, 0), quantile(got, 0.25), quantile(got, 0.5)
	t.Logf("%s: asked %s, took %s at least, %s in the first quarter, %s in the median", what, asked, least,
		quarter, median)
	if least < time.Duration(asked) {
		t.Errorf("%s: asked %s, took %s at least", what, asked, least)
	}
	return quarter <= time.Duration(asked)+late
}

// tries is how often something that only ever errs to one side is measured.
const tries = 4

func delays(t *testing.T, r *netemRig) {
	l := load{count: 40, length: 100, gap: 5 * time.Millisecond}
	for _, asked := range []struct{ from, to units.Duration }{{ms(30), ms(10)}, {ms(100), 0}, {0, ms(60)}} {
		r.set(t, plan.Direction{Delay: asked.from}, plan.Direction{Delay: asked.to})
		for _, side := range []struct {
			what  string
			send  func(*testing.T, load) []arrival
			asked units.Duration
		}{{"from h0", r.fromH0, asked.from}, {"to h0", r.toH0, asked.to}} {
			inTime := false
			for try := 0; try < tries && !inTime; try++ {
				got := side.send(t, l)
				if len(got) != l.count {
					t.Fatalf("%s: %d of %d arrived", side.what, len(got), l.count)
				}
				inTime = checkDelay(t, side.what, got, side.asked)
			}
			if !inTime {
				t.Errorf("%s: asked %s, late by more than %s each time", side.what, side.asked, late)
			}
		}
	}
}

// delayChangesLive changes the delay while datagrams are under way: none is lost, and datagrams
// sent after the change have the new delay.
func delayChangesLive(t *testing.T, r *netemRig) {
	for range tries {
		if changeDelay(t, r) {
			return
		}
	}
	t.Errorf("late by more than %s each time", late)
}

func changeDelay(t *testing.T, r *netemRig) bool {
	const before, after, at, enough = 20, 80, 50, 20
	l := load{count: 100, length: 100, gap: 10 * time.Millisecond}
	r.set(t, plan.Direction{Delay: ms(before)}, plan.Direction{})
	var began, ended time.Time
	changed := make(chan error, 1)
	time.AfterFunc(at*l.gap, func() {
		began = time.Now()
		err := r.SetLink(context.Background(), netemLink, AToB,
			plan.Direction{Delay: ms(after), Queue: netemQueue})
		ended = time.Now()
		changed <- err
	})
	got := r.fromH0(t, l)
	if err := <-changed; err != nil {
		t.Fatal(err)
	}
	if len(got) != l.count {
		t.Errorf("%d of %d arrived", len(got), l.count)
	}
	var early, afterwards []arrival
	for _, a := range got {
		switch sent := a.at.Add(-a.took); {
		case sent.Before(began):
			early = append(early, a)
		case sent.After(ended):
			afterwards = append(afterwards, a)
		}
	}
	if min(len(early), len(afterwards)) < enough {
		return false // the host held the change up
	}
	inTime := checkDelay(t, "before", early, ms(before))
	return checkDelay(t, "after", afterwards, ms(after)) && inTime
}

// jitters: packets that are far apart are delayed evenly between the two
// bounds. Those that are close stay in order, and so wait for slower ones.
func jitters(t *testing.T, r *netemRig) {
	const delay, jitter = 60 * time.Millisecond, 40 * time.Millisecond
	r.set(t, plan.Direction{Delay: units.Duration(delay), Jitter: units.Duration(jitter)}, plan.Direction{})
	far := r.fromH0(t, load{count: 60, length: 100, gap: 2 * jitter})
	// One more time where packets that netem released on one processor passed those
	// that waited behind the other's work.
	var near []arrival
	inOrder := false
	for range tries {
		near = r.fromH0(t, load{count: 200, length: 100, gap: time.Millisecond})
		if inOrder = slices.IsSortedFunc(near, func(a, b arrival) int {
			return a.number - b.number
		}); inOrder {
			break
		}
	}
	if !inOrder {
		t.Errorf("packets overtook each other each time: %v", near)
	}
	for _, got := range [][]arrival{far, near} {
		t.Logf("%d took %s to %s, quartiles %s, %s, %s", len(got), quantile(got, 0), quantile(got, 1),
			quantile(got, 0.25), quantile(got, 0.5), quantile(got, 0.75))
		if least := quantile(got, 0); least < delay-jitter {
			t.Errorf("one took %s, less than %s", least, delay-jitter)
		}
	}
	if len(far) != 60 || len(near) != 200 {
		t.Errorf("%d of 60 and %d of 200 arrived", len(far), len(near))
	}
	// Of 60 uniform draws a tenth lies below -0.8 jitter, and a tenth above 0.8. Five standard
	// deviations of such a quantile are 0.4 jitter.
	if low, high := quantile(far, 0.1),
		quantile(far, 0.9); low > delay-4*jitter/10+late || high < delay+4*jitter/10 {
		t.Errorf("a tenth took less than %s, a tenth more than %s; want about %s and %s", low, high,
			delay-8*jitter/10, delay+8*jitter/10)
	}
}

func losses(t *testing.T, r *netemRig) {
	l := load{count: 1000, length: 100, gap: time.Millisecond}
	r.set(t, plan.Direction{Loss: percent(10)}, plan.Direction{Delay: ms(5)})
	before := linkState(t, r.Fabric, netemLink)
	lost, lostBack := uint64(l.count-len(r.fromH0(t, l))), l.count-len(r.toH0(t, l))
	after := linkState(t, r.Fabric, netemLink)
	t.Logf("asked 10%%, lost %d of %d", lost, l.count)
	if least, most := binomial(l.count, 0.1); float64(lost) < least || float64(lost) > most {
		t.Errorf("lost %d of %d, want %.0f to %.0f", lost, l.count, least, most)
	}
	if lostBack != 0 {
		t.Errorf("lost %d in the direction that loses nothing", lostBack)
	}
	if drops := after.AToB.Shaper.Drops - before.AToB.Shaper.Drops; drops != lost {
		t.Errorf("the link says that it lost %d, %d did not arrive", drops, lost)
	}
	if drops := after.BToA.Shaper.Drops - before.BToA.Shaper.Drops; drops != 0 {
		t.Errorf("the link says that it lost %d in the other direction", drops)
	}
}

// alters doubles packets in one direction and breaks them in the other, where
// the receiver's checksums find them.
func alters(t *testing.T, r *netemRig) {
	l := load{count: 1000, length: 500, gap: time.Millisecond}
	r.set(t, plan.Direction{Duplicate: percent(10)}, plan.Direction{Corrupt: percent(10)})
	twice, broken := float64(len(r.fromH0(t, l))-l.count), float64(l.count-len(r.toH0(t, l)))
	t.Logf("asked 10%% each, %.0f of %d came twice, %.0f were broken", twice, l.count, broken)
	least, most := binomial(l.count, 0.1)
	if twice < least || twice > most {
		t.Errorf("%.0f of %d came twice, want %.0f to %.0f", twice, l.count, least, most)
	}
	if broken < least || broken > most {
		t.Errorf("%.0f of %d were broken, want %.0f to %.0f", broken, l.count, least, most)
	}
}

// netemRate is a rate that a guest reaches even on a busy host: the burst that is calibrated for it
// compensates for timers that are late by 20 ms.
const netemRate = units.Rate(500e3)

// ratesBelowNetem: a shaper reaches its rate below netem as it does alone. The load is one and a
// half times the link's rate.
func ratesBelowNetem(t *testing.T, r *netemRig) {
	const frame, bucket, span = 1514, 4, 10 // the first few find tokens from before
	l := load{count: 40, length: frame - 14 - 20 - 8}
	for _, asked := range []plan.Direction{
		{Rate: netemRate},
		{Rate: netemRate, Delay: ms(20)},
		{Rate: netemRate, Delay: ms(20), Jitter: ms(10)},
	} {
		r.set(t, asked, plan.Direction{})
		got := r.fromH0(t, l)
		if len(got) != l.count {
			t.Errorf("%+v: %d of %d arrived", asked, len(got), l.count)
			continue
		}
		got = got[bucket:]
		var spans []time.Duration // pauses of the host do not affect the faster ones
		for i := range len(got) - span {
			spans = append(spans, got[i+span].at.Sub(got[i].at))
		}
		slices.Sort(spans)
		reached := span * 8 * frame / spans[len(spans)/4].Seconds() / float64(netemRate)
		t.Logf("%s with delay %s, jitter %s: reached %.3f of it", netemRate, asked.Delay, asked.Jitter,
			reached)
		// A frame that was late leaves its tokens to the next ones.
		if reached < 0.97 || reached > 1.15 {
			t.Errorf("%s with delay %s, jitter %s: reached %.3f of it", netemRate, asked.Delay, asked.Jitter,
				reached)
		}
		if least := quantile(got, 0); least < time.Duration(asked.Delay-asked.Jitter) {
			t.Errorf("%s with delay %s, jitter %s: one took %s", netemRate, asked.Delay, asked.Jitter, least)
		}
	}
}

// overflows: packets for which the queue has no room are lost and counted once, with and without
// netem above it.
func overflows(t *testing.T, r *netemRig) {
	l := load{count: 200, length: 1472}
	for _, asked := range []plan.Direction{
		{Rate: netemRate, Queue: 20_000},
		{Rate: netemRate, Queue: 20_000, Delay: ms(20)},
		{Rate: netemRate, Queue: 20_000, Delay: ms(20), Loss: percent(10)},
	} {
		r.set(t, asked, plan.Direction{})
		before := linkState(t, r.Fabric, netemLink)
		lost := uint64(l.count - len(r.fromH0(t, l)))
		after := linkState(t, r.Fabric, netemLink)
		drops := after.AToB.Shaper.Drops - before.AToB.Shaper.Drops
		t.Logf("queue %s, delay %s, loss %s: lost %d of %d", asked.Queue, asked.Delay, asked.Loss, lost,
			l.count)
		if lost < 50 || drops != lost {
			t.Errorf("delay %s, loss %s: lost %d of %d, the link says %d", asked.Delay, asked.Loss, lost,
				l.count, drops)
		}
	}
}

// alterations: Verify reports the changes of other programs, and SetLink undoes them.
func alterations(t *testing.T, r *netemRig) {
	ctx := context.Background()
	asked := plan.Direction{Delay: ms(30), Jitter: ms(5), Loss: percent(1)}
	r.set(t, asked, plan.Direction{})
	shown, err := in(t, r.ns["h0"], "tc", "qdisc", "show", "dev", "eth0", "root")
	if err != nil {
		t.Fatal(shown)
	}
	// "qdisc netem 2: root refcnt 9 limit 1000 delay 30ms  5ms loss 1% rate 8Tbit"
	_, settings, found := strings.Cut(shown, " limit ")
	limit, _, _ := strings.Cut(settings, " ")
	if !found {
		t.Fatal(shown)
	}
	const others = "kernel's netem has %s, want none"
	for change, want := range map[string]string{
		"limit LIMIT delay 1ms 5ms loss 1% rate 8tbit": "kernel has delay 1ms, want 30ms",
		"limit 10 delay 30ms 5ms loss 1% rate 8tbit": "kernel has netem packet limit 10, want " +
			limit,
		"limit LIMIT delay 30ms 5ms loss 2% rate 8tbit":             "kernel has loss 2%, want 1%",
		"limit LIMIT delay 30ms 5ms loss 1% rate 8tbit corrupt 3%":  "kernel has corruption 3%, want 0%",
		"limit LIMIT delay 30ms 5ms loss 1% rate 1mbit":             fmt.Sprintf(others, "rate 1mbit"),
		"limit LIMIT delay 30ms 5ms 25% loss 1% rate 8tbit":         fmt.Sprintf(others, "correlation"),
		"limit LIMIT delay 30ms 5ms loss 1% rate 8tbit reorder 25%": fmt.Sprintf(others, "reorder"),
		"limit LIMIT delay 30ms 5ms loss 1% rate 8tbit slot 10ms":   fmt.Sprintf(others, "slot"),
		"limit LIMIT delay 30ms 5ms loss 1% ecn rate 8tbit":         fmt.Sprintf(others, "ecn"),
		"limit LIMIT delay 30ms 5ms loss state 1% rate 8tbit":       fmt.Sprintf(others, "loss model"),
	} {
		change = strings.Replace(change, "LIMIT", limit, 1)
		out, err := in(t, r.ns["h0"], append(strings.Fields("tc qdisc change dev eth0 root handle 2: netem"),
			strings.Fields(change)...)...)
		if err != nil {
			t.Errorf("%s: %s", change, out)
			continue
		}
		if err := r.Verify(ctx); err == nil || !strings.Contains(err.Error(), "shape h0:eth0: ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: Verify says %v, want %q", change, err, want)
		}
		r.set(t, asked, plan.Direction{})
	}
}
