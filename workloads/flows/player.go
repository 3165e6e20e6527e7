package flows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"railbed/transports"
)

// Memory is the memory that a rank needs for a schedule, with the places of its messages. Each message
// has its own place, so that each can be checked after all have arrived. Copies share the place from which
// they are sent.
type Memory struct {
	// Output and Input are the numbers of bytes that each rank sends and receives.
	Output, Input []int
	from, to      []int // offsets in Output and Input, by message
}

// Layout assigns each message its places.
func Layout(messages []Message, ranks int) *Memory {
	m := &Memory{Output: make([]int, ranks), Input: make([]int, ranks), from: make([]int, len(messages)),
		to: make([]int, len(messages))}
	for i, message := range messages {
		m.from[i], m.to[i] = m.Output[message.From], m.Input[message.To]
		m.Input[message.To] += int(message.Bytes)
		if message.Copy {
			m.from[i] = m.from[i-1]
			continue
		}
		m.Output[message.From] += int(message.Bytes)
	}
	return m
}

// PlayerConfig is one rank's part in a schedule.
type PlayerConfig struct {
	Endpoint transports.Endpoint
	Rank     int
	// Peers are the endpoint's peers, by rank, and Inputs the handles of their input.
	Peers    []transports.Peer
	Inputs   [][]byte
	Schedule *Schedule // of all ranks
	// Output and Input are this rank's memory, with the sizes that Layout returns. Input must be
	// registered for remote writing.
	Output, Input []byte
}

// Player sends a rank's messages and waits for the other ranks' messages.
type Player struct {
	config   PlayerConfig
	memory   *Memory
	own      []int // messages that this rank sends
	mine     []int // own messages that are not answers
	answers  int   // number of own answers
	expected int   // number of messages from other ranks
	rankOf   map[transports.Peer]int
	holes    [][]transports.Hole // of the latest round, by message
}

// NewPlayer returns a player. The player needs the endpoint for itself while it plays.
func NewPlayer(c PlayerConfig) (*Player, error) {
	p := &Player{
		config: c, memory: Layout(c.Schedule.Messages, len(c.Peers)), rankOf: make(map[transports.Peer]int),
		holes: make([][]transports.Hole, len(c.Schedule.Messages)),
	}
	if out, in := p.memory.Output[c.Rank],
		p.memory.Input[c.Rank]; len(c.Output) != out || len(c.Input) != in {
		return nil, fmt.Errorf("output of %d bytes and input of %d: want %d and %d", len(c.Output),
			len(c.Input), out, in)
	}
	if err := Check(c.Schedule.Messages, len(c.Peers)); err != nil {
		return nil, err
	}
	for i, m := range c.Schedule.Messages {
		switch {
		case m.From == c.Rank && c.Schedule.IsAnswer(i):
			p.own, p.answers = append(p.own, i), p.answers+1
		case m.From == c.Rank:
			p.own, p.mine = append(p.own, i), append(p.mine, i)
		}
		if m.To == c.Rank {
			p.expected++
		}
	}
	for rank, peer := range c.Peers {
		if rank != c.Rank {
			p.rankOf[peer] = rank
		}
	}
	return p, nil
}

// Fill sets the data to send, which differs in each round, and clears the input.
func (p *Player) Fill(round int) {
	for _, i := range p.own {
		pattern(p.config.Output[p.memory.from[i]:][:p.config.Schedule.Messages[i].Bytes],
			p.config.Schedule.first(i), round, fill)
	}
	clear(p.config.Input)
	clear(p.holes)
}

// Wrong counts the received bytes that differ from the sent bytes. The transport reports the ranges
// that it did not receive in full. In such a range Wrong does not count bytes that are 0.
func (p *Player) Wrong(round int) (wrong int) {
	for i, m := range p.config.Schedule.Messages {
		if m.To != p.config.Rank {
			continue
		}
		input := p.config.Input[p.memory.to[i]:][:m.Bytes]
		if len(p.holes[i]) == 0 {
			wrong += pattern(input, p.config.Schedule.first(i), round, differ)
			continue
		}
		want := make([]byte, len(input))
		pattern(want, p.config.Schedule.first(i), round, fill)
		for at, b := range input {
			if b != want[at] && (b != 0 || !inHole(p.holes[i], at)) {
				wrong++
			}
		}
	}
	return wrong
}

func inHole(holes []transports.Hole, at int) bool {
	return slices.ContainsFunc(holes, func(h transports.Hole) bool {
		return at >= h.Offset && at < h.Offset+h.Bytes
	})
}

// pattern calls do for each 8 bytes of a message with their expected value, and adds up the
// results.
func pattern(b []byte, message, round int, do func(b []byte, want uint64) int) (sum int) {
	state := uint64(message)<<32 | uint64(round)
	for ; len(b) > 0; b = b[min(8, len(b)):] { // splitmix64, by Vigna
		state += 0x9e3779b97f4a7c15
		z := (state ^ state>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		sum += do(b[:min(8, len(b))], z^z>>31)
	}
	return sum
}

func fill(b []byte, want uint64) int {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], want)
	copy(b, word[:])
	return 0
}

func differ(b []byte, want uint64) (wrong int) {
	for i, v := range b {
		if v != byte(want>>(8*i)) {
			wrong++
		}
	}
	return wrong
}

