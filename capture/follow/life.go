package follow

import (
	"bytes"
	"cmp"
	"fmt"
	"time"
)

// MarshalJSON writes the parts as {"host_ns": 1, ...}, in their order.
func (a Account) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for part, ns := range a {
		fmt.Fprintf(&b, `,"%s_ns":%d`, Part(part), ns)
	}
	b.Bytes()[0] = '{'
	b.WriteByte('}')
	return b.Bytes(), nil
}

// MessageLife is a message in words and in the testbed's own time. Start counts from the first record.
type MessageLife struct {
	Message     int           `json:"message"`
	Protocol    string        `json:"protocol"`
	ID          uint64        `json:"id"`
	QP          uint32        `json:"qp,omitempty"`
	From        string        `json:"from"`
	To          string        `json:"to"`
	FromRank    *int          `json:"from_rank,omitempty"`
	ToRank      *int          `json:"to_rank,omitempty"`
	Workload    string        `json:"workload,omitempty"`
	Source      string        `json:"source"`
	Destination string        `json:"destination"`
	Bytes       int64         `json:"bytes"`
	Packets     int           `json:"packets"`
	Again       int           `json:"sent_again"`
	Lost        int           `json:"lost"`
	Start       time.Duration `json:"start_ns"`
	// Took is 0 if the message did not arrive. Unseen is set if the recording has no tap that would show it.
	Took         time.Duration `json:"took_ns"`
	Unseen       bool          `json:"arrival_unseen,omitempty"`
	Acknowledged time.Duration `json:"acknowledged_ns,omitempty"` // from Start
	Account      Account       `json:"account"`
	// Critical is the first record of the packet that brought the last missing byte, 0 without one.
	Critical int `json:"critical,omitempty"`
	// Filter selects the message's packets in railbed decode, and Wireshark selects them in Wireshark.
	Filter    string       `json:"filter"`
	Wireshark string       `json:"wireshark"`
	Lives     []PacketLife `json:"lives,omitempty"`
}

// PacketLife is a packet in words.
type PacketLife struct {
	// Record is the number of the packet's first record in the capture.
	Record      int           `json:"record"`
	Message     int           `json:"message,omitempty"`
	Protocol    string        `json:"protocol"`
	Source      string        `json:"source"`
	Destination string        `json:"destination"`
	PSN         uint32        `json:"psn,omitempty"`
	Position    int64         `json:"position"`
	Bytes       int64         `json:"bytes"`
	Length      int           `json:"length"`
	Sent        time.Duration `json:"sent_ns"` // from the first record of the capture
	Took        time.Duration `json:"took_ns"` // up to its last record
	// Outcome is arrived, "arrived, and was discarded because PSN N (record N) was missing", trimmed,
	// "dropped: REASON at PORT, record N" (or corrupted, or truncated) or "last seen at PORT". DropRecord is
	// the record of the drop, and Missing the first record of the packet that was missing. They are 0 without
	// one.
	Outcome    string    `json:"outcome"`
	DropRecord int       `json:"drop_record,omitempty"`
	Missing    int       `json:"missing,omitempty"`
	Account    Account   `json:"account"`
	Hops       []HopLife `json:"hops"`
}

