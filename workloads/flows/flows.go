// Package flows generates traffic that does not belong to a collective. Open and Closed make
// messages whose sizes follow published distributions. Open's messages are due at random times.
// Closed's are sent when earlier messages are done. Cache moves key-value caches from prefill to
// decode nodes layer by layer as they are computed. Blocks writes or reads blocks of storage, with
// a fixed number outstanding.
//
// A schedule is made from a seed before anything is sent, and is the same at all ranks. A Player
// sends one rank's part of it over any transports.Endpoint and measures the times. Times count from
// when a message was due, not from when its sender posted it. So the times include the delay of a
// sender that falls behind, and such a sender does not hide the delay of later messages.
//
// Schedules, and the computations on times, are pure. A Player is for one goroutine.
package flows

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"railbed/internal/units"
)

// Schedule lists the messages of all ranks.
type Schedule struct {
	Messages []Message `json:"messages"` // sorted by due time
	// Outstanding is the number of messages that a rank may have in transit at once. Each message
	// is then posted when an earlier one is done, whenever it was due (a closed loop). With 0 there
	// is no limit, and each message is posted when it is due.
	Outstanding int `json:"outstanding,omitempty"`
	// Droppable is the share of each message's bytes that the transport may leave out, if it can
	// report which.
	Droppable units.Ratio `json:"droppable,omitzero"`
	// Prompts are the requests of a Cache, by group.
	Prompts []Prompt `json:"-"`
}

// IsAnswer reports whether message i is sent when another message has arrived. The message that it
// answers is directly before it.
func (s *Schedule) IsAnswer(i int) bool { return i > 0 && s.Messages[i-1].Answer == i }

// Bytes returns the bytes of all messages.
func (s *Schedule) Bytes() (sum units.Bytes) {
	for _, m := range s.Messages {
		sum += m.Bytes
	}
	return sum
}

// MayMiss returns the number of bytes of a message that may be left out.
func (s *Schedule) MayMiss(i int) units.Bytes { return s.Droppable.Of(s.Messages[i].Bytes) }