// Play sends this rank's messages, each when it is due, and answers. It returns when all are done
// and all messages of other ranks have arrived. The start is now. missing is the number of bytes
// left out of the received messages.
func (p *Player) Play(ctx context.Context) (sent []Sent, missing uint64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	run := &play{
		Player: p,
		start:  time.Now(),
		copies: map[int]int{},
		begun:  make([]time.Duration, len(p.config.Schedule.Messages)),
		asked:  make(chan int, p.answers),
		room:   make(chan struct{}, 1), roomToAnswer: make(chan struct{}, 1),
	}
	if p.config.Schedule.Outstanding > 0 {
		run.slots = make(chan struct{}, p.config.Schedule.Outstanding)
	}
	for _, i := range p.mine {
		if p.config.Schedule.Messages[i].Copy {
			run.copies[p.config.Schedule.first(i)]++
		}
	}
	var posting sync.WaitGroup
	for _, post := range []func(context.Context) error{run.postAll, run.answer} {
		posting.Go(func() {
			if err := post(ctx); err != nil {
				cancel(err)
			}
		})
	}
	sent, missing, err = run.poll(ctx)
	cancel(err)
	posting.Wait()
	if cause := context.Cause(ctx); err != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	return sent, missing, err
}

// play is the state of one Play.
type play struct {
	*Player
	start time.Time
	begun []time.Duration // by message; written before the message is posted
	asked chan int        // due answers
	slots chan struct{}   // of a closed loop
	// copies counts the copies of a message that are not done, by the first message. The last one frees the
	// slot.
	copies map[int]int
	// room and roomToAnswer signal that the endpoint may accept more.
	room, roomToAnswer chan struct{}
}

// postAll posts the messages that are not answers.
func (p *play) postAll(ctx context.Context) error {
	pauses := newPauses()
	defer pauses.close()
	for _, i := range p.mine {
		switch m := &p.config.Schedule.Messages[i]; {
		case m.Copy: // it goes with the message before it
		case p.slots == nil:
			pauses.until(ctx, p.start.Add(m.At))
		default:
			select {
			case p.slots <- struct{}{}:
			case <-ctx.Done():
			}
		}
		if err := p.post(ctx, i, p.room); err != nil {
			return err
		}
	}
	return nil
}

// answer posts answers.
func (p *play) answer(ctx context.Context) error {
	for range p.answers {
		select {
		case i := <-p.asked:
			if err := p.post(ctx, i, p.roomToAnswer); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// post posts a message as soon as the endpoint has room for it.
func (p *play) post(ctx context.Context, i int, room <-chan struct{}) error {
	m := &p.config.Schedule.Messages[i]
	p.begun[i] = time.Since(p.start)
	request := []transports.Request{{
		ID: uint64(i), Op: transports.OpWriteImm, Peer: p.config.Peers[m.To], Imm: uint32(i),
		Local:     p.config.Output[p.memory.from[i]:][:m.Bytes],
		Remote:    p.config.Inputs[m.To],
		Offset:    uint64(p.memory.to[i]),
		Droppable: int(p.config.Schedule.MayMiss(i)),
	}}
	for {
		n, err := p.config.Endpoint.Post(ctx, request)
		if err != nil {
			return fmt.Errorf("send to rank %d: %w", m.To, err)
		}
		if n == 1 {
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// poll handles the endpoint's completions until all messages are done.
func (p *play) poll(ctx context.Context) ([]Sent, uint64, error) {
	t := taken{play: p, sent: make([]Sent, 0, len(p.own)),
		came: make([]bool, len(p.config.Schedule.Messages))}
	var batch [64]transports.Completion
	for len(t.sent) < len(p.own) || t.received < p.expected {
		n := p.config.Endpoint.Poll(batch[:])
		if n == 0 {
			if err := p.config.Endpoint.Wait(ctx); err != nil {
				return t.sent, t.missing, err
			}
			continue
		}
		now := time.Since(p.start)
		for i := range batch[:n] {
			if err := t.take(&batch[i], now); err != nil {
				return t.sent, t.missing, err
			}
		}
		for _, room := range []chan struct{}{p.room, p.roomToAnswer} {
			select {
			case room <- struct{}{}:
			default:
			}
		}
	}
	return t.sent, t.missing, nil
}

// taken is the state that follows from completions.
type taken struct {
	*play
	sent     []Sent
	received int
	missing  uint64 // bytes
	came     []bool // by message
}

func (t *taken) take(c *transports.Completion, now time.Duration) error {
	messages := t.config.Schedule.Messages
	switch {
	case c.Err != nil:
		return fmt.Errorf("rank %d: %w", t.rankOf[c.Peer], c.Err)
	case c.Op == transports.OpReceive:
		i := int(c.Imm)
		if i >= len(t.came) || t.came[i] || messages[i].To != t.config.Rank ||
			c.Bytes+c.Missing != int(messages[i].Bytes) || c.Missing > int(t.config.Schedule.MayMiss(i)) {
			return fmt.Errorf("message %d from rank %d with %d bytes, %d missing, is not in the schedule of "+
				"this rank, or came twice", c.Imm, t.rankOf[c.Peer], c.Bytes, c.Missing)
		}
		t.holes[i], t.missing = slices.Clone(c.Holes), t.missing+uint64(c.Missing)
		t.came[i] = true
		t.received++
		if answer := messages[i].Answer; answer > 0 {
			t.asked <- answer // has room for all answers
		}
		if t.config.Schedule.IsAnswer(i) {
			t.done(i-1, now)
		}
	case messages[c.ID].Answer == 0:
		t.done(int(c.ID), now)
	}
	return nil
}

// done records that a message is done, and frees its slot of a closed loop.
func (t *taken) done(i int, now time.Duration) {
	t.sent = append(t.sent, Sent{Message: i, Begun: t.begun[i], Done: now})
	if t.slots == nil || t.config.Schedule.IsAnswer(i) {
		return
	}
	first := t.config.Schedule.first(i)
	if t.copies[first]--; t.copies[first] < 0 {
		<-t.slots
	}
}
