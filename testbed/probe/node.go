package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"railbed/internal/reexec"
	"railbed/internal/wire"
	"railbed/plan"
)

// part is the name of the part of this executable that runs in nodes.
const part = "probe"

// port is the destination port of probes, and firstSource the source port of the first flow. Both
// are fixed, so that the same probes take the same paths in every run.
const (
	port        = wire.PortINT
	firstSource = 61_500
)

// Parts returns the parts that reexec.Run needs so that nodes can send and receive probes.
func Parts() reexec.Parts { return reexec.Parts{part: main} }

// sendOrder is the request to a sender. Times are real times.
type sendOrder struct {
	From     netip.Addr // unspecified if the kernel chooses
	To       netip.AddrPort
	Count    int
	Interval time.Duration
	Flows    int
	DSCP     int
}

// receiveOrder is the address at which a receiver listens.
type receiveOrder struct{ At netip.AddrPort }

// arrival is a probe that arrived. Source is its UDP port.
type arrival struct {
	Seq    uint64        `json:"seq"`
	Source uint16        `json:"source"`
	Full   bool          `json:"full,omitempty"` // there were more hops than reserved room
	Hops   []wire.INTHop `json:"hops"`
}

// main runs the process in a node.
func main(args []string) int {
	err := errors.New("wrong arguments: want send or receive, and the options as JSON")
	if len(args) == 2 {
		switch args[0] {
		case "send":
			err = send(args[1])
		case "receive":
			err = listen(args[1])
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func send(text string) error {
	var order sendOrder
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		return err
	}
	var flows []*net.UDPConn
	for i := range order.Flows {
		conn, err := net.ListenUDP("udp",
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(order.From, uint16(firstSource+i))))
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := mark(conn, order.DSCP, order.To.Addr().Is6()); err != nil {
			return err
		}
		flows = append(flows, conn)
	}
	fields := wire.INTFields{Hops: plan.INTHops, NextPort: port, Discard: true}
	message := make([]byte, wire.INTBlockLen(&fields)+wire.INTProbeLen)
	next := time.Now()
	for seq := range order.Count {
		time.Sleep(time.Until(next))
		next = next.Add(order.Interval)
		block := wire.INT(message)
		block.Encode(&fields)
		wire.INTProbe(block.Payload()).Encode(uint64(seq), 0)
		if _, err := flows[seq%len(flows)].WriteToUDPAddrPort(message, order.To); err != nil {
			return fmt.Errorf("send probe %d: %w", seq, err)
		}
	}
	return nil
}

// mark sets the DSCP of the packets that a socket sends.
func mark(conn *net.UDPConn, dscp int, v6 bool) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	level, option := syscall.IPPROTO_IP, syscall.IP_TOS
	if v6 {
		level, option = syscall.IPPROTO_IPV6, syscall.IPV6_TCLASS
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = syscall.SetsockoptInt(int(fd), level, option, dscp<<2) })
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("set DSCP %d: %w", dscp, err)
	}
	return nil
}

// listen prints a line for each probe, and an empty Arrival when it is ready. It runs until the
// process ends.
func listen(text string) error {
	var order receiveOrder
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		return err
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(order.At))
	if err != nil {
		return err
	}
	defer conn.Close()
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(arrival{}); err != nil {
		return err
	}
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return err
		}
		block := wire.INT(buffer[:n])
		if !block.Valid() || !block.HasRoom() || !wire.INTProbe(block.Payload()).Valid() {
			continue // not a probe
		}
		one := arrival{Seq: wire.INTProbe(block.Payload()).Seq(), Source: from.Port(),
			Full: block.HopsExceeded(), Hops: []wire.INTHop{}}
		for i := range block.Hops() {
			one.Hops = append(one.Hops, block.Hop(i))
		}
		if err := out.Encode(one); err != nil {
			return err
		}
	}
}
