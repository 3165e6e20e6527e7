package flows

import (
	"context"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"railbed/internal/units"
	"railbed/transports"
	"railbed/transports/tcp"
)

// TestPublishedSizes holds the published distributions' means against figures that papers
// give, and samples against the distribution.
func TestPublishedSizes(t *testing.T) {
	for name, mean := range map[string]float64{
		"web-search":  1.7e6, // pFabric, section 5.1, says 1.6 MB; HPCC's points are a little coarser
		"data-mining": 7.4e6, // the same section
		"hadoop":      122e3, // of HPCC's file, by its own generator's formula
		"storage":     43e3,  // the same
	} {
		s := Published[name]
		if got := s.Mean(); math.Abs(got-mean)/mean > 0.08 {
			t.Errorf("%s: mean of %.0f bytes, want about %.0f", name, got, mean)
		}
		var sum float64
		const n = 200_000
		last := units.Bytes(0)
		for i := range n {
			v := s.At((float64(i) + 0.5) / n)
			if v < last {
				t.Fatalf("%s: %d after %d", name, v, last)
			}
			last = v
			sum += float64(v)
		}
		if got := sum / n; math.Abs(got-s.Mean())/s.Mean() > 0.01 {
			t.Errorf("%s: samples of %.0f bytes on average, want %.0f", name, got, s.Mean())
		}
		if small := s.Scaled(0.01); math.Abs(small.Mean()*100-s.Mean()) > 1 ||
			small.Most() != units.Bytes(float64(s.Most())/100) {
			t.Errorf("%s: scaled by 1/100 the mean is %v and the largest %v", name, small.Mean(),
				small.Most())
		}
	}
	if s := Published["web-search"]; s.At(0.15) != 10_000 || s.At(0.35) != 40_000 || s.At(1) != 30_000_000 ||
		s.At(0) != 1 {
		t.Errorf("web search at 0, 0.15, 0.35 and 1: %v, %v, %v, %v", s.At(0), s.At(0.15), s.At(0.35),
			s.At(1))
	}
	if s := Published["data-mining"]; s.At(0.3) != 1460 || s.At(0.5) != 1460 {
		t.Errorf("half of data mining's have %v", s.At(0.3))
	}
}

// TestOpenLoop holds that a schedule has the load, the pairs and the times of a Poisson
// process.
func TestOpenLoop(t *testing.T) {
	o := Open{Ranks: 5, Count: 40_000, Sizes: Published["storage"], Load: 0.4, Rate: 1_000_000_000, Seed: 1}
	s, err := o.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	messages := s.Messages
	var pairs [5][5]int
	var bytes, gaps, squares float64
	last := time.Duration(0)
	for _, m := range messages {
		pairs[m.From][m.To]++
		bytes += float64(m.Bytes)
		gap := float64(m.At - last)
		gaps, squares, last = gaps+gap, squares+gap*gap, m.At
	}
	if load := bytes * 8 / last.Seconds() / 5 / 1e9; math.Abs(load-0.4) > 0.02 {
		t.Errorf("load of %.3f, want 0.4", load)
	}
	n := float64(len(messages))
	if deviation := math.Sqrt(squares/n-gaps/n*gaps/n) / (gaps / n); math.Abs(deviation-1) > 0.03 {
		t.Errorf("gaps deviate by %.3f of their mean, want 1", deviation)
	}
	for from, row := range pairs {
		for to, count := range row {
			if want := 40_000 / 20; from == to && count > 0 ||
				from != to && math.Abs(float64(count-want)) > 6*math.Sqrt(float64(want)) {
				t.Errorf("%d messages from rank %d to rank %d", count, from, to)
			}
		}
	}
	again, _ := o.Schedule()
	if !slices.Equal(messages, again.Messages) {
		t.Error("the same seed gives another schedule")
	}
	for _, o := range []Open{{Ranks: 1, Load: 1, Rate: 1}, {Ranks: 2, Rate: 1},
		{Ranks: 2, Load: math.NaN(), Rate: 1}, {Ranks: 2, Load: 1}} {
		if _, err := o.Schedule(); err == nil {
			t.Errorf("%+v gives a schedule", o)
		}
	}
}

