package fabric

import (
	"errors"
	"fmt"

	"railbed/internal/kernel"
)

// differences lists unwanted and missing objects of a namespace.
type differences struct {
	found   []difference
	carrier []error      // ports that only wait for the other end
	late    []difference // differences that the kernel may be about to resolve
	waiting bool         // for any of these
	// broken lists the links, by their index in Fabric.links, that must be recreated.
	broken []int
}

// difference is one difference with its fixes. A difference without a fix disappears with the fix
// of another one, or when the link is recreated.
type difference struct {
	where string // a node or switch, or a port of it
	err   error
	fixes []fix
}

// fix resolves a difference, or a part of it.
type fix struct {
	pass pass
	do   func(*repairer) error
}

// pass is the pass in which a fix is applied. The fixes of all namespaces before a barrier are
// applied before any fix after it.
type pass int

const (
	passSettings pass = iota // settings that new interfaces copy
	passClear                // objects that would conflict with an interface
	// At this barrier all broken links are recreated.
	passName    // bridges, and names of interfaces
	passPort    // interfaces
	passAddress // addresses and neighbours
	// At this barrier every link has its carrier.
	passRoute // routes and rules, and settings of single interfaces
	passes
)

// repairer is the context of a fix: a connection to the difference's namespace and a batch for it.
// The batch is sent at the end of each pass. The calling thread is in the namespace.
type repairer struct {
	node  string
	conn  *kernel.Conn
	batch *kernel.Batch
}

// send sends the batch and empties it.
func (m *repairer) send() error {
	err := m.conn.Do(m.batch)
	m.batch.Reset(m.node)
	return err
}

// request is a fix that consists of requests in a batch.
func request(at pass, ask func(*kernel.Batch)) fix {
	return fix{at, func(m *repairer) error {
		ask(m.batch)
		return nil
	}}
}

// setting is a fix that writes settings.
func (f *Fabric) setting(at pass, h *host, sysctls ...kernel.Sysctl) fix {
	return fix{at, func(*repairer) error { return f.setSysctls(h, sysctls) }}
}

// add adds a difference. Its text contains the required change and the kernel's state.
func (d *differences) add(where string, fixes []fix, format string, args ...any) {
	d.found = append(d.found, difference{where, fmt.Errorf(format, args...), fixes})
}

// wait adds a difference that the kernel may be about to resolve.
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

// carrierErrors returns the differences that may still resolve.
func (d *differences) carrierErrors() error {
	errs := d.carrier
	for _, difference := range d.late {
		errs = append(errs, difference.err)
	}
	return errors.Join(errs...)
}