// HopLife is a hop in words.
type HopLife struct {
	From    string        `json:"from"` // port of the first record
	To      string        `json:"to"`
	Record  int           `json:"record"` // number of the second record
	At      time.Duration `json:"at_ns"`  // of the second record, from the packet's first
	Took    time.Duration `json:"took_ns"`
	Account Account       `json:"account"`
	// Depth is the number of bytes in the queue, nil if it was not recorded.
	Depth   *int64 `json:"depth,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// own converts an account to the testbed's own time.
func (r *Recording) own(a Account) Account {
	if r.Dilation > 1 {
		for i := range a {
			a[i] /= r.Dilation
		}
	}
	return a
}

// MessageLife describes a message, with its packets if packets is set.
func (r *Recording) MessageLife(message int, packets bool) MessageLife {
	m := &r.Messages[message]
	f := &r.Flows[m.Flow]
	l := MessageLife{Message: m.Number, Protocol: f.Protocol, ID: m.ID, QP: m.QP, From: f.From, To: f.To,
		Workload: f.Workload, Source: f.Src.String(), Destination: f.Dst.String(), Bytes: m.Bytes,
		Packets: len(m.Packets), Again: m.Again, Lost: m.Lost, Start: r.Own(m.Start - r.Start),
		Took:    r.Own(int64(m.Took())),
		Account: r.own(m.Account), Filter: fmt.Sprintf("run.message == %d", m.Number),
		Wireshark: r.filter(message)}
	if f.FromRank >= 0 && f.Workload != "" {
		l.FromRank = &f.FromRank
	}
	if f.ToRank >= 0 && f.Workload != "" {
		l.ToRank = &f.ToRank
	}
	l.Unseen = !r.Sees(m.Flow, m.Start)
	if m.Acknowledged > 0 {
		l.Acknowledged = r.Own(m.Acknowledged - m.Start)
	}
	if m.Critical >= 0 {
		l.Critical = r.sights[r.Packets[m.Critical].first].Number
	}
	if packets {
		for _, p := range m.Packets {
			l.Lives = append(l.Lives, r.PacketLife(int(p)))
		}
	}
	return l
}

// PacketLife describes a packet.
func (r *Recording) PacketLife(packet int) PacketLife {
	p := &r.Packets[packet]
	sights := r.Sights(packet)
	first, last := sights[0], sights[len(sights)-1]
	l := PacketLife{Record: first.Number, PSN: p.PSN, Position: p.Position, Bytes: p.Bytes, Length: p.Length,
		Sent: r.Own(first.Time - r.Start), Took: r.Own(last.Time - first.Time), Hops: []HopLife{}}
	if p.Message >= 0 {
		l.Message = r.Messages[p.Message].Number
	}
	if p.Flow >= 0 {
		f := &r.Flows[p.Flow]
		l.Protocol, l.Source, l.Destination = f.Protocol, f.Src.String(), f.Dst.String()
	}
	at := drop(sights)
	switch {
	case at != nil:
		l.DropRecord = at.Number
		l.Outcome = fmt.Sprintf("dropped: %s at %s, record %d", cmp.Or(at.Reason, p.Dropped),
			r.Taps[at.Tap].Name(), at.Number)
	case p.Discarded():
		l.Missing = r.First(int(p.behind))
		l.Outcome = fmt.Sprintf("arrived, and was discarded because PSN %d (record %d) was missing",
			r.Packets[p.behind].PSN, l.Missing)
	case p.Arrived > 0:
		l.Outcome = "arrived"
	case p.Trimmed:
		l.Outcome = "trimmed"
	case last.Event && changes[last.Verdict] != "":
		l.Outcome = fmt.Sprintf("%s: %s at %s, record %d", changes[last.Verdict], last.Reason,
			r.Taps[last.Tap].Name(), last.Number)
	default:
		l.Outcome = "last seen at " + r.Taps[last.Tap].Name()
	}
	for _, hop := range r.hops(sights, p.Length) {
		l.Account.Add(&hop.Account)
		h := HopLife{From: r.Taps[hop.From.Tap].Name(), To: r.Taps[hop.To.Tap].Name(), Record: hop.To.Number,
			At: r.Own(hop.To.Time - first.Time), Took: r.Own(hop.To.Time - hop.From.Time),
			Account: r.own(hop.Account),
			Verdict: hop.To.Verdict, Reason: hop.To.Reason}
		if hop.To.Depth >= 0 {
			h.Depth = &hop.To.Depth
		}
		l.Hops = append(l.Hops, h)
	}
	l.Account = r.own(l.Account)
	return l
}

// Name returns "node:port".
func (t Tap) Name() string { return t.Node + ":" + t.Port }
