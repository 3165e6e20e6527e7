package perftest

import (
	"fmt"
	"io"
	"strings"
)

// printer prints the tables of perftest 4.5, byte for byte.
type printer struct {
	out    io.Writer
	config *Config
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p.out, format, args...) }

// rule is a line across the table.
var rule = strings.Repeat("-", 87) + "\n"

func (p *printer) line() { p.printf("%s", rule) }

// Waiting is the text that a server prints once it listens.
const Waiting = "Waiting for client to connect..."

func (p *printer) banner() {
	p.printf("\n************************************\n* %s *\n"+
		"************************************\n", Waiting)
}

// info prints the test and its settings.
func (p *printer) info(r *run) {
	c := p.config
	p.line()
	title := c.Test.title(c) + " "
	switch {
	case c.Test.Latency():
		title += "Latency "
	default:
		if c.Bidirectional {
			title += "Bidirectional "
		}
		if c.PostList > 1 {
			title += "Post List "
		}
		title += "BW "
	}
	p.printf("                    %sTest\n", title)
	p.printf(" Dual-port       : OFF\t\tDevice         : %s\n", r.name)
	p.printf(" Number of qps   : %d\t\tTransport type : IB\n", c.QueuePairs)
	p.printf(" Connection type : RC\t\tUsing SRQ      : OFF\n")
	p.printf(" PCIe relax order: Unsupported\n")
	p.printf(" ibv_wr* API     : OFF\n")
	if r.talk.client || c.Bidirectional {
		p.printf(" TX depth        : %d\n", c.TxDepth)
	}
	if c.PostList > 1 {
		p.printf(" Post List       : %d\n", c.PostList)
	}
	if c.Test.send() && (!r.talk.client || c.Bidirectional) {
		p.printf(" RX depth        : %d\n", c.RxDepth)
	}
	if !c.Test.Latency() {
		p.printf(" CQ Moderation   : %d\n", c.CQModeration)
	}
	p.printf(" Mtu             : %d[B]\n", r.mtu)
	p.printf(" Link type       : Ethernet\n")
	p.printf(" GID index       : %d\n", c.GIDIndex)
	if c.Test.reads() {
		p.printf(" Outstand reads  : %d\n", c.Reads)
	} else {
		p.printf(" Max inline data : 0[B]\n")
	}
	pairs, method := "OFF", "Ethernet"
	if c.CM {
		pairs = "ON"
	}
	if c.ExchangeCM {
		method = "rdma_cm"
	}
	p.printf(" rdma_cm QPs\t : %s\n", pairs)
	p.printf(" Data ex. method : %s", method)
	if c.CM && c.TOS > 0 {
		p.printf(" \tTOS    : %d", c.TOS)
	}
	if c.CM && !r.talk.client {
		p.printf("\n%s Waiting for client rdma_cm QP to connect\n Please run the same command with the "+
			"IB/RoCE interface IP", rule)
	}
	p.printf("\n%s", rule)
}

// hex formats a number as C's %#0*x does.
func hex(width int, n uint64) string {
	if n == 0 {
		return strings.Repeat("0", width)
	}
	return fmt.Sprintf("0x%0*x", max(width-2, 0), n)
}

// keys prints the keys of one end.
func (p *printer) keys(side string, k *Keys) {
	line := fmt.Sprintf(" %s address: LID %s QPN %s PSN %s", side, hex(4, uint64(k.LID)),
		hex(6, uint64(k.QPN)), hex(6, uint64(k.PSN)))
	test := p.config.Test
	if p.config.ExchangeCM { // the programs print the keys of SENDs then
		test = SendBW
	}
	switch test {
	case ReadBW:
		line += " OUT " + hex(4, uint64(k.Reads))
		fallthrough
	case WriteBW, WriteLat:
		line += fmt.Sprintf(" RKey %s VAddr %s", hex(8, uint64(k.RKey)), hex(16, k.VAddr))
	}
	var gid [16]string
	for i, b := range k.GID.As16() {
		gid[i] = fmt.Sprintf("%02d", b)
	}
	p.printf("%s\n GID: %s\n", line, strings.Join(gid[:], ":"))
}

func (p *printer) bandwidthHeader() {
	p.line()
	unit := "MB"
	if p.config.Gigabits {
		unit = "Gb"
	}
	p.printf(" #bytes     #iterations    BW peak[%s/sec]    BW average[%s/sec]   MsgRate[Mpps]\n", unit, unit)
}

// bandwidth prints a row. small is set if this end's share is less than 0.1 Gb/s.
func (p *printer) bandwidth(b *Bandwidth, small bool) {
	format := " %-7d    %-10d       %-7.2f            %-7.2f\t\t   %-7.6f\n"
	if p.config.Gigabits && small {
		format = " %-7d    %d           %-7.6f            %-7.6f            %-7.6f\n"
	}
	p.printf(format, b.Bytes, b.Iterations, b.Peak, b.Average, b.Messages)
}

func (p *printer) latencyHeader() {
	p.line()
	if p.config.Duration > 0 {
		p.printf(" #bytes        #iterations       t_avg[usec]    tps average\n")
		return
	}
	p.printf(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    " +
		"t_stdev[usec]   99%% percentile[usec]   99.9%% percentile[usec] \n")
}

func (p *printer) latency(l *Latency) {
	if p.config.Duration > 0 {
		p.printf(" %-7d       %d            %-7.2f        %-7.2f\n", l.Bytes, l.Iterations, l.Average,
			l.PerSecond)
		return
	}
	p.printf(" %-7d %d          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f "+
		"\t\t%-7.2f\n",
		l.Bytes, l.Iterations, l.Min, l.Max, l.Typical, l.Average, l.Deviation, l.P99, l.P999)
}
