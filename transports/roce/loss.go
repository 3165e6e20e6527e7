package roce

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	credentials "railbed/internal/peer"
	"railbed/transports"
)

// ErrQueuePairsLost is wrapped by the errors of requests and peers after LoseQueuePairs.
var ErrQueuePairsLost = errors.New("the NIC lost its queue pairs")

// LoseQueuePairs breaks all queue pairs, as when a NIC is reset: the peers get no notice and no answers. It
// returns their number. The endpoint has no way back: its peers stay failed.
func (e *Endpoint) LoseQueuePairs() int {
	e.mu.Lock()
	defer e.unlock()
	if e.closed {
		return 0
	}
	lost := len(e.driver.lines)
	for _, p := range e.peers {
		if p.err != nil {
			continue
		}
		p.end(ErrQueuePairsLost)
		e.push(transports.Completion{Peer: p.number, Op: transports.OpPeerDown, Err: ErrQueuePairsLost})
	}
	for _, l := range e.links {
		e.remove(l)
	}
	return lost
}

// lossSocket begins the names of the sockets of AcceptLoss. They are abstract (unix(7)), and so names in the
// network namespace.
const lossSocket = "@railbed/roce/"

// AcceptLoss lets LoseQueuePairs of other processes in the network namespace break the queue pairs, until the
// listener is closed.
func (e *Endpoint) AcceptLoss() (net.Listener, error) {
	listener, err := net.Listen("unix", fmt.Sprintf("%s%d/%x", lossSocket, os.Getpid(), e.self.life))
	if err != nil {
		return nil, fmt.Errorf("listen for a loss of queue pairs: %w", err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			// Only the user of this process may signal it, and the same holds here.
			if client, err := credentials.Of(conn.(*net.UnixConn)); err == nil && client.UID == os.Geteuid() {
				fmt.Fprintln(conn, e.LoseQueuePairs())
			}
			conn.Close()
		}
	}()
	return listener, nil
}

// LoseQueuePairs breaks the queue pairs of all endpoints in this network namespace that accept it, and
// returns the number of queue pairs.
func LoseQueuePairs() (lost int, err error) {
	file, err := os.Open("/proc/self/net/unix")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	// Connections have the name of their listener, too.
	names := map[string]bool{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if _, name, found := strings.Cut(lines.Text(), " "+lossSocket); found {
			names[lossSocket+name] = true
		}
	}
	for name := range names {
		n, err := loseAt(name)
		if err != nil {
			return lost, fmt.Errorf("break the queue pairs of %s: %w", name, err)
		}
		lost += n
	}
	return lost, nil
}

func loseAt(name string) (lost int, err error) {
	conn, err := net.Dial("unix", name)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_, err = fmt.Fscan(conn, &lost)
	return lost, err
}
