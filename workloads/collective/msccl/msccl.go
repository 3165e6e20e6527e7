// Package msccl reads algorithms of collectives in MSCCL's XML format. The tools of Cowan et al.,
// "MSCCLang: Microsoft Collective Communication Language" (ASPLOS 2023), write this format. MSCCL,
// an NCCL with an interpreter for it, runs it:
//
//	<algo name proto nchannels nchunksperloop ngpus coll inplace [outofplace]>
//	  <gpu id i_chunks o_chunks s_chunks>
//	    <copy i_off o_off/>
//	    <tb id send recv chan>
//	      <step s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep/>
//
// Steps have the semantics of MSCCL's interpreter (msccl_interpreter.h). rrc, rrs and rrcs add the
// received data to the rank's own srcbuf at srcoff, although the tools write the sender's buffer and
// offset there. A step waits for the first step in thread block depid, from number deps on, that has
// hasdep. A nop waits on behalf of the next step. Only sends differ: MSCCL's sends wait when its
// queues are full, and Railbed's never wait.
//
// A copy, which older tools write, moves one chunk of the input to the output before the thread blocks begin.
//
// If a file is in place, its input and output are the same memory. It also runs out of place, by
// copying the input first. The protocol, the number of channels' queues and the sizes for which a
// file is meant to be fast concern only NCCL, and are ignored.
//
// The package is pure. Its functions are safe for concurrent use.
package msccl

import (
	"errors"
	"fmt"

	"railbed/plan/schedule"
)

// maxSize is the maximum size of a file in bytes.
const maxSize = 64 << 20

// Limits on the number of ranks, on the chunks of a rank in any buffer, and on the steps of all
// ranks.
const (
	maxRanks  = 1024
	maxChunks = 1 << 16
	maxSteps  = 1 << 18
)

// kinds returns the kinds of collectives that files can have, and their names there.
func kinds() (kinds []schedule.Kind, names []string) {
	for _, k := range schedule.Kinds() {
		if name := k.Properties().MSCCL; name != "" {
			kinds, names = append(kinds, k), append(names, name)
		}
	}
	return kinds, names
}

// Read reads a file and proves that it computes its collective, out of place and, if it says so, in
// place. The name is used in errors. A broadcast comes from the rank root and a reduce goes to it,
// because the files do not name a root.
//
// Errors are lines of name:line:column: problem. Read rejects malformed XML and references to
// ranks, thread blocks, buffers, chunks and steps that do not exist. It rejects two thread blocks
// that send on one channel to one rank, and sends without receives and the reverse. It rejects
// steps that wait for each other, unordered steps that use the same chunk, and a result that is not
// the collective's. It cannot read a collective of the kind custom, because its result is not in
// the file.
func Read(name string, text []byte, root int) (*schedule.Schedule, error) {
	r := &reader{file: file{path: name, bytes: text}}
	if len(text) > maxSize {
		return nil, fmt.Errorf("%s: %d bytes, limit %d", name, len(text), maxSize)
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
