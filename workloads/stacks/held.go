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
	// A rank is held up that had a processor for at most heldShare of the time in which it
	// could run, and for 1/heldTimes of what any other had: ranks share the host's alike.
	heldShare = 0.5
	heldTimes = 2
	// heldLeast is how long a process must have wanted a processor to say anything of it.
	heldLeast = 200 * time.Millisecond
)

// accountScript prints of the process $1 its number, its state and, of each of its threads, for
// how long it ran and waited for a processor, in ns, and how often it ran: schedstat of proc(5).
const accountScript = `
	read -r line < /proc/$1/stat || return
	line=${line##*) }
	echo $1 ${line%% *} $(cat /proc/$1/task/*/schedstat)`

// account is what kernels say of the processors that nodes' processes had. It is safe for
// concurrent use.
type account struct {
	mu        sync.Mutex
	looks     int
	processes map[process]share
	stopped   map[string]int // looks at which a process of the node was
}

type process struct {
	node string
	pid  int
}

// share is for how long a process ran, and waited for a processor.
type share struct{ ran, waited time.Duration }

func (s share) wanted() time.Duration { return s.ran + s.waited }

func (s share) got() float64 { return float64(s.ran) / float64(s.wanted()) }

func newAccount() *account {
	return &account{processes: map[process]share{}, stopped: map[string]int{}}
}

// read takes in what accountScript printed, by node.
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

// held is the rank that was stopped, or had less of a processor than all others; nil where none
// stands out.
func (a *account) held(ranks []plan.Rank) *report.HeldRank {
	a.mu.Lock()
	defer a.mu.Unlock()
	got := map[string]float64{} // by node, of its process that wanted most
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

// heldText is held in words, behind a separator; empty where no rank stands out.
func (r *run) heldText() string {
	if held := r.account.held(r.ranks); held != nil {
		return fmt.Sprintf("; %v", held)
	}
	return ""
}
