package wireshark

import (
	"cmp"
	"errors"
	"io"
	"strings"
	"sync"

	"railbed/capture/display"
	"railbed/capture/pcapng"
	"railbed/plan/spec"
)

// narrowing decides which packets of a recording Wireshark gets. The toolbar changes it while packets pass.
type narrowing struct {
	mu     sync.Mutex
	taps   string          // the selector of taps
	filter *display.Filter // nil is none
	drops  bool
}

func (n *narrowing) setTaps(word string) { n.set(func() { n.taps = word }) }
func (n *narrowing) setDrops(only bool)  { n.set(func() { n.drops = only }) }

// setFilter leaves the filter as it is if the text is none.
func (n *narrowing) setFilter(text string) error {
	var compiled *display.Filter
	if strings.TrimSpace(text) != "" {
		var err error
		if compiled, err = display.Compile(text); err != nil {
			return err
		}
	}
	n.set(func() { n.filter = compiled })
	return nil
}

func (n *narrowing) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// passes reports whether Wireshark gets a packet.
func (n *narrowing) passes(p *display.Packet) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return (!n.drops || dropped(p.Raw)) && selected(n.taps, p.Interface) &&
		(n.filter == nil || n.filter.Match(p))
}

func dropped(p *pcapng.Packet) bool {
	for _, comment := range p.Comments {
		if note, is := pcapng.ParseAnnotation(comment); is && note.Verdict == "drop" {
			return true
		}
	}
	return false
}

// selected reports whether a selector (spec.Port) selects an interface. An empty one selects every interface.
func selected(selector string, i *pcapng.Interface) bool {
	node, port := spec.SplitPort(i.Name)
	return spec.Port{Node: node, Name: port, NIC: i.Hardware == pcapng.HardwareNIC}.
		Selected(cmp.Or(selector, "all"))
}

// passing copies a capture and leaves out packets. Without a narrowing the copy has the same bytes.
type passing struct {
	from   *pcapng.Reader
	to     *pcapng.Writer
	copied int      // interfaces
	held   []uint64 // packets left out, by interface
}

// pass copies a capture from in to out, until in ends. What it has read is written before it waits for more,
// so Wireshark shows packets as they come.
func pass(in io.Reader, out io.Writer, n *narrowing) error {
	p := &passing{}
	source := &beforeRead{in, p.flush}
	var err error
	if p.from, err = pcapng.NewReader(source); err != nil {
		return err
	}
	if p.to, err = pcapng.NewWriter(out, p.from.Section()); err != nil {
		return err
	}
	packets := display.NewDecoder(p.from)
	packets.Analyse()
	for {
		packet, err := packets.Next()
		if errors.Is(err, io.EOF) {
			return p.end()
		}
		if err != nil {
			return errors.Join(err, p.flush())
		}
		if err := p.interfaces(); err != nil {
			return err
		}
		if !n.passes(packet) {
			p.held[packet.Raw.Interface]++
			continue
		}
		if err := p.to.WritePacket(packet.Raw); err != nil {
			return err
		}
	}
}

// interfaces writes the interfaces that have come since the last call.
func (p *passing) interfaces() error {
	for all := p.from.Interfaces(); p.copied < len(all); p.copied++ {
		if _, err := p.to.AddInterface(all[p.copied]); err != nil {
			return err
		}
		p.held = append(p.held, 0)
	}
	return nil
}

// flush writes everything that has been read.
func (p *passing) flush() error {
	if p.to == nil { // the section header has not come
		return nil
	}
	if err := p.interfaces(); err != nil {
		return err
	}
	return p.to.Flush()
}

// end writes the statistics. Packets that were left out do not count as delivered, so that checks find the
// copy incomplete.
func (p *passing) end() error {
	if err := p.interfaces(); err != nil {
		return err
	}
	for _, s := range p.from.Statistics() {
		s.Delivered -= min(p.held[s.Interface], s.Delivered)
		if err := p.to.WriteStatistics(s); err != nil {
			return err
		}
	}
	return p.to.Flush()
}

// beforeRead calls a function before each read, which may have to wait.
type beforeRead struct {
	io.Reader
	do func() error
}

// Read implements io.Reader.
func (b *beforeRead) Read(to []byte) (int, error) {
	if err := b.do(); err != nil {
		return 0, err
	}
	return b.Reader.Read(to)
}