// Pairs returns the pairs of a sending and a receiving rank.
func (s *Schedule) Pairs() [][2]int {
	seen := map[[2]int]bool{}
	for _, m := range s.Messages {
		seen[[2]int{m.From, m.To}] = true
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
}

// Sent returns the bytes that a rank sends.
func (s *Schedule) Sent(rank int) (sum units.Bytes) {
	for _, m := range s.Messages {
		if m.From == rank {
			sum += m.Bytes
		}
	}
	return sum
}

// Message is a message of a schedule.
type Message struct {
	From  int         `json:"from"` // rank
	To    int         `json:"to"`
	Bytes units.Bytes `json:"bytes"`
	// At is the message's due time, after the start.
	At time.Duration `json:"at,omitempty"`
	// Group numbers messages that are useful only together, such as the layers of a request.
	Group int `json:"group,omitempty"`
	// Answer is the number of the message that is sent back as soon as this message has arrived,
	// and whose arrival completes this message. It is the next message. 0 means no answer.
	Answer int `json:"answer,omitempty"`
	// Copy is set if the message has the bytes of the message before it, for another rank. Both are done
	// when the later one is, and have one place among those in transit.
	Copy bool `json:"copy,omitempty"`
}

// first returns the message of which message i is a copy, or i.
func (s *Schedule) first(i int) int {
	for s.Messages[i].Copy {
		i--
	}
	return i
}

// Check returns an error if a message is invalid for the given number of ranks.
func Check(messages []Message, ranks int) error {
	for i, m := range messages {
		if min(m.From, m.To) < 0 || max(m.From, m.To) >= ranks || m.From == m.To || m.Bytes == 0 {
			return fmt.Errorf("message %d of %v from rank %d to rank %d: want at least 1 byte, and two "+
				"different ranks from 0 to %d", i, m.Bytes, m.From, m.To, ranks-1)
		}
		if a := m.Answer; a != 0 && (a != i+1 || a >= len(messages) || messages[a].From != m.To ||
			messages[a].To != m.From || messages[a].Answer != 0) {
			return fmt.Errorf("message %d is answered by message %d: want the next message, in the other "+
				"direction", i, a)
		}
		if m.Copy && (i == 0 || m.Answer != 0 || messages[i-1].Answer != 0 || messages[i-1].From != m.From ||
			messages[i-1].To == m.To || messages[i-1].Bytes != m.Bytes) {
			return fmt.Errorf("message %d is a copy: want it after the message of the same rank and length, "+
				"for another rank", i)
		}
	}
	return nil
}

// Open makes messages that arrive as a Poisson process, independently of earlier messages: an open
// loop.
type Open struct {
	Ranks, Count int
	Sizes        *Sizes
	// Load is the share of a NIC's Rate that a rank sends on average.
	Load float64
	Rate units.Rate
	Seed uint64
}

// Schedule makes messages from random ranks to random other ranks.
func (o Open) Schedule() (*Schedule, error) {
	switch {
	case o.Ranks < 2:
		return nil, fmt.Errorf("%d ranks, want at least 2 for messages", o.Ranks)
	case !(o.Load > 0) || o.Rate == 0:
		return nil, fmt.Errorf("load %v of rate %v, want both above 0", o.Load, o.Rate)
	}
	draw := rand.New(rand.NewPCG(o.Seed, 0))
	perSecond := float64(o.Ranks) * o.Load * float64(o.Rate) / 8 / o.Sizes.Mean()
	messages := make([]Message, o.Count)
	var at float64
	for i := range messages {
		at += draw.ExpFloat64() / perSecond
		m := Message{From: draw.IntN(o.Ranks), Bytes: o.Sizes.At(draw.Float64()), At: seconds(at), Group: i}
		m.To = (m.From + 1 + draw.IntN(o.Ranks-1)) % o.Ranks
		messages[i] = m
	}
	return &Schedule{Messages: messages}, nil
}

// Closed makes messages of which each rank has a fixed number in transit, whatever time they take:
// a closed loop.
type Closed struct {
	Ranks, Count int
	Sizes        *Sizes
	Outstanding  int
	Seed         uint64
}

// Schedule makes messages from all ranks in turn, each to a random other rank.
func (c Closed) Schedule() (*Schedule, error) {
	if c.Ranks < 2 || c.Outstanding < 1 {
		return nil, fmt.Errorf("%d ranks with %d messages in transit: want at least 2 ranks, and 1 message",
			c.Ranks, c.Outstanding)
	}
	draw := rand.New(rand.NewPCG(c.Seed, 0))
	s := &Schedule{Outstanding: c.Outstanding}
	for i := range c.Count {
		from := i % c.Ranks
		to := (from + 1 + draw.IntN(c.Ranks-1)) % c.Ranks
		s.Messages = append(s.Messages,
			Message{From: from, To: to, Bytes: c.Sizes.At(draw.Float64()), Group: i})
	}
	return s, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Cache is the transfer of key-value caches in LLM serving with separate prefill and decode ranks
// (Zhong et al., "DistServe", 2024; Qin et al., "Mooncake", 2024).
type Cache struct {
	Ranks, Prefill int // ranks from Prefill on decode
	// Requests is the number of requests. They arrive as a Poisson process with PerSecond requests
	// per second.
	Requests  int
	PerSecond float64
	// A non-nil Trace supplies the requests, with their times multiplied by TimeScale. There are at
	// most Requests of them, unless Requests is 0. LayerTime and LayerBytes then apply to a prompt
	// of Tokens tokens, and to other prompts in proportion.
	Trace     []Request
	TimeScale float64
	Tokens    int
	// A prompt takes its prefill rank LayerTime for each of Layers, and produces LayerBytes for
	// each. A rank computes one request after the other.
	Layers     int
	LayerTime  time.Duration
	LayerBytes units.Bytes
	// Output is the number of output tokens of a request for which the trace gives none.
	Output int
	// Whole sends all layers after the last layer was computed, instead of each layer when it is
	// computed.
	Whole bool
	Seed  uint64
}

// prompt is a request, with its time and bytes for each layer.
type prompt struct {
	at, time time.Duration
	bytes    units.Bytes
	output   int
}

func (c Cache) prompts() []prompt {
	var all []prompt
	for _, r := range c.Trace {
		if c.Requests > 0 && len(all) == c.Requests {
			break
		}
		part := float64(r.Tokens) / float64(c.Tokens)
		all = append(all, prompt{seconds(r.At.Seconds() * c.TimeScale), seconds(c.LayerTime.Seconds() * part),
			round(float64(c.LayerBytes) * part), cmp.Or(r.Output, c.Output)})
	}
	if c.Trace != nil {
		return all
	}
	draw := rand.New(rand.NewPCG(c.Seed, 0))
	var at float64
	for range c.Requests {
		at += draw.ExpFloat64() / c.PerSecond
		all = append(all, prompt{seconds(at), c.LayerTime, c.LayerBytes, c.Output})
	}
	return all
}

// Schedule makes the messages of the layers of requests. Prefill and decode ranks take requests in
// turn. Groups are the numbers of requests.
func (c Cache) Schedule() (*Schedule, error) {
	decode := c.Ranks - c.Prefill
	switch {
	case c.Prefill < 1 || decode < 1 || c.Layers < 1:
		return nil, fmt.Errorf("%d prefill and %d decode ranks, requests of %d layers: want at least 1 of "+
			"each", c.Prefill, decode, c.Layers)
	case c.Trace == nil && !(c.PerSecond > 0):
		return nil, fmt.Errorf("%v requests a second: want more than 0", c.PerSecond)
	case c.Trace != nil && (c.Tokens < 1 || !(c.TimeScale > 0)):
		return nil, fmt.Errorf("a trace with time scale %v, and a prompt of %d tokens: want both above 0",
			c.TimeScale, c.Tokens)
	}
	free := make([]time.Duration, c.Prefill)
	s := &Schedule{}
	for r, p := range c.prompts() {
		by, to := r%c.Prefill, c.Prefill+r%decode
		begin := max(p.at, free[by])
		free[by] = begin + time.Duration(c.Layers)*p.time
		s.Prompts = append(s.Prompts, Prompt{Arrived: p.at, Begun: begin, Computed: free[by], To: to,
			Output: p.output})
		for layer := range c.Layers {
			due := begin + time.Duration(layer+1)*p.time
			if c.Whole {
				due = free[by]
			}
			s.Messages = append(s.Messages, Message{From: by, To: to, Bytes: p.bytes, At: due, Group: r})
		}
	}
	slices.SortStableFunc(s.Messages, func(a, b Message) int { return int(a.At - b.At) })
	return s, nil
}

// Blocks are blocks of storage that ranks write to other ranks or read from them: a closed loop.
type Blocks struct {
	Ranks, Servers int // ranks from Servers on write and read
	Count          int // blocks of each such rank
	Block          units.Bytes
	Outstanding    int
	// Reads is the share of blocks that are read. Each read block is the answer to a request.
	Reads float64
	// Replicas is the number of servers to which a block is written, at most Servers. 0 is 1.
	Replicas int
	Seed     uint64
}

// copies returns the further copies of a block that is written, each to another server.
func (b Blocks) copies(m Message, draw *rand.Rand) (copies []Message) {
	first := m.To
	for _, after := range draw.Perm(b.Servers - 1)[:b.Replicas-1] {
		m.To, m.Copy = (first+1+after)%b.Servers, true
		copies = append(copies, m)
	}
	return copies
}

// requestBytes is the size of a request for a block: that of an NVMe command.
const requestBytes units.Bytes = 64

// Schedule makes the messages of blocks to and from random servers.
func (b Blocks) Schedule() *Schedule {
	draw := rand.New(rand.NewPCG(b.Seed, 0))
	s := &Schedule{Outstanding: b.Outstanding}
	for i := range b.Count {
		for from := b.Servers; from < b.Ranks; from++ {
			m := Message{From: from, To: draw.IntN(b.Servers), Bytes: b.Block, Group: i}
			if b.Reads > 0 && draw.Float64() < b.Reads {
				block := m
				block.From, block.To = m.To, m.From
				m.Bytes, m.Answer = requestBytes, len(s.Messages)+1
				s.Messages = append(s.Messages, m, block)
				continue
			}
			s.Messages = append(s.Messages, m)
			if b.Replicas > 1 {
				s.Messages = append(s.Messages, b.copies(m, draw)...)
			}
		}
	}
	return s
}
