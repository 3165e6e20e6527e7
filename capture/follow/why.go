package follow

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Cause is a reason for which messages took longer than the fastest of their kind.
type Cause struct {
	// Part is the part of the messages' time.
	Part string `json:"part"`
	// Where is a port, a link that was down, or a node if Part is host. A cause that is spread over many
	// places has all of them, in the order of the time that they added.
	Where []string `json:"where"`
	// What explains the cause in words.
	What string `json:"what"`
	// Messages counts the messages that it made late, and Unfinished those of which some byte did not arrive.
	Messages   int `json:"messages"`
	Unfinished int `json:"unfinished,omitempty"`
	// Extra is the time that it added, over all these messages. Share is its part of the time that all causes
	// added.
	Extra time.Duration `json:"extra_ns"`
	Share float64       `json:"share"`
	// Injected is set if the file asked for it: a fault, a change of a link or a link's own losses.
	Injected bool `json:"injected,omitempty"`
	// From and To bound the messages' starts, from the first record.
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`
	// Worst is the number of the message to which it added most, and Most that time.
	Worst int           `json:"worst"`
	Most  time.Duration `json:"most_ns"`
	// Record is a record that shows it: of a drop, or of the packet that waited.
	Record int `json:"record"`
	// File is the file that holds the record, of a recording in several files, and Frame the record's number
	// in it. They are left out for other recordings.
	File  string `json:"file,omitempty"`
	Frame int    `json:"frame,omitempty"`

	at cause
	// weight is the sum of the squares of the times that it added to messages. So a cause that made few
	// messages very slow comes before a cause of many short delays.
	weight float64
	// message is the last message that it made late, by last.
	message int
	last    time.Duration
	// counted are the messages in Messages. A message is true if it is in Unfinished.
	counted map[int]bool
	// effects counts messages by the effect of the cause.
	effects map[string]int
	// between is set if the time is between messages.
	between bool
	// focused is set if one of several nodes stands out.
	focused bool
}

// Answer says why messages of a workload or protocol were slow.
type Answer struct {
	Sum
	// Fast is the time within which the fastest tenth of the messages arrived, of the most frequent length.
	Fast time.Duration `json:"fast_ns"`
	// Needless counts packets that arrived although an earlier copy had arrived.
	Needless int     `json:"needless"`
	Causes   []Cause `json:"causes"`
}

// cause names a cause within an answer.
type cause struct {
	part Part
	tap  int // -1 if the cause is at a node
	node string
	what string
	// injected is set if the file asked for it. Such a cause is always in the answer.
	injected bool
	// by is the fault that did it, "fault NAME", or the link whose settings did. All that it did is one
	// cause.
	by string
}

// slack is the time by which a message may be slower than the fastest without a cause: a quarter, and this
// much.
const slack = int64(50 * time.Microsecond)

// causesShown bounds the causes of an answer, without faults that do not fit in.
const causesShown = 8

// Why compares the messages of each workload and protocol with the fastest tenth of about the same length.
// Its causes are the places where the other messages spent the difference.
func (r *Recording) Why(messages []int) (answers []Answer) {
	return r.why(messages, span{r.Start, r.End}, idleBetween)
}

// WhyIn is Why for the causes of messages that started in the time of an operation. It compares them with all
// messages.
func (r *Recording) WhyIn(messages []int, from, to int64) (answers []Answer) {
	return r.why(messages, span{from, to}, idleWithin)
}

func (r *Recording) why(messages []int, time span, idle int64) (answers []Answer) {
	passing, disorders, forks := map[int][]passage{}, map[int]overtaken{}, map[int][2]string{}
	unheard := r.lostAnswers()
	for _, sum := range r.Sums(messages) {
		var of []int
		for _, i := range messages {
			if f := &r.Flows[r.Messages[i].Flow]; f.Workload == sum.Workload && f.Protocol == sum.Protocol {
				of = append(of, i)
			}
		}
		w := why{r: r, time: time, idle: idle, passing: passing, causes: map[cause]*Cause{},
			disorders: disorders, forks: forks, unheard: unheard}
		answers = append(answers, w.answer(sum, of))
	}
	return answers
}

type why struct {
	r       *Recording
	time    span              // of the starts of messages with causes
	senders int               // the nodes that sent messages
	idle    int64             // time without messages is a cause if it is at least one part in idle
	passing map[int][]passage // by tap
	causes  map[cause]*Cause
	offers  map[string]*offer // by receiver
	flights map[string]uint32 // the most bytes that senders had in flight
	// disorders are the links that were looked at for packets that overtook others, by the sending tap.
	disorders map[int]overtaken
	// forks are the results of forkOf, by flow.
	forks map[int][2]string
	// unheard are the acknowledgements that did not arrive, as indices of Recording.Packets.
	unheard []int
	downs   []incident // links that were down
}

func (w *why) answer(sum Sum, messages []int) Answer {
	r := w.r
	a := Answer{Sum: sum, Causes: []Cause{}}
	sized := map[int][]int{} // by the length's number of bits
	for _, i := range messages {
		m := &r.Messages[i]
		a.Needless += r.needless(m)
		if m.Placed > 0 {
			sized[bits.Len64(uint64(m.Bytes))] = append(sized[bits.Len64(uint64(m.Bytes))], i)
		} else if r.Sees(m.Flow, m.Start) && w.asked(i) {
			w.lost(i)
		}
	}
	from := map[string]bool{}
	for _, i := range messages {
		from[r.Flows[r.Messages[i].Flow].From] = true
	}
	w.senders = len(from)
	most := 0
	for _, length := range slices.Sorted(maps.Keys(sized)) {
		group := sized[length]
		slices.SortFunc(group, func(x, y int) int {
			return cmp.Or(cmp.Compare(r.Messages[x].Took(), r.Messages[y].Took()), cmp.Compare(x, y))
		})
		fast := group[:(len(group)+9)/10]
		var best Account
		for part := range best {
			times := make([]int64, len(fast))
			for i, m := range fast {
				times[i] = r.Messages[m].Account[part]
			}
			slices.Sort(times)
			best[part] = times[len(times)/2]
		}
		limit := int64(r.Messages[fast[len(fast)-1]].Took())
		if len(group) > most {
			most, a.Fast = len(group), r.Own(limit)
		}
		for _, i := range group[len(fast):] {
			if took := int64(r.Messages[i].Took()); took > limit+limit/4+slack && w.asked(i) {
				w.slow(i, &best)
			}
		}
	}
	asked := slices.DeleteFunc(slices.Clone(messages), func(i int) bool { return !w.asked(i) })
	w.late(asked)
	w.windows(asked)
	w.ended(asked)
	a.Causes = w.ranked()
	for i := range a.Causes {
		c := &a.Causes[i]
		c.File, c.Frame = r.inFile(c.Record)
	}
	return a
}

// asked reports whether the causes of a message are asked for.
func (w *why) asked(message int) bool {
	start := w.r.Messages[message].Start
	return start >= w.time.from && start <= w.time.to
}

// add adds a message's time to a cause.
func (w *why) add(at cause, message int, extra int64, record int) {
	c := w.causes[at]
	start := w.r.Own(w.r.Messages[message].Start - w.r.Start)
	if c == nil {
		where := at.node
		if at.tap >= 0 {
			where = w.r.Taps[at.tap].Name()
		}
		c = &Cause{Part: at.part.String(), Where: []string{where}, What: at.what, From: start, To: start,
			Injected: at.injected, at: at, message: -1,
			counted: map[int]bool{}}
		w.causes[at] = c
	}
	own := w.r.Own(extra)
	c.From, c.To = min(c.From, start), max(c.To, start)
	c.Extra += own
	if c.message == message { // it made several parts of the message's time longer
		c.weight -= c.last.Seconds() * c.last.Seconds()
		own += c.last
	} else {
		c.count(message, w.r.Messages[message].Placed == 0)
	}
	c.message, c.last = message, own
	c.weight += own.Seconds() * own.Seconds()
	if c.Worst == 0 || own > c.Most {
		c.Worst, c.Most, c.Record = w.r.Messages[message].Number, own, record
	}
}

// addWith is add with an effect of the cause, "" for none.
func (w *why) addWith(at cause, message int, extra int64, record int, effect string) {
	w.add(at, message, extra, record)
	if effect == "" {
		return
	}
	w.causes[at].led(effect, 1)
}

// lost finds what a message that did not arrive lacks.
func (w *why) lost(message int) {
	m := &w.r.Messages[message]
	if at := w.metAt(w.ends(m), w.during(m), 0); at.what != "" {
		w.add(at, message, 0, w.r.First(int(m.Packets[0])))
		return
	}
	for _, p := range w.r.Messages[message].Packets {
		if p = w.r.awaited(p); w.r.Packets[p].Arrived == 0 {
			at, record, effect := w.endOf(int(p))
			w.addWith(at, message, 0, record, effect)
			return
		}
	}
	what := "the recording ends before the message does"
	if w.r.Messages[message].round > 0 {
		what = "its contributions came to the switch, and no sum was sent"
	}
	w.add(cause{part: Unseen, tap: -1, node: w.r.Flows[w.r.Messages[message].Flow].From, what: what},
		message, 0,
		w.r.First(int(w.r.Messages[message].Packets[0])))
}

// sentNothing is the cause if the sender waited for its program, for a processor, or for congestion control.
const sentNothing = "the sender sent nothing of the message"

// slow finds what a message spent more time on than the fastest.
func (w *why) slow(message int, best *Account) {
	m := &w.r.Messages[message]
	hops := w.r.way(m)
	for part := range Part(Parts) {
		extra := m.Account[part] - best[part]
		if part == Host {
			extra -= m.held // has a cause of its own
		}
		if extra <= 0 {
			continue
		}
		switch part {
		case Host:
			at := w.metAt([]string{w.sender(m)}, w.during(m), extra)
			if at.what == "" {
				at = cause{part: Host, tap: -1, node: w.sender(m), what: sentNothing}
			}
			w.add(at, message, extra, w.r.First(m.Critical))
		case Recover:
			at, record, effect := w.recovered(m, hops)
			w.addWith(at, message, extra, record, effect)
		case Gather:
			at, record, effect := w.gathered(m)
			w.addWith(at, message, extra, record, effect)
		case Emulator:
			w.add(cause{part: part, tap: -1, node: "the emulator", what: "was behind its model"}, message,
				extra,
				w.r.First(m.Critical))
		default:
			most := 0
			for i := range hops {
				if hops[i].Account[part] > hops[most].Account[part] {
					most = i
				}
			}
			at := cause{part: part, tap: hops[most].To.Tap}
			if hops[most].Link {
				at.tap = hops[most].From.Tap
			}
			if set := w.reset(part, at.tap, w.during(m)); set.what != "" {
				at = set
			}
			if part == Fault {
				at, record := w.heldBack(&hops[most].From)
				w.add(at, message, extra, record)
				continue
			}
			w.add(at, message, extra, hops[most].To.Number)
		}
	}
}

// ends returns the sender and the receiver of a message.
func (w *why) ends(m *Message) []string {
	return []string{w.r.Flows[m.Flow].From, w.r.Flows[m.Flow].To}
}

func (w *why) sender(m *Message) string {
	if f := &w.r.Flows[m.Flow]; f.From != "" {
		return f.From
	}
	return w.r.Flows[m.Flow].Src.Addr().String()
}

// needless counts the packets of a message that arrived although an earlier copy had arrived.
func (r *Recording) needless(m *Message) (n int) {
	if m.Again == 0 {
		return 0
	}
	came := map[int64]bool{}
	for _, p := range m.Packets {
		if q := &r.Packets[p]; q.Arrived > 0 {
			if came[q.bytes.from] {
				n++
			}
			came[q.bytes.from] = true
		}
	}
	return n
}

// explain completes the words of a cause.
func (w *why) explain(c *Cause) {
	switch c.at.part {
	case Host:
		switch c.What {
		case sentNothing:
			c.What += w.r.congestionSignals(c.Where) + w.held(c)
		case fullWindow:
			c.What += w.waiters(c.Where)
		case fewInFlight:
			c.What += w.limits(c.Where)
			if _, marked := w.r.marker(c.Where); marked > 0 {
				c.What += w.r.congestionSignals(c.Where)
			}
		}
		c.What += w.r.throttled(c) + w.lacking(c)
	case Queue:
		if c.What != "" { // of packets that did not leave, or of a changed link
			return
		}
		c.What = "packets waited in the queue"
		if len(c.Where) == 1 {
			slower := w.beside(c.at.tap)
			c.Injected = c.Injected || slower != ""
			c.What += w.packetsAhead(c) + w.copies(c) + w.priorities(c) + w.pace(c.at.tap) + slower
		}
	case Recover:
		if c.at.tap >= 0 && w.r.pausedLong(c.at.tap) > 0 {
			c.What += "; flow control stopped the port" + w.pauser(c)
		}
		c.What += w.recovering(c)
	case Pause:
		if c.What != "" {
			c.What += "; "
		}
		c.What += "flow control stopped the port" + w.pauser(c)
	case Serialise, Propagate:
		if c.What != "" { // of a changed link
			return
		}
		if c.at.part == Propagate {
			c.What = "frames took long on the link"
			return
		}
		c.What = "frames took long at the rate of the link"
		if len(c.Where) == 1 && c.at.tap >= 0 {
			slower := w.beside(c.at.tap)
			c.Injected = c.Injected || slower != ""
			c.What += slower
		}
	case Unseen:
		if c.What == "" {
			c.What = "time passed where the recording has no tap"
		}
	}
}

// pauser follows pauses from the port that was stopped to the port that asked first.
func (w *why) pauser(c *Cause) string {
	var askers []string
	root := ""
	for at := c.at.tap; root == ""; {
		stopped := at
		asker := w.r.lanes[at].far
		if asker < 0 {
			return ""
		}
		tap := w.r.Taps[asker]
		next, most := -1, int64(0)
		for i := range w.r.Taps {
			if w.r.Taps[i].Node == tap.Node && i != asker && !tap.NIC {
				if held := w.r.pausedLong(i); held > most {
					next, most = i, held
				}
			}
		}
		switch at = next; {
		case tap.NIC && w.r.storms[stopped] != "":
			c.Injected, c.at.by = true, w.r.storms[stopped]
			root = tap.Name() + ", a NIC, asked for it first, because of " + w.r.storms[stopped]
		case tap.NIC:
			root = tap.Name() + ", a NIC, asked for it first"
		case next < 0:
			root = tap.Name() + " asked for it first, as " + w.filled(asker)
		case slices.Contains(askers, tap.Name()):
			root = "switches stopped each other"
		default:
			askers = append(askers, tap.Name())
		}
	}
	if len(askers) == 0 {
		return ": " + root
	}
	slices.Reverse(askers)
	return ": " + root + ", and " + strings.Join(askers, ", ") + " passed it on"
}

// pausedLong returns for how long a port was paused, for the priority that was paused longest.
func (r *Recording) pausedLong(tap int) (longest int64) {
	for priority := range int8(8) {
		longest = max(longest, r.pausedFor(line{tap, priority}, r.Start, r.End))
	}
	return longest
}
