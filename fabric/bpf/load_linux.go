package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"railbed/internal/verdict"
)

// Counts are a fault's counters at a port.
type Counts struct {
	_            uint64 // countLock
	Matched, Hit uint64
	// Joined is the number of matches that were several packets of a connection in one, which the port's
	// segmentation divides only later.
	Joined uint64
	// Refused is the number of packets that the kernel did not let the fault change.
	Refused uint64
	// Unreported is the number of packets that the fault hit, and for which the reader of Reports had no
	// room.
	Unreported uint64
}

// Loaded is a fault at a port with its counters in the kernel.
type Loaded struct {
	*Fault
	counts *ebpf.Map
}

// Load makes the counters of a fault. Site is the number with which its programs report packets (Hit). The
// error is a *verdict.UnsupportedError if the kernel does not let this process load programs.
func Load(f *Fault, site uint32) (*Loaded, error) {
	f.site = site

	raiseLimit()
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Name: "railbed_fault", Type: ebpf.Array, KeySize: 4,
		ValueSize: countBytes, MaxEntries: 1, Key: word, Value: countsType()})
	if err != nil {
		return nil, refused(err)
	}
	return &Loaded{f, counts}, nil
}

var word = &btf.Int{Name: "__u32", Size: 4}

// countsType is the type of the counters: the kernel has to know where the lock is.
func countsType() btf.Type {
	lock := &btf.Struct{Name: "bpf_spin_lock", Size: 4, Members: []btf.Member{{Name: "val", Type: word}}}
	long := &btf.Int{Name: "__u64", Size: 8}
	made := &btf.Struct{Name: "railbed_fault", Size: countBytes, Members: []btf.Member{
		{Name: "lock", Type: lock, Offset: 8 * countLock}}}
	for _, counter := range []struct {
		name   string
		offset btf.Bits
	}{{"matched", countMatched}, {"hit", countHit}, {"joined", countJoined}, {"refused", countRefused},
		{"unreported", countUnreported}} {
		made.Members = append(made.Members, btf.Member{Name: counter.name, Type: long,
			Offset: 8 * counter.offset})
	}
	return made
}

// Close frees the counters.
func (l *Loaded) Close() error { return l.counts.Close() }

// Counts reads the counters.
func (l *Loaded) Counts() (c Counts, err error) {
	if err := l.counts.Lookup(uint32(0), &c); err != nil {
		return c, fmt.Errorf("read counters of fault %s: %w", l.Name, err)
	}
	return c, nil
}

// Program is the program of a port in the kernel.
type Program struct {
	loaded *ebpf.Program
	id     ebpf.ProgramID
}

// NewProgram loads the program of a port with faults, which act in this order. The program reports the
// packets that they hit. The error is a *VerifierError if the kernel's verifier refuses the program.
func NewProgram(faults []*Loaded, to *Reports) (*Program, error) {
	var compiled []*Fault
	for _, f := range faults {
		compiled = append(compiled, f.Fault)
	}
	code, err := program(compiled)
	if err != nil {
		return nil, err
	}
	for i, f := range faults {
		if err := code.AssociateMap(counters(i), f.counts); err != nil {
			return nil, err
		}
	}
	if err := code.AssociateMap(reports, to.events); err != nil {
		return nil, err
	}
	return loadCode(code)
}

func loadCode(code asm.Instructions) (*Program, error) {
	made, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "railbed_faults", Type: ebpf.SchedCLS,
		Instructions: code, License: "GPL"})
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier) && len(verifier.Log) > 0:
		return nil, &VerifierError{Cause: verifier.Cause, Log: fmt.Sprintf("%+v\n\n%v", verifier, code)}
	case err != nil:
		return nil, refused(err)
	}
	info, err := made.Info()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the program of the port's faults: %w", err), made.Close())
	}
	id, _ := info.ID() // kernels have numbers for programs since 4.13
	return &Program{made, id}, nil
}

// FD is the program's descriptor, valid until Close.
func (p *Program) FD() int { return p.loaded.FD() }

// ID is the program's number in the kernel.
func (p *Program) ID() uint32 { return uint32(p.id) }

// Close closes the descriptor. Ports to which the program is attached keep it.
func (p *Program) Close() error { return p.loaded.Close() }

// VerifierError is the kernel's refusal of a program.
type VerifierError struct {
	Cause error
	Log   string // the verifier's log and the program
}

// Error implements error.
func (e *VerifierError) Error() string {
	return fmt.Sprintf("the kernel's verifier refuses the program of the port's faults: %v", e.Cause)
}

// Unwrap returns the cause.
func (e *VerifierError) Unwrap() error { return e.Cause }

// refused returns the error for a kernel that refuses any program.
func refused(err error) error {
	for _, lacks := range []error{unix.EPERM, unix.ENOSYS, ebpf.ErrNotSupported} {
		if errors.Is(err, lacks) {
			return &verdict.UnsupportedError{Feature: "faults at kernel links and switches",
				Reason: fmt.Sprintf("load an eBPF program: %v", err),
				Remedy: "run as root on a kernel with BPF, or use soft switches (kind: soft)"}
		}
	}
	return fmt.Errorf("load the program of the port's faults: %w", err)
}
