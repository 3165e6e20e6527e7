package fabric

import (
	"errors"
	"fmt"

	"railbed/internal/kernel"
)

// differences are what a namespace has and should not, or the other way round.
type differences struct {
	found   []difference
	carrier []error      // ports that only wait for the other end
	late    []difference // what the kernel may be about to do
	waiting bool         // for any of these
	// broken are links, by their place in Fabric.links, that must be made anew.
	broken []int
}

// difference is one of them, with what would undo it. A difference without a
// fix goes away with another one's, or with the link being made anew.
type difference struct {
	where string // a node or switch, or a port of it
	err   error
	fixes []fix
}

// fix undoes a difference, or a part of it.
type fix struct {
	pass pass
	do   func(*mender) error
}

// pass is when a fix has its turn. Those of all namespaces before the next
// barrier come before any behind it.
type pass int

const (
	passSettings pass = iota // which interfaces take over when they appear
	passClear                // what stands in the way of an interface
	// Here, all broken links are made.
	passName    // bridges, and interfaces' names
	passPort    // interfaces
	passAddress // addresses and neighbours
	// Here, every link has its carrier.
	passRoute // routes and rules, and settings of single interfaces
	passes
)

// mender is what a fix works with: a connection and a batch of the difference's
// namespace. The batch is sent at the end of each pass. The calling thread is in
// the namespace.
type mender struct {
	node  string
	conn  *kernel.Conn
	batch *kernel.Batch
}

// send sends what is in the batch, and empties it.
func (m *mender) send() error {
	err := m.conn.Do(m.batch)
	m.batch.Reset(m.node)
	return err
}

// request is a fix that is requests of a batch.
func request(at pass, ask func(*kernel.Batch)) fix {
	return fix{at, func(m *mender) error {
		ask(m.batch)
		return nil
	}}
}

// setting is a fix that writes settings.
func (f *Fabric) setting(at pass, h *host, sysctls ...kernel.Sysctl) fix {
	return fix{at, func(*mender) error { return f.setSysctls(h, sysctls) }}
}

// add adds a difference. Its text says what to do and what the kernel has.
func (d *differences) add(where string, fixes []fix, format string, args ...any) {
	d.found = append(d.found, difference{where, fmt.Errorf(format, args...), fixes})
}

// wait adds a difference that the kernel may be about to undo.
func (d *differences) wait(where string, fixes []fix, format string, args ...any) {
	d.waiting = true
	d.late = append(d.late, difference{where, fmt.Errorf(format, args...), fixes})
}

func (d *differences) errors() error {
	var errs []error
	for _, difference := range d.found {
		errs = append(errs, difference.err)
	}
	return errors.Join(errs...)
}

// carrierErrors are of what is waited for.
func (d *differences) carrierErrors() error {
	errs := d.carrier
	for _, difference := range d.late {
		errs = append(errs, difference.err)
	}
	return errors.Join(errs...)
}
