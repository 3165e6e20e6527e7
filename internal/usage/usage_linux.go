package usage

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// ReadStack reads the counters of the calling thread's network namespace.
func ReadStack() (s Stack, o Output, err error) {
	// A process's own /proc/PID/net is the namespace of its first thread.
	threads, err := procfs.NewFS("/proc/self/task")
	if err != nil {
		return s, o, err
	}
	// In a PID namespace whose /proc is still its parent's, gettid(2) returns another number.
	self, err := os.Readlink("/proc/thread-self")
	if err != nil {
		return s, o, err
	}
	number, err := strconv.Atoi(filepath.Base(self))
	if err != nil {
		return s, o, err
	}
	thread, err := threads.Proc(number)
	if err != nil {
		return s, o, err
	}
	four, err := thread.Snmp()
	if err != nil {
		return s, o, fmt.Errorf("read the stack's counters: %w", err)
	}
	six, err := thread.Snmp6() // nothing on a host without IPv6
	if err != nil {
		return s, o, fmt.Errorf("read the stack's counters: %w", err)
	}
	extended, err := thread.Netstat()
	if err != nil {
		return s, o, fmt.Errorf("read the stack's counters: %w", err)
	}
	interfaces, err := thread.NetDev()
	if err != nil {
		return s, o, fmt.Errorf("read the stack's counters: %w", err)
	}
	o = Output{Requests: sum(four.Ip.OutRequests, six.Ip6.OutRequests),
		Groups: sum(extended.OutMcastPkts, extended.OutBcastPkts, six.Ip6.OutMcastPkts),
		Passed: interfaces.Total().TxPackets}
	s.Received = sum(four.Ip.InReceives, six.Ip6.InReceives)
	s.Drops = map[string]uint64{
		UDPReceiveBuffer: sum(four.Udp.RcvbufErrors, six.Udp6.RcvbufErrors),
		UDPNoSocket:      sum(four.Udp.NoPorts, six.Udp6.NoPorts),
		UDPChecksum:      sum(four.Udp.InCsumErrors, six.Udp6.InCsumErrors),
		TCPChecksum:      sum(four.Tcp.InCsumErrors),
		TCPListenQueue:   sum(extended.ListenDrops),
		TCPReceiveQueue:  sum(extended.TCPBacklogDrop, extended.TCPRcvQDrop, extended.TCPOFODrop),
		IPReceive: sum(four.Ip.InDiscards, four.Ip.InHdrErrors, four.Ip.InAddrErrors, six.Ip6.InHdrErrors,
			six.Ip6.InAddrErrors),
		IPNoRoute: sum(four.Ip.OutNoRoutes, extended.InNoRoutes, six.Ip6.OutNoRoutes,
			six.Ip6.InNoRoutes),
		IPTooBig:      sum(four.Ip.FragFails, six.Ip6.FragFails),
		IPReversePath: sum(extended.IPReversePathFilter),
		IPReassembly:  sum(four.Ip.ReasmFails, six.Ip6.ReasmFails),
	}
	for reason, count := range s.Drops {
		if count == 0 {
			delete(s.Drops, reason)
		}
	}
	return s, o, nil
}

// sum adds counters. A kernel may lack some.
func sum(counters ...*float64) (total uint64) {
	for _, c := range counters {
		if c != nil {
			total += uint64(*c)
		}
	}
	return total
}

func (p Programs) minus(o Programs) Programs {
	return Programs{Ran: p.Ran - o.Ran, Waited: p.Waited - o.Waited}
}

// Book adds up the times of the programs in network namespaces, ended programs included. If a thread ends
// between two readings, its time after the first of them is missing. The zero value is ready, and its methods
// are safe for concurrent use.
type Book struct {
	lock   sync.Mutex
	seen   map[int]Programs // by thread, at the last reading
	totals map[uint64]Programs
}

// Read reads the times of all programs that it can see, except this program. It returns the totals of the
// given network namespaces, by the namespaces' inodes.
func (b *Book) Read(namespaces map[uint64]bool) (map[uint64]Programs, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("read the programs' times: %w", err)
	}
	if b.totals == nil {
		b.totals = map[uint64]Programs{}
	}
	self, err := os.Readlink("/proc/self") // its first thread may be in a namespace to read there
	if err != nil {
		return nil, fmt.Errorf("read the programs' times: %w", err)
	}
	seen := map[int]Programs{}
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil || entry.Name() == self {
			continue
		}
		dir := filepath.Join("/proc", entry.Name())
		if inode, known := namespaceOf(dir); known && namespaces[inode] {
			b.readProcess(dir, inode, seen)
		}
	}
	b.seen = seen
	totals := map[uint64]Programs{}
	for inode := range namespaces {
		totals[inode] = b.totals[inode]
	}
	return totals, nil
}

// readProcess adds what the threads of a process used since the last reading.
func (b *Book) readProcess(dir string, inode uint64, seen map[int]Programs) {
	threads, _ := os.ReadDir(filepath.Join(dir, "task")) // it may have ended
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, "task", thread.Name(), "schedstat"))
		now, valid := parseSchedstat(string(text))
		if err != nil || !valid {
			continue
		}
		used := now.minus(b.seen[id])
		if used.Ran < 0 || used.Waited < 0 { // another thread with the number of an ended one
			used = now
		}
		total := b.totals[inode]
		b.totals[inode] = Programs{Ran: total.Ran + used.Ran, Waited: total.Waited + used.Waited}
		seen[id] = now
	}
}

// parseSchedstat parses the nanoseconds on and the nanoseconds waiting for a processor, and the number of
// times that the thread ran.
func parseSchedstat(text string) (p Programs, valid bool) {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return p, false
	}
	ran, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return p, false
	}
	waited, err := strconv.ParseInt(fields[1], 10, 64)
	return Programs{Ran: time.Duration(ran), Waited: time.Duration(waited)}, err == nil
}

// namespaceOf returns the inode of a process's network namespace, from "net:[4026531840]".
func namespaceOf(dir string) (inode uint64, known bool) {
	link, err := os.Readlink(filepath.Join(dir, "ns/net"))
	if err != nil {
		return 0, false
	}
	inode, err = strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(link, "net:["), "]"), 10, 64)
	return inode, err == nil
}

// Members returns the numbers of the processes in a network namespace, whose inode is given. Without inits it
// leaves out those that are the first in a PID namespace of their own.
func Members(namespace uint64, inits bool) (all []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", entry.Name())
		if inode, known := namespaceOf(dir); !known || inode != namespace {
			continue
		}
		if inits || !isInit(dir) {
			all = append(all, pid)
		}
	}
	return all, nil
}

// isInit reports whether a process is the first in its PID namespace. A process that has ended is not.
func isInit(dir string) bool {
	text, _ := os.ReadFile(filepath.Join(dir, "status"))
	for line := range strings.Lines(string(text)) {
		if numbers, is := strings.CutPrefix(line, "NSpid:"); is {
			fields := strings.Fields(numbers)
			return len(fields) > 0 && fields[len(fields)-1] == "1"
		}
	}
	return false
}
