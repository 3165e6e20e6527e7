package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/perf"
	"golang.org/x/sys/unix"
)

// Reports has the reports of programs, for one reader at a time.
type Reports struct{ events *ebpf.Map }

// NewReports makes the map of the reports. The error is a *verdict.UnsupportedError if the kernel does not
// let this process make it.
func NewReports() (*Reports, error) {
	raiseLimit()
	events, err := ebpf.NewMap(&ebpf.MapSpec{Name: "railbed_hits", Type: ebpf.PerfEventArray})
	if err != nil {
		return nil, refused(err)
	}
	return &Reports{events}, nil
}

// Close frees the map, unless programs use it.
func (r *Reports) Close() error { return r.events.Close() }

// ReportReader reads reports. Programs report nothing while there is none. Only one goroutine may use it.
type ReportReader struct {
	perf   *perf.Reader
	record perf.Record
}

const (
	// allRings is the memory of the rings of all CPUs, and leastRing and mostRing bound that of one.
	allRings            = 16 << 20
	leastRing, mostRing = 256 << 10, 4 << 20
)

// Open begins to read reports. The error is a *verdict.UnsupportedError if the kernel does not let this
// process read them.
func (r *Reports) Open() (*ReportReader, error) {
	size := min(max(allRings/int(r.events.MaxEntries()), leastRing), mostRing)
	// The reader looks at the rings every few milliseconds, and early when one is half full.
	reader, err := perf.NewReaderWithOptions(r.events, size, perf.ReaderOptions{Watermark: size / 2})
	if err != nil {
		return nil, refused(err)
	}
	return &ReportReader{perf: reader}, nil
}

// Close ends the reading. Without Pause the kernel would keep the rings, and programs would report that they
// have no room.
func (r *ReportReader) Close() error { return errors.Join(r.perf.Pause(), r.perf.Close()) }

// Hit is a packet that a fault hit.
type Hit struct {
	Site   uint32 // which Load got
	Time   int64  // of CLOCK_MONOTONIC, in nanoseconds
	Length int
	// Data is the beginning of the packet as it was before the fault changed it.
	Data []byte
}

// Read waits until the deadline for reports, and calls fn for each. A Hit is valid during the call. The
// reports of one CPU are in the order of time.
func (r *ReportReader) Read(deadline time.Time, fn func(*Hit)) error {
	r.perf.SetDeadline(deadline)
	for {
		switch err := r.perf.ReadInto(&r.record); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("read the packets that faults hit: %w", err)
		}
		raw := r.record.RawSample
		if len(raw) < reportBytes {
			continue // a record of losses, which programs count
		}
		one := Hit{
			Site:   binary.NativeEndian.Uint32(raw[reportSite:]),
			Time:   int64(binary.NativeEndian.Uint64(raw[reportTime:])),
			Length: int(binary.NativeEndian.Uint32(raw[reportLength:])),
		}
		one.Data = raw[reportBytes:][:min(one.Length, reportSnap, len(raw)-reportBytes)]
		fn(&one)
	}
}

// raiseLimit lets kernels before 5.11 make maps and programs, which they count as locked memory. Without the
// right to raise the limit they refuse the map, and newer kernels do not.
func raiseLimit() {
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited)
}
