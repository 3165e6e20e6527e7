// Package msccl reads algorithms of collectives in the XML of MSCCL, as the tools of
// Cowan et al., "MSCCLang: Microsoft Collective Communication Language" (ASPLOS 2023),
// write it and MSCCL, an NCCL that interprets them, runs it:
//
//	<algo name proto nchannels nchunksperloop ngpus coll inplace [outofplace]>
//	  <gpu id i_chunks o_chunks s_chunks>
//	    <tb id send recv chan>
//	      <step s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep/>
//
// What steps mean is what MSCCL's interpreter does (msccl_interpreter.h): rrc, rrs and
// rrcs add what comes to the rank's own srcbuf at srcoff, though the tools write there
// what the sender calls it; a step waits for the first one from deps on, in thread block
// depid, that has hasdep, and a nop does that for the next step. Only sends are another
// thing: MSCCL's wait when so many are under way that its queues are full, and ours never
// do.
//
// Where a file is in place, its input and output are the same memory. It is run out of
// place, too, by a copy of the input before all else. The protocol, the number of
// channels' queues and the sizes for which a file is meant to be fast are NCCL's
// business, and ignored.
//
// The package is pure; its functions are safe for concurrent use.
package msccl

import (
	"errors"
	"fmt"

	"railbed/plan/schedule"
)

// MaxSize is the most bytes that a file may have.
const MaxSize = 64 << 20

// The most ranks, and chunks of a rank, of any buffer; and steps of all ranks.
const (
	maxRanks  = 1024
	maxChunks = 1 << 16
	maxSteps  = 1 << 18
)

// kinds are those of the attribute coll.
var kinds = map[string]schedule.Kind{
	"allreduce":      schedule.AllReduce,
	"allgather":      schedule.AllGather,
	"reduce_scatter": schedule.ReduceScatter,
	"broadcast":      schedule.Broadcast,
	"reduce":         schedule.Reduce,
	"alltoall":       schedule.AllToAll,
}

// Read reads a file, whose name is for errors, and proves that it does what its
// collective asks for, out of place and, where it says so, in place. A broadcast comes
// from and a reduce goes to the root, which the files do not name.
//
// Errors are lines of name:line:column: what is wrong. Wrong are files that are no such
// XML, ranks, thread blocks, buffers, chunks and steps that are not there, what two
// thread blocks want to send on one channel to one rank, sends that nobody takes and the
// reverse, steps that wait for each other, steps without order that use the same chunk,
// and results that are not those of the collective. A collective that is custom cannot be
// read, because what it should give is not in its file.
func Read(name string, text []byte, root int) (*schedule.Schedule, error) {
	r := &reader{file: file{path: name, bytes: text}}
	if len(text) > MaxSize {
		return nil, fmt.Errorf("%s: %d bytes, limit %d", name, len(text), MaxSize)
	}
	algo, err := r.parse()
	if err != nil {
		return nil, err
	}
	a := r.algorithm(algo)
	if err := errors.Join(r.problems...); err != nil {
		return nil, err
	}
	c := compile(&r.file, a, root)
	for _, inPlace := range []bool{false, true} {
		if inPlace && c.s.OutOfPlace {
			continue
		}
		if _, err := schedule.Check(c.s, inPlace); err != nil {
			at := algo.start
			if wrong := (*schedule.StepError)(nil); errors.As(err, &wrong) {
				at = c.origins[wrong.Rank][wrong.At.Thread][wrong.At.Step].start
			}
			return nil, r.at(at, "%w", err)
		}
	}
	return c.s, nil
}