// TestClosedLoop holds that all ranks send as much, to all others, and no more than agreed at
// once.
func TestClosedLoop(t *testing.T) {
	s, err := Closed{Ranks: 4, Count: 6000, Sizes: Published["storage"], Outstanding: 3, Seed: 1}.Schedule()
	if err != nil || s.Outstanding != 3 || Check(s.Messages, 4) != nil {
		t.Fatal(s.Outstanding, err)
	}
	var pairs [4][4]int
	for _, m := range s.Messages {
		pairs[m.From][m.To]++
	}
	for from, row := range pairs {
		for to, count := range row {
			if from != to && math.Abs(float64(count-500)) > 6*math.Sqrt(500) {
				t.Errorf("%d messages from rank %d to rank %d", count, from, to)
			}
		}
	}
	for _, c := range []Closed{{Ranks: 1, Outstanding: 1}, {Ranks: 2}} {
		if _, err := c.Schedule(); err == nil {
			t.Errorf("%+v gives a schedule", c)
		}
	}
}

// TestCacheSchedule holds a schedule by hand: two requests at one prefill rank, of which
// the second one waits.
func TestCacheSchedule(t *testing.T) {
	c := Cache{Ranks: 3, Prefill: 1, Requests: 2, PerSecond: 1e9, Layers: 2, LayerTime: 10 * time.Millisecond,
		LayerBytes: 5, Seed: 4}
	s, err := c.Schedule()
	if err != nil || len(s.Messages) != 4 || len(s.Prompts) != 2 {
		t.Fatal(s, err)
	}
	messages, begin := s.Messages, s.Prompts[0].Arrived
	for i, want := range []struct {
		to, group int
		at        time.Duration
	}{{1, 0, 10}, {1, 0, 20}, {2, 1, 30}, {2, 1, 40}} {
		if m := messages[i]; m.To != want.to || m.Group != want.group ||
			m.At != begin+want.at*time.Millisecond || m.From != 0 || m.Bytes != 5 {
			t.Errorf("message %d is %+v, want %+v", i, m, want)
		}
	}
	c.Whole = true
	if s, _ := c.Schedule(); s.Messages[0].At != begin+20*time.Millisecond ||
		s.Messages[1].At != s.Messages[0].At {
		t.Errorf("sent as a whole they are %+v", s.Messages)
	}
	done := Groups(messages, []Sent{{Message: 0, Done: 7}, {Message: 1, Done: 6}, {Message: 3, Done: 9}})
	if !slices.Equal(done, []time.Duration{7, 9}) {
		t.Errorf("groups are done at %v", done)
	}
	if _, err := (Cache{Ranks: 1, Prefill: 1, PerSecond: 1, Layers: 1}).Schedule(); err == nil {
		t.Error("no decode ranks give a schedule")
	}
}

func TestSlowdowns(t *testing.T) {
	messages := []Message{{Bytes: 300, At: 10}, {Bytes: 100, At: 20}, {Bytes: 200, At: 30},
		{Bytes: 400, At: 40}, {From: 1, To: 1, Bytes: 50}}
	sent := []Sent{{Message: 0, Done: 10 + 600}, {Message: 1, Done: 20 + 100}, {Message: 2, Done: 30 + 600},
		{Message: 3, Done: 40 + 400}, {Message: 4, Done: 9}}
	bins := (&Schedule{Messages: messages}).Slowdowns(sent, 2, func(m Message) time.Duration {
		if m.From == m.To && m.Bytes == 50 { // within a node
			return 0
		}
		return time.Duration(m.Bytes)
	})
	if len(bins) != 2 || bins[0].AtMost != 200 || bins[0].P50 != 1 || bins[0].Most != 3 ||
		bins[1].AtMost != 400 || bins[1].P50 != 1 || bins[1].P99 != 2 {
		t.Errorf("slowdowns %+v", bins)
	}
	if p := PercentilesOf([]float64{5}); p.Count != 1 || p.P50 != 5 || p.P999 != 5 ||
		PercentilesOf(nil).Count != 0 {
		t.Errorf("percentiles of one value: %+v", p)
	}
}

// TestStraggler holds that the rank is found whose messages take long, sent or got, and none
// where all take as long or there are too few.
func TestStraggler(t *testing.T) {
	s := &Schedule{}
	var sent []Sent
	for i := range 120 {
		m := Message{From: i % 4, To: (i + 1 + i/4%3) % 4, Bytes: 1, At: time.Duration(i)}
		s.Messages = append(s.Messages, m)
		sent = append(sent, Sent{Message: i, Begun: m.At + 7, Done: m.At + time.Duration(10+i%5)})
	}
	if got := s.Straggler(sent, 4); got != nil {
		t.Errorf("of ranks that are alike %+v", got)
	}
	slow := slices.Clone(sent)
	for i, m := range s.Messages {
		if m.From == 2 || m.To == 2 {
			slow[i].Done += 90
		}
	}
	if got := s.Straggler(slow, 4); got == nil || got.Rank != 2 || got.Median != 102 || got.Others != 12 {
		t.Errorf("rank 2 is slow, not %+v", got)
	}
	if got := s.Straggler(slow[:30], 4); got != nil {
		t.Errorf("of too few messages %+v", got)
	}
	s.Outstanding = 1
	if got := s.Took(slow[0]); got != slow[0].Done-slow[0].Begun {
		t.Errorf("in a closed loop a message takes %v", got)
	}
}

