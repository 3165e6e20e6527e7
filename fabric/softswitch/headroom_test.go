package softswitch

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"railbed/internal/units"
	"railbed/plan"
)

// pressed is a lossless switch between a node that always has packets to send and a node whose link
// is ten times slower.
type pressed struct {
	*rig
	fast plan.Link
	at   *port // of the switch, at the fast link
}

// press makes one with pfc or gfc; given is the file's flow control settings besides the
// priorities.
func press(t *testing.T, buffer, flowControl, given string) *pressed {
	t.Helper()
	r := newRig(t, pressedFile(buffer, flowControl, given))
	r.silent = true
	p := &pressed{rig: r, fast: r.plan.Links[0]}
	l := r.engine.byLink[p.fast.Name]
	p.at = l.a
	if l.a.station.nic {
		p.at = l.b
	}
	return p
}

func pressedFile(buffer, flowControl, given string) string {
	return single(2, fmt.Sprintf(`
  switch: {kind: soft, buffer: %s, %s: {priorities: [3]%s}, priorities: {26: 3}}
  links: {default: {rate: 1gbit, delay: 5us}, "h1--leaf1": {rate: 100mbit}}
nodes: {default: {nic-queue: 1MB}}
`, buffer, flowControl, given))
}

// run lets time pass, with frames that wait in the sender's NIC.
func (p *pressed) run(d time.Duration) {
	p.t.Helper()
	nic := p.engine.nics[0].ports[0].egress
	for end := p.engine.Now().Add(d); p.engine.Now() < end; {
		for nic.Bytes() < 500_000 {
			p.send(p.engine.Now(), flow{from: 0, to: 1, dscp: 26}, 1514)
		}
		p.engine.Advance(p.engine.Now().Add(50 * time.Microsecond))
	}
	p.balance()
	if m := p.at.station.memory; m.Used() > m.Size() {
		p.t.Fatalf("%d bytes wait in a buffer of %d", m.Used(), m.Size())
	}
}

// set gives the fast link other rates and delays, towards the switch and back.
func (p *pressed) set(rateIn, rateOut units.Rate, in, out time.Duration) error {
	toSwitch, back := p.fast.AToB, p.fast.BToA
	toSwitch.Rate, toSwitch.Delay, back.Rate, back.Delay = rateIn, units.Duration(in), rateOut,
		units.Duration(out)
	if p.at.link.a == p.at { // the switch is end A
		toSwitch, back = back, toSwitch
	}
	return p.engine.SetLink(p.fast.Name, toSwitch, back)
}

// TestHeadroomFollowsTheLink: a link that becomes longer while its sender is paused again and again
// loses nothing. If the file sets the headroom, so that it does not follow the link, the same load
// overruns it.
func TestHeadroomFollowsTheLink(t *testing.T) {
	const delay = 500 * time.Microsecond
	planned := press(t, "4MB", "pfc", "").state()
	for _, given := range []string{"", fmt.Sprintf(", headroom: %dB", planned.Headroom)} {
		p := press(t, "4MB", "pfc", given)
		p.run(20 * time.Millisecond)
		if p.at.count.PausesSent[3] == 0 || p.dropped(Headroom) != 0 {
			t.Fatalf("%d pauses, %d drops before the change; want some and none", p.at.count.PausesSent[3],
				p.dropped(Headroom))
		}
		if err := p.set(1e9, 1e9, delay, delay); err != nil {
			t.Fatal(err)
		}
		p.run(100 * time.Millisecond)
		if lost := p.dropped(Headroom); (lost > 0) != (given != "") {
			t.Errorf("headroom given as %q: %d frames overran it", given, lost)
		}
		// What the formula of package plan adds for the longer way: the bytes of both
		// delays at the rate.
		more := units.Bytes(2 * (delay - 5*time.Microsecond) * 1e9 / 8 / time.Second)
		at := p.state()
		if want := planned.Headroom + more; given == "" &&
			(at.Headroom != want || at.XOn != planned.XOn+more || at.XOff != planned.XOff+more) {
			t.Errorf("thresholds are %+v after %+v, want %d bytes more", at, planned, more)
		}
		if given != "" && at.Headroom != planned.Headroom {
			t.Errorf("headroom is %s and the file gives %s", at.Headroom, planned.Headroom)
		}
		// And back: frames and pauses of the long link are still under way.
		lost := p.dropped(Headroom)
		if err := p.set(1e9, 1e9, 5*time.Microsecond, 5*time.Microsecond); err != nil {
			t.Fatal(err)
		}
		p.run(100 * time.Millisecond)
		if p.dropped(Headroom) != lost && given == "" {
			t.Errorf("%d frames overran the headroom that shrinks", p.dropped(Headroom)-lost)
		}
		if at := p.state(); at.Headroom != planned.Headroom || at.XOn != planned.XOn ||
			at.XOff != planned.XOff {
			t.Errorf("thresholds are %+v again, want %+v", at, planned)
		}
		if spare := p.at.station.memory.Spare(); given == "" &&
			spare != press(t, "4MB", "pfc", "").at.station.memory.Spare() {
			t.Errorf("%d bytes are spare, which is not what was at first", spare)
		}
	}
}

