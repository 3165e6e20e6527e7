package stacks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"railbed/capture/report"
	"railbed/plan"
)

const (
	// A rank counts as held up if it had a processor for at most heldShare of its runnable time.
	// That share must also be at most 1/heldTimes of any other rank's share. Ranks share the host's
	// processors equally.
	heldShare = 0.5
	heldTimes = 2
	// heldLeast is the least runnable time of a process before its share is judged.
	heldLeast = 200 * time.Millisecond
)

// accountScript prints the number and the state of process $1. For each thread of the process it
// prints the running time, the waiting time for a processor, both in ns, and how often the thread
// ran: schedstat of proc(5).
const accountScript = `
	read -r line < /proc/$1/stat || return
	line=${line##*) }
	echo $1 ${line%% *} $(cat /proc/$1/task/*/schedstat)`

// account holds the CPU times of nodes' processes as the kernels report them. It is safe for
// concurrent use.
type account struct {
	mu        sync.Mutex
	looks     int
	processes map[process]share
	stopped   map[string]int // by node, the looks that found a process stopped
}

type process struct {
	node string
	pid  int
}

// share has a process's running time and its waiting time for a processor.
type share struct{ ran, waited time.Duration }

func (s share) wanted() time.Duration { return s.ran + s.waited }

func (s share) got() float64 { return float64(s.ran) / float64(s.wanted()) }

func newAccount() *account {
	return &account{processes: map[process]share{}, stopped: map[string]int{}}
}

// read adds the output of accountScript, by node.
func (a *account) read(printed map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looks++
	for node, text := range printed {
		stopped := false
		for _, line := range lines(text) {
			fields := strings.Fields(line)
			if len(fields) < 2 {
				continue
			}
			pid, err := strconv.Atoi(fields[0])
			if err != nil {
				continue
			}
			stopped = stopped || fields[1] == "T"
			var s share
			for thread := range slices.Chunk(fields[2:], 3) {
				if len(thread) == 3 {
					ran, _ := strconv.ParseInt(thread[0], 10, 64)
					waited, _ := strconv.ParseInt(thread[1], 10, 64)
					s.ran, s.waited = s.ran+time.Duration(ran), s.waited+time.Duration(waited)
				}
			}
			a.processes[process{node, pid}] = s
		}
		if stopped {
			a.stopped[node]++
		}
	}
}

// held returns the rank that was stopped, or had less CPU time than all others, or nil if no rank
// stands out.
func (a *account) held(ranks []plan.Rank) *report.HeldRank {
	a.mu.Lock()
	defer a.mu.Unlock()
	got := map[string]float64{} // by node, the share of its process with the most runnable time
	most := map[string]time.Duration{}
	for of, s := range a.processes {
		if s.wanted() >= heldLeast && s.wanted() > most[of.node] {
			most[of.node], got[of.node] = s.wanted(), s.got()
		}
	}
	var found *report.HeldRank
	for i, rank := range ranks {
		others := 1.0
		for node, share := range got {
			if node != rank.Node {
				others = min(others, share)
			}
		}
		own, known := got[rank.Node]
		h := &report.HeldRank{Rank: i, Node: rank.Node, Stopped: a.stopped[rank.Node], Looks: a.looks}
		if known {
			h.Got, h.Others = own, others
		}
		switch slow := known && own <= heldShare && own*heldTimes <= others; {
		case !slow && h.Stopped == 0:
		case found == nil || h.Stopped > found.Stopped || h.Stopped == found.Stopped && h.Got < found.Got:
			found = h
		}
	}
	return found
}

// heldText formats held after a separator. It is empty if no rank stands out.
func (r *run) heldText() string {
	if held := r.account.held(r.ranks); held != nil {
		return fmt.Sprintf("; %v", held)
	}
	return ""
}