// players are all ranks of a schedule in one process over TCP.
func players(t *testing.T, ranks int, s *Schedule) []*Player {
	t.Helper()
	memory := Layout(s.Messages, ranks)
	configs := make([]PlayerConfig, ranks)
	inputs := make([][]byte, ranks)
	for i := range configs {
		e, err := tcp.Open(tcp.Config{Addr: netip.MustParseAddr("127.0.0.1")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		configs[i] = PlayerConfig{
			Endpoint: e, Rank: i, Peers: make([]transports.Peer, ranks), Inputs: inputs, Schedule: s,
			Output: make([]byte, memory.Output[i]), Input: make([]byte, memory.Input[i]),
		}
		if len(configs[i].Input) > 0 {
			region, err := e.Register(configs[i].Input, transports.RemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			inputs[i] = region.Remote()
		}
	}
	all := make([]*Player, ranks)
	for i := range configs {
		for k := range configs {
			if k == i {
				continue
			}
			peer, err := configs[i].Endpoint.AddPeer(configs[k].Endpoint.Address())
			if err != nil {
				t.Fatal(err)
			}
			configs[i].Peers[k] = peer
		}
		p, err := NewPlayer(configs[i])
		if err != nil {
			t.Fatal(err)
		}
		all[i] = p
	}
	return all
}

func playAll(t *testing.T, all []*Player) []Sent {
	t.Helper()
	sent := make([][]Sent, len(all))
	var group errgroup.Group
	for _, p := range all {
		p.Fill(3)
	}
	for i, p := range all {
		group.Go(func() (err error) {
			sent[i], _, err = p.Play(t.Context())
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return slices.Concat(sent...)
}

// Bytes in a reported hole may be unchanged or may have arrived. Other bytes must be right, and a
// message must not lack more than is allowed.
func TestHoles(t *testing.T) {
	s := &Schedule{Messages: []Message{{From: 0, To: 1, Bytes: 1000}, {From: 0, To: 1, Bytes: 10}},
		Droppable: units.Ratio{Num: 1, Den: 50}}
	all := players(t, 2, s)
	playAll(t, all)
	p := all[1]
	p.holes[0] = []transports.Hole{{Offset: 100, Bytes: 20}}
	clear(p.config.Input[p.memory.to[0]+100:][:15])
	if wrong := p.Wrong(3); wrong != 0 {
		t.Errorf("%d bytes beside the hole are wrong", wrong)
	}
	p.config.Input[p.memory.to[0]+99] ^= 1
	p.config.Input[p.memory.to[0]+119] ^= 1
	if wrong := p.Wrong(3); wrong != 2 {
		t.Errorf("%d bytes are wrong, want those before the hole and in it", wrong)
	}
	if got := []units.Bytes{s.MayMiss(0), s.MayMiss(1)}; got[0] != 20 || got[1] != 0 {
		t.Errorf("messages may lack %v", got)
	}
	taken := &taken{play: &play{Player: p}, came: make([]bool, 2)}
	if err := taken.take(&transports.Completion{Op: transports.OpReceive, Bytes: 979, Missing: 21},
		0); err == nil {
		t.Error("a message that lacks 21 bytes, of 20, was taken")
	}
}

// TestPlay holds that all messages come whole, none before it was due, and that a damaged
// byte is seen.
func TestPlay(t *testing.T) {
	open := Open{Ranks: 3, Count: 300, Sizes: Published["storage"], Load: 0.5, Rate: 2_000_000_000, Seed: 2}
	s, err := open.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	messages := s.Messages
	for _, outstanding := range []int{0, 4} {
		all := players(t, 3, &Schedule{Messages: messages, Outstanding: outstanding})
		sent := playAll(t, all)
		if len(sent) != len(messages) {
			t.Fatalf("%d of %d messages were sent", len(sent), len(messages))
		}
		for _, s := range sent {
			if m := messages[s.Message]; s.Done < s.Begun || outstanding == 0 && s.Begun < m.At {
				t.Errorf("message %d, due at %v: begun at %v and done at %v", s.Message, m.At, s.Begun,
					s.Done)
			}
		}
		for rank, p := range all {
			if wrong := p.Wrong(3); wrong != 0 {
				t.Errorf("rank %d got %d wrong bytes", rank, wrong)
			}
		}
		all[1].config.Input[77] ^= 1
		if wrong := all[1].Wrong(3); wrong != 1 {
			t.Errorf("one byte is damaged, and %d are wrong", wrong)
		}
		if all[1].Wrong(4) < len(all[1].config.Input)/2 {
			t.Error("two rounds send the same")
		}
	}
}

// TestOutstanding holds that a closed loop has so many messages on their way and no more.
func TestOutstanding(t *testing.T) {
	const depth = 3
	s := Blocks{Ranks: 2, Servers: 1, Count: 200, Block: 4096, Outstanding: depth, Reads: 0.5,
		Seed: 1}.Schedule()
	sent := playAll(t, players(t, 2, s))
	sent = slices.DeleteFunc(sent, func(o Sent) bool { return s.IsAnswer(o.Message) })
	slices.SortFunc(sent, func(a, b Sent) int { return int(a.Begun - b.Begun) })
	for i, s := range sent {
		before := 0 // on their way when this one was begun
		for _, other := range sent[:i] {
			if other.Done > s.Begun {
				before++
			}
		}
		if before > depth {
			t.Errorf("message %d was begun with %d others on their way", i, before)
		}
	}
}

// TestReads holds that blocks that are read come from the storage, whole and only after they
// were asked for, and that a mix has its share of them.
func TestReads(t *testing.T) {
	s := Blocks{Ranks: 4, Servers: 2, Count: 300, Block: 4096, Outstanding: 4, Reads: 0.7, Seed: 9}.Schedule()
	if err := Check(s.Messages, 4); err != nil {
		t.Fatal(err)
	}
	all := players(t, 4, s)
	times := make([]Sent, len(s.Messages))
	for _, one := range playAll(t, all) {
		times[one.Message] = one
	}
	reads, writes := 0, 0
	for i, m := range s.Messages {
		switch {
		case m.Answer == 0 && !s.IsAnswer(i):
			writes++
		case m.Answer > 0:
			reads++
			// The clock of each player starts when it does, so within a rank alone.
			if answer := s.Messages[m.Answer]; m.Bytes != requestBytes || answer.Bytes != 4096 ||
				answer.From >= 2 || times[i].Done <= times[i].Begun {
				t.Errorf("read %d, %+v, %+v: %+v", i, m, answer, times[i])
			}
		}
	}
	if n := 600; reads+writes != n || reads < n*65/100 || reads > n*75/100 {
		t.Errorf("%d reads and %d writes of %d", reads, writes, n)
	}
	for rank, p := range all {
		if wrong := p.Wrong(3); wrong != 0 {
			t.Errorf("rank %d got %d wrong bytes", rank, wrong)
		}
	}
	if all := (Blocks{Ranks: 2, Servers: 1, Count: 50, Block: 1, Outstanding: 1, Reads: 1}).Schedule(); len(
		all.Messages) != 100 || !all.IsAnswer(1) || all.IsAnswer(2) {
		t.Errorf("of reads alone: %+v", all.Messages[:3])
	}
	for name, change := range map[string]func(m []Message){
		"another answer":  func(m []Message) { m[0].Answer = 3 },
		"no way back":     func(m []Message) { m[1].To = 1 },
		"an answer to it": func(m []Message) { m[1].Answer = 2 },
		"behind the end":  func(m []Message) { m[3].Answer = 4 },
		"nobody":          func(m []Message) { m[2].To = 9 },
	} {
		m := slices.Repeat([]Message{{From: 2, To: 0, Bytes: 64, Answer: 1}, {From: 0, To: 2, Bytes: 9}}, 2)
		m[0].Answer, m[2].Answer = 1, 3
		change(m)
		if Check(m, 3) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestPlayEnds holds that the end of another rank ends a player, and so does that of its
// context.
func TestPlayEnds(t *testing.T) {
	messages := slices.Repeat(
		[]Message{{From: 0, To: 1, Bytes: 100, At: time.Hour}, {From: 1, To: 0, Bytes: 100}}, 2)
	ctx, cancel := context.WithCancel(t.Context())
	all := players(t, 2, &Schedule{Messages: messages})
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, _, err := all[0].Play(ctx); err == nil {
		t.Error("a player whose context ended played on")
	}
	all = players(t, 2, &Schedule{Messages: messages})
	time.AfterFunc(20*time.Millisecond, func() { all[0].config.Endpoint.Close() })
	if _, _, err := all[1].Play(t.Context()); err == nil {
		t.Error("a player whose peer ended played on")
	}
}