// state returns the PFC thresholds in the port's state.
func (p *pressed) state() plan.PortPFC { return p.engine.Ports()[p.at.index].PFC }

// change gives the link other settings at a random moment, and returns their description.
func (p *pressed) change(random *rand.Rand) string {
	p.t.Helper()
	p.run(time.Duration(50+random.IntN(3000)) * time.Microsecond)
	rate := func() units.Rate { return []units.Rate{200e6, 1e9, 4e9}[random.IntN(3)] }
	delay := func() time.Duration {
		return time.Duration(random.IntN(1<<(4+random.IntN(17)))) * time.Nanosecond
	}
	in, out, to, back := rate(), rate(), delay(), delay()
	if err := p.set(in, out, to, back); err != nil {
		p.t.Fatal(err)
	}
	p.run(time.Duration(random.IntN(500)) * time.Microsecond)
	return fmt.Sprintf("%v and %v, %v and %v", in, out, to, back)
}

// TestChangesOfRateAndDelayAreLossless: no change of a link under load loses a packet, however soon
// it follows another change.
func TestChangesOfRateAndDelayAreLossless(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		p := press(t, "64MB", "pfc", "")
		for change := range 60 {
			to := p.change(random)
			if lost := p.dropped(Headroom); lost > 0 {
				t.Fatalf("seed %d, change %d to %s: %d frames overran the headroom", seed, change, to, lost)
			}
		}
		if p.at.count.PausesSent[3] == 0 {
			t.Errorf("seed %d: nobody was paused", seed)
		}
	}
}

// TestHeadroomThatDoesNotFit: the change is refused with the delay that would fit, and changes
// nothing. That delay does fit, and not a microsecond more.
func TestHeadroomThatDoesNotFit(t *testing.T) {
	p := press(t, "400KB", "pfc", "")
	before := p.state()
	err := p.set(1e9, 1e9, 10*time.Millisecond, 10*time.Millisecond)
	if err == nil || !strings.HasPrefix(err.Error(),
		"change link "+p.fast.Name+": keep buffer for lossless priorities at "+p.at.name+": want ") {
		t.Fatalf("got %v", err)
	}
	fitting := regexp.MustCompile(`have (\S+): at these rates the delays of both directions may add up to ` +
		`(\S+)$`)
	found := fitting.FindStringSubmatch(err.Error())
	if found == nil {
		t.Fatalf("%v: it does not say what would fit", err)
	}
	fits, parseErr := time.ParseDuration(found[2])
	if parseErr != nil {
		t.Fatal(parseErr)
	}
	if now := p.state(); now != before || p.at.hop().In.Delay != p.fast.AToB.Delay {
		t.Errorf("refused, and changed to %+v, %+v", now, p.at.hop())
	}
	const back = 5 * time.Microsecond // as it was
	if err := p.set(1e9, 1e9, fits-back+time.Microsecond, back); err == nil {
		t.Errorf("a microsecond more than %v fits", fits)
	}
	if err := p.set(1e9, 1e9, fits-back, back); err != nil {
		t.Errorf("%v does not fit: %v", fits, err)
	}
	p.run(50 * time.Millisecond)
	if lost := p.dropped(Headroom); lost > 0 {
		t.Errorf("%d frames overran all that there is", lost)
	}
	if err := p.set(400e9, 1e9, time.Microsecond, 0); err == nil ||
		!strings.Contains(err.Error(), "no delay is short enough at these rates") {
		t.Errorf("got %v for a rate that no delay fits", err)
	}
}
